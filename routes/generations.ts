import { chatCompletions } from "./endpoints/chat_completions.ts";
import { completion } from "./endpoints/completion.ts";
import { completions } from "./endpoints/completions.ts";
import { embeddings } from "./endpoints/embeddings.ts";
import { infill } from "./endpoints/infill.ts";
import { messages } from "./endpoints/messages.ts";
import { RERANKS } from "./endpoints/rerank.ts";
import { responses } from "./endpoints/responses.ts";
import type { Generation } from "./shared/generation_endpoint.ts";

/** The endpoints that HTTP, batches and workers all answer. */
export const GENERATIONS: readonly Generation[] = [
  chatCompletions,
  completions,
  responses,
  messages,
  completion,
  infill,
  embeddings,
  ...RERANKS,
];

/** The allowed values of a batch line's `url`. */
export const GENERATION_URLS: readonly string[] = GENERATIONS.map(({ url }) => url);
