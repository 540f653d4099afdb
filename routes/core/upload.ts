import { Busboy } from "@fastify/busboy";
import { Buffer } from "node:buffer";
import type { Readable } from "node:stream";
import type { ConnectionLimits } from "./context.ts";
import { ApiError, incompleteBody } from "./errors.ts";

/** Receives the content of a file while it is uploaded. */
export interface Sink {
  readonly bytes: number;
  /** Aborts, with the reason, when the sink accepts no more content. */
  readonly signal: AbortSignal;
  write(bytes: Uint8Array): Promise<void>;
  discard(): Promise<void>;
}

export interface ReceivedForm<S extends Sink> {
  /** The first value of each form field. */
  readonly fields: Record<string, string>;
  /** Names of form fields that occurred more than once. */
  readonly repeated: ReadonlySet<string>;
  readonly file: { readonly filename: string; readonly sink: S };
}

type UploadLimits = Pick<ConnectionLimits, "uploadBytes" | "bodyMs" | "bodyBytesPerSecond">;
type Part = Readable & { readonly truncated: boolean };

const MAX_FIELDS = 16;
const MAX_FIELD_BYTES = 1024;
const MAX_NAME_BYTES = 200;
/** Maximum bytes to receive while the sink writes earlier content. */
const AHEAD_BYTES = 512 * 1024;
/** Maximum bytes of the form, without the file. */
const MAX_FORM_BYTES = 64 * 1024;

/**
 * Reads a form with one file and passes its content to a sink as it arrives, without holding it in memory. Throws
 * ApiError, and discards the sink, if the form is invalid, incomplete or too large.
 */
export async function readUpload<S extends Sink>(
  request: Request,
  limits: UploadLimits,
  open: () => Promise<S>,
): Promise<ReceivedForm<S>> {
  const form = new Form(request, limits, open);
  try {
    await form.read(request.body);
    return form.result();
  } catch (error) {
    await form.discard();
    throw error;
  }
}

class Form<S extends Sink> {
  readonly #fields: Record<string, string> = {};
  readonly #repeated = new Set<string>();
  readonly #parser: InstanceType<typeof Busboy>;
  #file: { filename: string; sink: S } | undefined;
  #part: Part | undefined;
  #writing: Promise<void> | undefined;
  #failure: Error | undefined;
  readonly #began = performance.now();
  #received = 0;
  /** Ends the current wait with an error. */
  #interrupt: (failure: Error) => void = () => {};

