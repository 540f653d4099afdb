import { chatCompletions } from "./endpoints/chat_completions.ts";
import { completions } from "./endpoints/completions.ts";
import { embeddings } from "./endpoints/embeddings.ts";
import { messages } from "./endpoints/messages.ts";
import { RERANKS } from "./endpoints/rerank.ts";
import { responses } from "./endpoints/responses.ts";
import type { Generation } from "./shared/generation_endpoint.ts";

/** The endpoints that HTTP, batches and workers answer alike. */
export const GENERATIONS: readonly Generation[] = [
  chatCompletions,
  completions,
  responses,
  messages,
  embeddings,
  ...RERANKS,
];

/** What a batch line may name as its `url`. */
export const GENERATION_URLS: readonly string[] = GENERATIONS.map(({ url }) => url);
