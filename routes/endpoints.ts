import { applyTemplate } from "./llama_server/apply_template.ts";
import { batches } from "./openai/batches.ts";
import { detokenize } from "./llama_server/detokenize.ts";
import { messageBatches } from "./anthropic/message_batches.ts";
import { countTokens } from "./anthropic/count_tokens.ts";
import { files } from "./openai/files.ts";
import { health } from "./llama_server/health.ts";
import { metrics } from "./metrics/metrics_endpoint.ts";
import { models } from "./openai/models.ts";
import { responseTokens } from "./openai/responses.ts";
import { storedResponses } from "./openai/responses/stored.ts";
import { loraAdapters } from "./llama_server/lora_adapters.ts";
import { props } from "./llama_server/props.ts";
import { slots } from "./llama_server/slots.ts";
import { tokenize } from "./llama_server/tokenize.ts";
import { chat } from "./ollama/chat.ts";
import { embed } from "./ollama/embed.ts";
import { embeddings as ollamaEmbeddings } from "./ollama/embeddings.ts";
import { generate } from "./ollama/generate.ts";
import { ps } from "./ollama/ps.ts";
import { pull } from "./ollama/pull.ts";
import { show } from "./ollama/show.ts";
import { tags } from "./ollama/tags.ts";
import { version } from "./ollama/version.ts";
import { tokenizerInfo } from "./llama_server/tokenizer_info.ts";
import { GENERATIONS } from "./generations.ts";
import type { Endpoint } from "./core/endpoint.ts";

/** All endpoints, in the order of the OpenAPI document. */
export const ENDPOINTS: readonly Endpoint[] = [
  ...GENERATIONS.map(({ endpoint }) => endpoint),
  responseTokens,
  ...storedResponses,
  countTokens,
  ...models,
  tokenize,
  detokenize,
  applyTemplate,
  tokenizerInfo,
  loraAdapters,
  props,
  slots,
  ...[chat, generate, embed, ollamaEmbeddings].map(({ endpoint }) => endpoint),
  tags,
  show,
  ps,
  version,
  pull,
  ...health,
  metrics,
];

/** Endpoints that need storage for files and batches. */
export const BATCH_ENDPOINTS: readonly Endpoint[] = [...files, ...batches, ...messageBatches];
