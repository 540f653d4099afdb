import type { Words } from "../api/errors.ts";
import type { ModelSource, OpenedModel } from "./slot.ts";
import type { TurnRules } from "./turns.ts";

export interface PoolOptions {
  /** Returns the models that the pool offers now. It is called again periodically. */
  readonly offers: () => readonly ModelSource[];
  /** Reads a model's header, so that its memory need is known before large reads. */
  readonly open: (source: ModelSource) => Promise<OpenedModel>;
  /** Bytes that all loaded models together may take. */
  readonly budget: number;
  /** Returns the bytes of free memory; undefined if unknown. */
  readonly free?: () => number | undefined;
  /** Milliseconds without requests after which a model is unloaded; by default never. */
  readonly idleMs?: number;
  /** Maximum number of requests that wait for one model. */
  readonly waiting?: number;
  /** Milliseconds that a request waits for memory. Batch requests wait until there is enough. */
  readonly roomMs?: number;
  /** Milliseconds after a failed load in which requests fail with the same reason. */
  readonly retryMs?: number;
  readonly turns?: Partial<TurnRules>;
  /** Receives one-line messages for the operator. */
  readonly note: (message: string) => void;
  /** Words for settings in notes; by default library options. */
  readonly words?: Words;
}

export const DEFAULTS = { waiting: 256, roomMs: 60_000, retryMs: 10_000, idleMs: Infinity };
