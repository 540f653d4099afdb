import type { AppContext } from "./shared/context.ts";
import { generationRoutes } from "./generations.ts";
import { chatChunk, chatCompletion } from "./shared/answers.ts";
import { chatRequest } from "./schemas/chat.ts";

export function chatRoutes(context: AppContext) {
  return generationRoutes(context, "/v1/chat/completions", {
    summary: "Answer a conversation",
    request: chatRequest,
    answer: chatCompletion,
    chunk: chatChunk,
  });
}
