import { inputLimits } from "./check.ts";

/** Limits of a file whose lines may name what the server answers. */
export const TEST_LIMITS = inputLimits(["/v1/chat/completions", "/v1/completions"]);
