import { EngineError } from "../api/errors.ts";
import { ModelError } from "./types.ts";

/** Seconds in `Retry-After` when memory is short. */
const NO_ROOM_RETRY = 5;

export function closed(): EngineError {
  return new EngineError("engine_closed", "The engine is closed");
}

export function noRoom(id: string, bytes: number, free: number, budget: number): ModelError {
  const megabytes = (bytes: number) => `${Math.ceil(bytes / 1e6)} MB`;
  const why = bytes > budget
    ? [`models may take ${megabytes(budget)} together (`, { memoryBytes: undefined }, ")"]
    : [`${megabytes(free)} are free and the models that are loaded are in use; send the request again later`];
  const message = [`No room for model "${id}": it needs ${megabytes(bytes)}, `, ...why];
  const details = figures(bytes, free, budget);
  return new ModelError("no_memory_for_model", message, {
    retryAfter: NO_ROOM_RETRY,
    details,
    lasting: bytes > budget,
  });
}

export function figures(needed: number, free: number, budget: number): Record<string, number> {
  return {
    needed_bytes: needed,
    free_bytes: Math.max(0, free),
    ...(budget < Infinity ? { budget_bytes: budget } : {}),
  };
}
