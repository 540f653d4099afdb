import type { EngineState } from "../api/engine.ts";
import { EngineError } from "../api/errors.ts";
import { DeviceLost } from "../backend/backend.ts";

/** Returns the error with which an engine fails its requests. */
export function failureOf(cause: unknown): EngineError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  const error = cause instanceof DeviceLost
    ? new EngineError("device_lost", reason)
    : new EngineError("engine_failed", `The engine has failed: ${reason}`);
  error.cause = cause;
  return error;
}

/** Holds an engine's state, its failure and its state listeners. */
export class EngineLife {
  #state: EngineState;
  #failure: EngineError | undefined;
  readonly #listeners = new Set<(state: EngineState) => void>();

  constructor(state: EngineState) {
    this.#state = state;
  }

  get state(): EngineState {
    return this.#state;
  }

  get failure(): EngineError | undefined {
    return this.#failure;
  }

  /** Changes the state and calls all listeners. Does nothing if the state is equal or the engine is draining. */
  become(state: Exclude<EngineState, "failed">): void {
    this.#change(state, undefined);
  }

  fail(failure: EngineError): void {
    this.#change("failed", failure);
  }

  /** Calls `listener` after each change of state (Engine.onState). */
  onState(listener: (state: EngineState) => void): () => void {
    const own = (state: EngineState) => listener(state); // a listener that is registered twice is called twice
    this.#listeners.add(own);
    return () => this.#listeners.delete(own);
  }

  #change(state: EngineState, failure: EngineError | undefined): void {
    if (this.#state === state || this.#state === "draining") return;
    this.#state = state;
    this.#failure = failure;
    for (const listener of [...this.#listeners]) listener(state);
  }
}
