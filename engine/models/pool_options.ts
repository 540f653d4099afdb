import type { Words } from "../api/errors.ts";
import type { ModelSource, OpenedModel } from "./slot.ts";
import type { TurnRules } from "./turns.ts";

export interface PoolOptions {
  /** Returns the current models. Called again periodically. */
  readonly offers: () => readonly ModelSource[];
  /** Reads a model's header, so its memory is known before anything large is read. */
  readonly open: (source: ModelSource) => Promise<OpenedModel>;
  /** Bytes that all loaded models together may take. */
  readonly budget: number;
  /** Returns the bytes of memory that are actually free; undefined where unknown. */
  readonly free?: () => number | undefined;
  /** Idle time after which a model is unloaded; by default never. */
  readonly idleMs?: number;
  /** Requests that may wait for one model. */
  readonly waiting?: number;
  /** How long a request waits for memory. Batch requests wait until there is enough. */
  readonly roomMs?: number;
  /** How long requests fail with the same reason after a failed load. */
  readonly retryMs?: number;
  readonly turns?: Partial<TurnRules>;
  /** Receives one-line messages for the operator. */
  readonly note: (message: string) => void;
  /** Words the settings in notes; by default options of the library. */
  readonly words?: Words;
}

export const DEFAULTS = { waiting: 256, roomMs: 60_000, retryMs: 10_000, idleMs: Infinity };
