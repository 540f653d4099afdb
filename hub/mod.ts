/** Models from hubs: lists of models, their memory needs, resumable downloads, and the folder of models. */
export { type Choice, labelOf, type RemotePiece } from "./choices.ts";
export { PullError, type PullErrorCode } from "./errors.ts";
export { type ListedModel, type ModelList, parseModelList, SHIPPED_LIST } from "./model_list.ts";
export type { Offer, OfferedChoice } from "./offer.ts";
export { offer, pull } from "./pull.ts";
export {
  listModels,
  type Receipt,
  type Removed,
  removeModel,
  type Stored,
  type StoredModel,
} from "./store.ts";
export {
  DEFAULT_CONNECTIONS,
  DEFAULT_ENDPOINT,
  MAX_CONNECTIONS,
  type PulledModel,
  type PullEvent,
  type PullOptions,
} from "./types.ts";
