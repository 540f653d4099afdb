import { chatCompletions } from "./openai/chat_completions.ts";
import { completion } from "./llama_server/completion.ts";
import { completions } from "./openai/completions.ts";
import { embeddings } from "./openai/embeddings.ts";
import { infill } from "./llama_server/infill.ts";
import { messages } from "./anthropic/messages.ts";
import { CLASSIFICATIONS } from "./openai/classify.ts";
import { moderations } from "./openai/moderations.ts";
import { RERANKS } from "./llama_server/rerank.ts";
import { responses } from "./openai/responses.ts";
import { SCORES } from "./openai/score.ts";
import type { Generation } from "./generation/generation_endpoint.ts";

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
  ...SCORES,
  ...CLASSIFICATIONS,
  moderations,
];

/** The allowed values of a batch line's `url`. */
export const GENERATION_URLS: readonly string[] = GENERATIONS.map(({ url }) => url);