  constructor(
    request: Request,
    private readonly limits: UploadLimits,
    private readonly open: () => Promise<S>,
  ) {
    const type = request.headers.get("content-type") ?? "";
    if (!/^multipart\/form-data\s*;/i.test(type)) {
      const got = type === "" ? "none" : JSON.stringify(type.slice(0, 60));
      throw wrongType(`must be multipart/form-data with a boundary (got ${got})`);
    }
    const announced = Number(request.headers.get("content-length") ?? 0);
    if (announced > limits.uploadBytes + MAX_FORM_BYTES) throw tooLarge(limits, announced);
    try {
      this.#parser = new Busboy({
        headers: { "content-type": type },
        fileHwm: AHEAD_BYTES,
        limits: {
          files: 1,
          fields: MAX_FIELDS,
          fieldSize: MAX_FIELD_BYTES,
          fieldNameSize: MAX_NAME_BYTES,
          fileSize: limits.uploadBytes,
          headerPairs: 20,
        },
      });
    } catch (error) {
      throw wrongType(`${(error as Error).message}`);
    }
    this.#listen();
  }

  /** Feeds the parser no faster than the sink accepts its output. */
  async read(body: ReadableStream<Uint8Array> | null): Promise<void> {
    const finished = new Promise<void>((resolve) => this.#parser.once("finish", resolve));
    if (body !== null) {
      const reader = body.getReader();
      try {
        for (;;) {
          const { done, value } = await this.#soon(reader.read());
          if (done) break;
          this.#received += value.length;
          if (!this.#parser.write(Buffer.from(value.buffer, value.byteOffset, value.byteLength))) {
            await this.#orFailure(new Promise((resolve) => this.#parser.once("drain", resolve)));
          }
        }
      } catch (error) {
        throw this.#failure ?? (error instanceof ApiError ? error : incompleteBody());
      } finally {
        // The rest of the body is discarded.
        reader.cancel().catch(() => {});
      }
    }
    this.#parser.end();
    await this.#orFailure(finished);
    await this.#orFailure(this.#writing ?? Promise.resolve());
  }

  result(): ReceivedForm<S> {
    if (this.#file === undefined) {
      throw new ApiError(400, "missing_required_parameter", 'Missing required parameter "file"', {
        param: "file",
      });
    }
    return { fields: this.#fields, repeated: this.#repeated, file: this.#file };
  }

  async discard(): Promise<void> {
    // Without this call, an incomplete file would never end.
    this.#part?.destroy();
    await this.#writing?.catch(() => {});
    await this.#file?.sink.discard();
  }

  #listen(): void {
    const fail = (error: Error) => this.#fail(error);
    this.#parser.on("error", (error) => fail(badForm((error as Error).message)));
    this.#parser.on("filesLimit", () => fail(badForm("it must have one file (got more)")));
    this.#parser.on(
      "fieldsLimit",
      () => fail(badForm(`it must have at most ${MAX_FIELDS} fields beside the file (got more)`)),
    );
    this.#parser.on("field", (name, value, nameCut, valueCut) => {
      if (nameCut) return fail(badForm(`a field's name must be at most ${MAX_NAME_BYTES} bytes (got more)`));
      if (valueCut) {
        const field = JSON.stringify(name.slice(0, 60));
        return fail(badForm(`the field ${field} must be at most ${MAX_FIELD_BYTES} bytes (got more)`));
      }
      if (Object.hasOwn(this.#fields, name)) this.#repeated.add(name);
      else Object.defineProperty(this.#fields, name, { value, enumerable: true });
    });
    this.#parser.on("file", (name, part, filename) => {
      this.#part = part as Part;
      // Without an error listener, an error before or after reading the content would end the process.
      part.on("error", (error) => fail(badForm(error.message)));
      this.#writing = this.#receive(name, this.#part, filename);
      this.#writing.catch((error) => {
        part.resume();
        fail(error);
      });
    });
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    this.#interrupt(this.#failure);
  }

  async #receive(name: string, part: Part, filename: string | undefined): Promise<void> {
    if (name !== "file") {
      throw badForm(`its file must be named "file" (got ${JSON.stringify(name.slice(0, 60))})`);
    }
    const sink = await this.open();
    this.#file = { filename: cleanName(filename), sink };
    sink.signal.addEventListener("abort", () => this.#fail(sink.signal.reason), { once: true });
    for await (const chunk of part) await sink.write(chunk);
    if (part.truncated) throw tooLarge(this.limits);
  }

  /**
   * Settles as `work` does, or rejects early if the form or the disk fails. It does not use `Promise.race` with one
   * promise for the whole upload: that promise would keep every awaited chunk in memory.
   */
  #orFailure<T>(work: Promise<T>): Promise<T> {
    if (this.#failure) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      this.#interrupt = reject;
      work.then(resolve, reject);
    });
  }

  /** Waits for `work`. Some of the body must arrive within `bodyMs`, and all of it at the minimum rate. */
  async #soon<T>(work: Promise<T>): Promise<T> {
    const { bodyMs, bodyBytesPerSecond } = this.limits;
    const allowedMs = bodyMs + this.#received / bodyBytesPerSecond * 1000;
    const leftMs = Math.min(bodyMs, this.#began + allowedMs - performance.now());
    const timer = setTimeout(() => this.#fail(tooSlow(this.limits)), Math.max(leftMs, 0));
    try {
      return await this.#orFailure(work);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Returns the last part of a file path, without characters that could harm a terminal or a header. */
function cleanName(filename: string | undefined): string {
  const name = (filename ?? "").toWellFormed().split(/[\\/]/).at(-1)!;
  // deno-lint-ignore no-control-regex
  return name.replace(/[\x00-\x1f\x7f-\x9f]/g, "").slice(0, 255).toWellFormed() || "upload.jsonl";
}

function wrongType(why: string): ApiError {
  return new ApiError(415, "unsupported_media_type", `Unsupported content-type: ${why}`);
}

function badForm(what: string): ApiError {
  return new ApiError(400, "invalid_form", `The form cannot be read: ${what.slice(0, 200)}`);
}

function tooSlow({ bodyMs, bodyBytesPerSecond }: UploadLimits): ApiError {
  const message = `The upload is too slow: nothing came within ${bodyMs / 1000} s, or less than ` +
    `${bodyBytesPerSecond} bytes a second over all`;
  return new ApiError(408, "body_timeout", message, { headers: { connection: "close" } });
}

/** Returns the error for a form that is too large. `announced`: bytes of the whole form. */
function tooLarge({ uploadBytes }: UploadLimits, announced?: number): ApiError {
  const got = announced === undefined ? "more" : `a form of ${announced}`;
  const message = [
    `The file must be at most ${uploadBytes} bytes (got ${got}); split it, or raise `,
    { maxUploadBytes: undefined },
  ];
  return new ApiError(413, "request_too_large", message, { param: "file", headers: { connection: "close" } });
}
