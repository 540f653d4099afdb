/**
 * Settings under their option names in the library, with values to propose. Undefined: the message only names the
 * setting. Null: it proposes to turn the setting off.
 */
export interface Settings {
  readonly ctx?: number;
  readonly parallel?: number;
  readonly kvBytes?: number;
  readonly kvType?: string;
  readonly backend?: string;
  readonly arithmetic?: string;
  readonly accuracy?: string;
  readonly pooling?: string;
  readonly speculate?: string;
  readonly draft?: string;
  readonly lora?: string;
  readonly numa?: string;
  readonly promptCache?: string;
  /** Bytes that all models of a server may occupy together. */
  readonly memoryBytes?: number;
  /** Format that a checkpoint's matrices are converted to. */
  readonly quantize?: string;
  /** Folder of the native libraries. */
  readonly library?: string;
  /** A batch's output file, and the alternative names of its models. */
  readonly output?: string;
  readonly aliases?: string;
  /** Prompt, input and output of a table job. */
  readonly prompt?: string;
  readonly image?: string;
  readonly system?: string;
  readonly schema?: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly effort?: string;
  readonly format?: string;
  readonly outputFormat?: string;
  readonly separator?: string;
  readonly prefix?: string;
  /** A server's folder of files and batches, its limits, and the client addresses it accepts. */
  readonly data?: string | null;
  readonly maxStorageBytes?: number;
  readonly maxUploadBytes?: number;
  readonly maxConnections?: number;
  readonly apiKeys?: string;
  readonly allowedHosts?: string;
  readonly corsOrigins?: string;
  /** Whether requests may make a server download models. */
  readonly allowPull?: boolean;
}

/**
 * A message whose settings are data. The command line words them as flags, the library as options, and the server for
 * HTTP.
 */
export type Wording = readonly (string | Settings)[];

/** Returns the words for settings that a message mentions together. */
export type Words = (settings: Settings) => string;

/** Words settings as library options, for example `parallel: 1, backend: "cpu"`. */
const asOptions: Words = (settings) =>
  Object.entries(settings).map(([name, value]) => {
    if (name === "library") return "COMPY_LIBRARY"; // an environment variable, not a library option
    if (value === null) return `leave out ${name}`;
    return value === undefined ? name : `${name}: ${JSON.stringify(value)}`;
  }).join(", ");

export function render(wording: Wording, words: Words = asOptions): string {
  return wording.map((part) => typeof part === "string" ? part : words(part)).join("");
}

/** An error whose message may name settings. `message` names them as library options. */
export class WordedError extends Error {
  readonly #wording: Wording;

  constructor(message: string | Wording, options?: ErrorOptions) {
    const wording = typeof message === "string" ? [message] : message;
    super(render(wording), options);
    this.#wording = wording;
  }

  get wording(): Wording {
    return this.#wording;
  }
}

/**
 * Returns an error's message with its settings as data. If the error repeats its cause's message, returns the cause's.
 */
export function wordingOf(error: unknown): Wording {
  if (!(error instanceof Error)) return [String(error)];
  const { message, cause } = error;
  const own = error instanceof WordedError ? error.wording : [message];
  const known = own.length > 1 || !(cause instanceof Error) ? own : wordingOf(cause);
  const end = render(known);
  return message.endsWith(end) ? [message.slice(0, message.length - end.length), ...known] : [message];
}

/** Returns an error's message with its settings in the given words; by default as library options. */
export function worded(error: unknown, words?: Words): string {
  return render(wordingOf(error), words);
}

/**
 * Reasons why a request is refused or fails. A server's error responses use the same codes.
 *
 * ```ts
 * import { type EngineErrorCode } from "compy";
 *
 * const passing: EngineErrorCode[] = ["queue_full", "engine_unavailable", "device_lost"];
 * console.log("Ask again later:", passing);
 * ```
 */
export type EngineErrorCode =
  /** The prompt does not fit into the context; `details` has the figures. */
  | "context_length_exceeded"
  /** An option or argument is wrong; the message names it. */
  | "invalid_request"
  /** The model or its backend does not support a feature that the request uses. */
  | "not_supported"
  /** The constraint is malformed, unsupported or over a limit. Nothing was computed. */
  | "invalid_constraint"
  /** The answer cannot be completed in the form of its constraint. */
  | "constraint_failed"
  /** The prompt could not be stored, because the disk is full or failing. */
  | "prompt_not_stored"
  /** Too many requests wait. */
  | "queue_full"
  /** The model is closed. */
  | "engine_closed"
  /** The engine is still loading, or has stopped. */
  | "engine_unavailable"
  /** The compute device was lost, most likely not because of this request. The model is being reloaded. */
  | "device_lost"
  | "engine_failed";

/** A request that the engine refused, or that failed. The API's error body contains `details`. */
export class EngineError extends WordedError {
  override name = "EngineError";
  constructor(
    readonly code: EngineErrorCode,
    message: string | Wording,
    readonly details: Record<string, number> = {},
  ) {
    super(message);
  }
}
