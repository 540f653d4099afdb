import { applyTemplate } from "./endpoints/apply_template.ts";
import { batches } from "./endpoints/batches.ts";
import { detokenize } from "./endpoints/detokenize.ts";
import { countTokens } from "./endpoints/count_tokens.ts";
import { files } from "./endpoints/files.ts";
import { health } from "./endpoints/health.ts";
import { metrics } from "./endpoints/metrics.ts";
import { models } from "./endpoints/models.ts";
import { responseTokens } from "./endpoints/responses.ts";
import { props } from "./endpoints/props.ts";
import { slots } from "./endpoints/slots.ts";
import { tokenize } from "./endpoints/tokenize.ts";
import { tokenizerInfo } from "./endpoints/tokenizer_info.ts";
import { GENERATIONS } from "./generations.ts";
import type { Endpoint } from "./shared/endpoint.ts";

/** All endpoints, in the order of the OpenAPI document. */
export const ENDPOINTS: readonly Endpoint[] = [
  ...GENERATIONS.map(({ endpoint }) => endpoint),
  responseTokens,
  countTokens,
  ...models,
  tokenize,
  detokenize,
  applyTemplate,
  tokenizerInfo,
  props,
  slots,
  ...health,
  metrics,
];

/** Endpoints that are served only with storage for files and batches. */
export const BATCH_ENDPOINTS: readonly Endpoint[] = [...files, ...batches];
