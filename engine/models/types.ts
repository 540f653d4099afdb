import type { Engine } from "../types.ts";

/**
 * Where a model of a server is in its life. `unloaded`: its first request loads it. `loading`: it is being loaded, for the
 * first time or again. `draining`: it takes no requests, and is closed when those that run have ended. `failed`: its last load
 * failed, or its engine did for good.
 */
export const MODEL_STATES = ["unloaded", "loading", "ready", "draining", "failed"] as const;
export type ModelState = typeof MODEL_STATES[number];

/** A model that a server offers. */
export interface OfferedModel {
  readonly id: string;
  /** Other names that requests may use. */
  readonly aliases: readonly string[];
  /** Of its file. */
  readonly path: string;
  readonly state: ModelState;
  /** Undefined while it is not loaded. */
  readonly engine: Engine | undefined;
  /** Why it failed, for an operator; undefined unless it did. */
  readonly failure: Error | undefined;
  /** Unix seconds: when it was loaded, or first offered. */
  readonly created: number;
}

/** An engine that stays loaded until it is released; every hold is released once, and releasing it again does nothing. */
export interface HeldEngine {
  readonly engine: Engine;
  release(): void;
}

export interface UseOptions {
  /** Ends the wait for a model that is being loaded, with its reason. */
  readonly signal?: AbortSignal;
  /** A batch lets interactive requests go first. Default "interactive". */
  readonly priority?: "interactive" | "batch";
}

export type ModelErrorCode =
  /** No model has that name. */
  | "model_not_found"
  /** No name was given, and there are several models. */
  | "model_required"
  /** There is no room for it now. */
  | "no_memory_for_model"
  /** It cannot be loaded. */
  | "model_load_failed"
  /** This server runs it as long as it lives. */
  | "model_stays"
  /** Too many requests wait for it. */
  | "queue_full";

/** A model that a request cannot have. */
export class ModelError extends Error {
  override name = "ModelError";
  constructor(
    readonly code: ModelErrorCode,
    message: string,
    /** `retryAfter`: seconds; `details`: figures for the API's error body; `lasting`: it can never be had. */
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

/** Why a model can never be loaded: its file is not what it must be, or it is too large. Waiting does not mend that. */
export class ModelRefused extends Error {
  override name = "ModelRefused";
  /** `needed`: bytes of a model that is too large. */
  constructor(cause: Error, readonly needed?: number) {
    super(cause.message, { cause });
  }
}

/** Who gives engines by the names of their models. */
export type ModelUser = Pick<Models, "use">;

/** The models of a server. */
export interface Models {
  /** In a fixed order. */
  list(): readonly OfferedModel[];
  /** By id or alias; undefined where there is none. */
  find(name: string): OfferedModel | undefined;
  /**
   * The engine of the model that is named by id or alias, or without a name of the only one there is; loads it where it is
   * not loaded. Throws ModelError, and EngineError where the models are drained.
   */
  use(name: string | undefined, options?: UseOptions): Promise<HeldEngine>;
  /** Resolves when it is loaded. Throws as `use`. */
  load(name: string, options?: UseOptions): Promise<void>;
  /** Takes no further requests for it until those that run have ended and its memory is free. Throws ModelError. */
  unload(name: string): Promise<void>;
  /** Calls the listener after each change of a model's state, until the returned function is called. */
  onState(listener: (model: OfferedModel) => void): () => void;
  /** As of all engines. */
  drain(graceMs: number): Promise<void>;
  close(): Promise<void>;
}
