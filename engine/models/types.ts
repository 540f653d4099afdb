import type { Engine } from "../api/engine.ts";
import { WordedError, type Wording } from "../api/errors.ts";

/**
 * States of a server's model. `unloaded`: its first request loads it. `loading`: it loads, for the first time
 * or again. `draining`: it accepts no requests and closes when the running ones end. `failed`: its last load
 * or its engine failed.
 */
export const MODEL_STATES = ["unloaded", "loading", "ready", "draining", "failed"] as const;
export type ModelState = typeof MODEL_STATES[number];

/** A model that a server offers. */
export interface OfferedModel {
  readonly id: string;
  /** Other names that requests may use. */
  readonly aliases: readonly string[];
  /** Path of the model's file. */
  readonly path: string;
  readonly state: ModelState;
  /** The model's engine; undefined while it is not loaded. */
  readonly engine: Engine | undefined;
  /** The error of a failed model, for the operator; otherwise undefined. */
  readonly failure: Error | undefined;
  /** Unix seconds when the model was loaded, or first offered. */
  readonly created: number;
  /** Unix milliseconds when the model is unloaded if no request comes; undefined for a model that stays. */
  readonly unloadsAt?: number;
}

/** An engine that stays loaded until it is released. Releasing it again has no effect. */
export interface HeldEngine {
  readonly engine: Engine;
  release(): void;
}

export interface UseOptions {
  /** Aborts the wait for a loading model, with its reason. */
  readonly signal?: AbortSignal;
  /** Batch requests yield to interactive requests. Default "interactive". */
  readonly priority?: "interactive" | "batch";
  /**
   * Milliseconds without requests after which the model is unloaded, until the next request; by default the server's
   * setting. Without effect on models that are always loaded.
   */
  readonly keepMs?: number;
}

export type ModelErrorCode =
  /** No model has the requested name. */
  | "model_not_found"
  /** The request names no model, and there are several. */
  | "model_required"
  /** There is not enough free memory for the model now. */
  | "no_memory_for_model"
  /** The model cannot be loaded. */
  | "model_load_failed"
  /** The server has only this model and never unloads it. */
  | "model_stays"
  /** Too many requests wait for the model. */
  | "queue_full";

/** Thrown if a request cannot get a model. */
export class ModelError extends WordedError {
  override name = "ModelError";
  constructor(
    readonly code: ModelErrorCode,
    message: string | Wording,
    /** `retryAfter`: seconds. `details`: figures for the API's error body. `lasting`: a retry cannot help. */
    readonly more: {
      readonly retryAfter?: number;
      readonly details?: Record<string, number>;
      readonly lasting?: boolean;
      readonly cause?: unknown;
    } = {},
  ) {
    super(message, { cause: more.cause });
  }
}

/** Thrown if a model can never be loaded: its file is invalid or it is too large. */
export class ModelRefused extends Error {
  override name = "ModelRefused";
  /** `needed`: bytes of memory, for a model that is too large. */
  constructor(cause: Error, readonly needed?: number) {
    super(cause.message, { cause });
  }
}

/** Provides engines by model name. */
export type ModelUser = Pick<Models, "use">;

/** The models of a server. */
export interface Models {
  /** Returns all models, in a fixed order. */
  list(): readonly OfferedModel[];
  /** Returns a model by id or alias, with or without `:latest`; undefined if there is none. */
  find(name: string): OfferedModel | undefined;
  /**
   * Returns the engine of a model by id or alias, and loads it if needed. Without a name, returns the engine of the
   * only model. Throws ModelError, and EngineError after `drain`.
   */
  use(name: string | undefined, options?: UseOptions): Promise<HeldEngine>;
  /** Loads a model. Resolves when it is loaded. Throws as `use`. */
  load(name: string, options?: UseOptions): Promise<void>;
  /**
   * Unloads a model: refuses new requests, and resolves when the running ones have ended and its memory is free. Throws
   * ModelError.
   */
  unload(name: string): Promise<void>;
  /** Calls `listener` after each change of a model's state. The returned function ends the calls. */
  onState(listener: (model: OfferedModel) => void): () => void;
  /** Drains all engines. */
  drain(graceMs: number): Promise<void>;
  close(): Promise<void>;
}
