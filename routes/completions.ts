import type { AppContext } from "./shared/context.ts";
import { generationRoutes } from "./generations.ts";
import { completion } from "./shared/answers.ts";
import { completionRequest } from "./schemas/completions.ts";

export function completionRoutes(context: AppContext) {
  return generationRoutes(context, "/v1/completions", {
    summary: "Continue a text",
    request: completionRequest,
    answer: completion,
    chunk: completion,
  });
}
