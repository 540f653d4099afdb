/**
 * The engine's exports for routes, jobs and the library. Files of the engine import names from where they are defined.
 */
export * from "./api/engine.ts";
export * from "./api/errors.ts";
export * from "./api/events.ts";
export * from "./api/request.ts";
export * from "./api/sampling.ts";
export {
  type Accuracy,
  type ActivationPrecision,
  type Arithmetic,
  ARITHMETICS,
  type BackendName,
  DEFAULT_KV_TYPE,
  KV_TYPES,
  KV_WORDS,
  type KvType,
  type PoolingKind,
} from "./backend/backend.ts";
export type { Speculate } from "./speculation/choose.ts";
export { TooManyTokens } from "./tokenizer/types.ts";
export { type Constraint, ConstraintError, grammarConstraint } from "./grammar/types.ts";
export * from "./chat/types.ts";
export { completed } from "./chat/history.ts";
export { parseWrittenJson } from "./chat/written_json.ts";
export { finish, mapInSlices, type Paced, STEPS_PER_OFFER, withPauses, workFor } from "./pacing/pauses.ts";
export { parseLargeJson, PLAIN_BYTES, plainUntil, type Stretch, writeLargeJson } from "./pacing/json.ts";
export { adaptedId, adapterNamed } from "./models/adapted_engine.ts";
export { loadedModels, modelRequired, modelsOf, oneModel, unknownModel } from "./models/loaded_models.ts";
export * from "./models/types.ts";
export { promptLength } from "./schedule/images.ts";
export { MOST_IMAGE_BYTES } from "./vision/limits.ts";
export type {
  ChatMessage,
  ChatTemplate,
  ChatTemplateOptions,
  EncodeOptions,
  InfillTokens,
  StreamDecoder,
  Tokenizer,
} from "./tokenizer/types.ts";
export { isReservedVariable, RESERVED_TEMPLATE_VARIABLES } from "./tokenizer/types.ts";
