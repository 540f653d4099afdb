import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/mod.ts";
import { ApiError } from "../core/errors.ts";
import {
  BIASES_BY_ID,
  boundedArray,
  documented,
  isTokenIds,
  LIMITS,
  samplingFields,
  text,
  TOKEN_ID,
  tokenBias,
} from "../core/fields.ts";

/*
 * llama-server's second format of `logit_bias`: pairs of a token (or a text that stands for its tokens) and its bias.
 */

/** Bias of forbidden tokens. This bias is lower than any logit, but masks are still lower. */
const NEVER = -1e30;

type Pair = readonly [token: number | string, bias: number | false];

const biasText = text(1, LIMITS.biasCharacters);
const token = z.custom<Pair[0]>((value) => isTokenIds([value]) || biasText.safeParse(value).success, {
  error: `must be a token id, or a text of 1 to ${LIMITS.biasCharacters} characters`,
});
const isBias = (value: unknown) => value === false || tokenBias.safeParse(value).success;
const bias = z.custom<Pair[1]>(isBias, { error: "must be a number from -100 to 100, or false" });
const pairs = boundedArray(z.tuple([token, bias]), 0, LIMITS.logitBiases);
const byId = samplingFields.logit_bias;

/** Schema of `logit_bias`, checked by hand: a union's errors would not tell which rule is broken. */
export const logitBiasField = documented(
  z.custom<z.output<typeof byId> | Pair[]>().superRefine((given, ctx) => {
    const { error } = (Array.isArray(given) ? pairs : byId).safeParse(given, { reportInput: true });
    for (const issue of error?.issues ?? []) ctx.addIssue(issue as z.core.$ZodRawIssue);
  }).optional(),
  {
    type: ["object", "array", "null"],
    ...BIASES_BY_ID,
    maxItems: LIMITS.logitBiases,
    items: {
      type: "array",
      prefixItems: [
        { oneOf: [TOKEN_ID, { type: "string", minLength: 1, maxLength: LIMITS.biasCharacters }] },
        { oneOf: [BIASES_BY_ID.additionalProperties, { const: false }] },
      ],
      minItems: 2,
      maxItems: 2,
    },
    description:
      "Map of token ids to logit biases, or list of [token id or text, bias]; false excludes the token",
  },
);

/** Returns the biases by token id; for a repeated token the last one counts. Throws ApiError. */
export function biasesOf(engine: Engine, given: z.output<typeof logitBiasField>): Record<string, number> {
  if (!Array.isArray(given)) return given ?? {};
  const ids = (token: number | string) =>
    typeof token === "number" ? [token] : engine.tokenizer.encode(token.toWellFormed());
  const biases = given.flatMap(([token, bias]) =>
    ids(token).map((id) => [id, bias === false ? NEVER : bias])
  );
  if (biases.length <= LIMITS.logitBiases) return Object.fromEntries(biases);
  const message =
    `Invalid "logit_bias": must name at most ${LIMITS.logitBiases} tokens (got ${biases.length})`;
  throw new ApiError(400, "invalid_value", message, { param: "logit_bias" });
}
