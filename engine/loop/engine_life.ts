import type { EngineState } from "../api/engine.ts";
import type { EngineError } from "../api/errors.ts";

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

  /** Changes the state and calls all listeners. Does nothing when the state is the same or the engine is draining. */
  become(state: Exclude<EngineState, "failed">): void {
    this.#change(state, undefined);
  }

  fail(failure: EngineError): void {
    this.#change("failed", failure);
  }

  /** See Engine.onState. */
  onState(listener: (state: EngineState) => void): () => void {
    const own = (state: EngineState) => listener(state); // a listener registered twice is called twice
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
