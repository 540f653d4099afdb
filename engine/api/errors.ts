export type EngineErrorCode =
  | "context_length_exceeded"
  | "invalid_request"
  /** The model or its backend does not support the request. */
  | "not_supported"
  /** The constraint is malformed, unsupported or over a limit. Nothing was computed. */
  | "invalid_constraint"
  /** The answer cannot be completed in the form of its constraint. */
  | "constraint_failed"
  /** The prompt could not be stored, because the disk is full or failing. */
  | "prompt_not_stored"
  | "queue_full"
  | "engine_closed"
  | "engine_unavailable"
  /** The compute device is gone, most likely not because of this request. */
  | "device_lost"
  | "engine_failed";

/** A request that the engine refuses, or that failed in it. `details` are added to the API's error body. */
export class EngineError extends Error {
  override name = "EngineError";
  constructor(
    readonly code: EngineErrorCode,
    message: string,
    readonly details: Record<string, number> = {},
  ) {
    super(message);
  }
}
