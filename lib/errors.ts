import type { EngineErrorCode } from "../engine/api/errors.ts";
import { EngineError } from "../engine/mod.ts";
import type { BatchErrorCode } from "../jobs/errors.ts";
import { messageOf, systemReason } from "./system_errors.ts";

export type { EngineErrorCode } from "../engine/api/errors.ts";
export type { BatchErrorCode } from "../jobs/errors.ts";

/**
 * What went wrong, for programs: a code of the engine, a code of a batch, or one of these:
 *
 * - `chat_template_error`: the model's template refuses the conversation.
 * - `model_not_found`: the file does not exist, or cannot be read. `invalid_model`: it is broken, or not supported.
 *   `not_enough_memory`: the model does not fit; the message says what would.
 * - `library_not_found`, `backend_failed`: the kernels are missing, or the CPU, the GPU or its driver refuse the model.
 *   `not_permitted`: Deno may not do that; the message names the permission.
 * - `cannot_listen`: the server cannot have the address, or others would reach it without a key. `data_unusable`: a server
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
 * What this library throws, from whatever it does: a refusal or a failure, with a `code` for programs and a message for people. Two
 * things are not wrapped: the reason of an `AbortSignal`, which is thrown as it is, and bugs.
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
  /** Always this. */
  override readonly name = "CompyError";
  /** What went wrong. */
  readonly code: ErrorCode;
  /** Figures, such as `n_prompt_tokens` and `n_ctx` of a prompt that is too long. */
  readonly details: Readonly<Record<string, number>>;

  /** `details` default to none. */
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

/** The parts of the program throw errors of their own, which have these names. */
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

/** The error as this library throws it: with a code where it was foreseen, else as it is. */
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

/** `cannot`: what could not be done with a model's file. */
export function modelFileError(cannot: string, error: unknown, advice = ""): unknown {
  const reason = systemReason(error);
  if (reason === undefined) return toCompyError(error);
  const code = (error as Error).name === "NotCapable" ? "not_permitted" : "model_not_found";
  return new CompyError(code, `${cannot}: ${reason}${advice && `; ${advice}`}`, { cause: error });
}

/** Throws CompyError not_supported outside Deno. `instead` says what to do there. */
export function needDeno(what: string, instead: string): void {
  if (typeof Deno !== "undefined") return;
  throw new CompyError("not_supported", `${what} needs Deno; ${instead}`);
}

/** What ended the loading of a model, where the system has refused one of its files too. */
export function loadError(error: unknown): unknown {
  if (systemReason(error) === undefined) return toCompyError(error);
  return new CompyError("model_not_found", messageOf(error as Error), { cause: error });
}

/** What could not be done, and why; the system's reasons in words. */
export function because(cannot: string, error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message.startsWith("Cannot ") ? message : `${cannot}: ${systemReason(error) ?? message}`;
}

/** Throws CompyError invalid_request. `got` is shown as it was written. */
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
