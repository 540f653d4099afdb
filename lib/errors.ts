import type { EngineErrorCode } from "../engine/api/errors.ts";
import { EngineError } from "../engine/mod.ts";
import type { BatchErrorCode } from "../jobs/errors.ts";
import { messageOf, systemReason } from "./system_errors.ts";

export type { EngineErrorCode } from "../engine/api/errors.ts";
export type { BatchErrorCode } from "../jobs/errors.ts";

/**
 * The reason of an error, for programs: a code of the engine, a code of a batch, or one of these:
 *
 * - `chat_template_error`: the model's template refuses the conversation.
 * - `model_not_found`: the file does not exist, or cannot be read. `invalid_model`: it is broken, or not supported.
 *   `not_enough_memory`: the model does not fit; the message lists settings that fit.
 * - `library_not_found`, `backend_failed`: the kernels are missing, or the CPU, the GPU or its driver refuse the model.
 *   `not_permitted`: Deno lacks a permission, which the message names.
 * - `cannot_listen`: the server cannot use the address, or other machines could reach it without a key.
 * `data_unusable`: a server
 *   cannot keep files and batches in its folder.
 *
 * ```ts
 * import { CompyError, type ErrorCode, loadModel } from "compy";
 *
 * const again: ErrorCode[] = ["queue_full", "engine_unavailable"];
 * await using model = await loadModel();
 * try {
 *   await model.chat("Hi").answer();
 * } catch (error) {
 *   if (!(error instanceof CompyError && again.includes(error.code))) throw error;
 *   // later, then
 * }
 * ```
 */
export type ErrorCode =
  | EngineErrorCode
  | BatchErrorCode
  | "chat_template_error"
  | "model_not_found"
  | "invalid_model"
  | "not_enough_memory"
  | "library_not_found"
  | "backend_failed"
  | "not_permitted"
  | "cannot_listen"
  | "data_unusable";

/**
 * The error of every refusal and failure in this library, with a `code` for programs and a message for
 * people. It does not wrap the reason of an `AbortSignal`, which is thrown unchanged, or errors that only a
 * bug causes.
 *
 * ```ts
 * import { CompyError, loadModel } from "compy";
 *
 * try {
 *   await loadModel("no-such-file.gguf");
 * } catch (error) {
 *   if (!(error instanceof CompyError) || error.code !== "model_not_found") throw error;
 * }
 * ```
 */
export class CompyError extends Error {
  /** The error's name, always "CompyError". */
  override readonly name = "CompyError";
  /** The error's code, for programs. */
  readonly code: ErrorCode;
  /** Figures of the error, such as `n_prompt_tokens` and `n_ctx` of a prompt that is too long. */
  readonly details: Readonly<Record<string, number>>;

  /** Creates an error; `details` default to none. */
  constructor(
    code: ErrorCode,
    message: string,
    options: ErrorOptions & { readonly details?: Readonly<Record<string, number>> } = {},
  ) {
    super(message, options);
    this.code = code;
    this.details = options.details ?? {};
  }
}

/** Codes for the errors that other parts of the program throw, by the errors' names. */
const CODES: Readonly<Record<string, ErrorCode>> = {
  ChatTemplateError: "chat_template_error",
  ConstraintError: "invalid_constraint",
  GgufError: "invalid_model",
  MemoryError: "not_enough_memory",
  LibraryNotFound: "library_not_found",
  KernelError: "backend_failed",
  WasmError: "backend_failed",
  GpuError: "backend_failed",
  DeviceLost: "backend_failed",
  GrammarLibraryError: "backend_failed",
  NotCapable: "not_permitted",
};

/** Returns the error as a CompyError if it has a code; other errors unchanged. */
export function toCompyError(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof CompyError) return error;
  const { message } = error;
  if (error instanceof EngineError) {
    return new CompyError(error.code, message, { details: error.details, cause: error });
  }
  if (error.name === "BatchError") {
    return new CompyError((error as Error & { code: BatchErrorCode }).code, message, { cause: error });
  }
  const code = CODES[error.name];
  return code === undefined ? error : new CompyError(code, message, { cause: error });
}

/**
 * Returns the error for a failed operation on a model's file. `cannot` starts the message, for example "Cannot read
 * FILE".
 */
export function modelFileError(cannot: string, error: unknown, advice = ""): unknown {
  const reason = systemReason(error);
  if (reason === undefined) return toCompyError(error);
  const code = (error as Error).name === "NotCapable" ? "not_permitted" : "model_not_found";
  return new CompyError(code, `${cannot}: ${reason}${advice && `; ${advice}`}`, { cause: error });
}

/** Throws CompyError not_supported outside Deno. `instead` is the advice in its message. */
export function needDeno(what: string, instead: string): void {
  if (typeof Deno !== "undefined") return;
  throw new CompyError("not_supported", `${what} needs Deno; ${instead}`);
}

/** Returns the error of a failed load. For a file that the system refuses, its code is `model_not_found`. */
export function loadError(error: unknown): unknown {
  if (systemReason(error) === undefined) return toCompyError(error);
  return new CompyError("model_not_found", messageOf(error as Error), { cause: error });
}

/** Returns a message of `cannot` and the error's reason; the system's error codes are put into words. */
export function because(cannot: string, error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message.startsWith("Cannot ") ? message : `${cannot}: ${systemReason(error) ?? message}`;
}

/** Throws CompyError invalid_request for a field. The message shows the value `got` as JSON. */
export function refuse(field: string, rule: string, got: unknown): never {
  throw new CompyError("invalid_request", `Invalid ${field}: ${rule} (got ${show(got)})`);
}

function show(value: unknown): string {
  if (typeof value === "function") return "a function";
  if (typeof value === "symbol" || typeof value === "bigint") return String(value);
  try {
    const text = typeof value === "number" ? String(value) : JSON.stringify(value) ?? String(value);
    return text.length > 80 ? `${text.slice(0, 77)}...` : text;
  } catch {
    return `a ${typeof value}`;
  }
}
