// @ts-check
/// <reference lib="dom" />
import { readEvents } from "./sse.js";

/**
 * Why a request failed:
 * - network: no answer came; cut: an answer ended early;
 * - key: the key is missing or wrong; wait: the server says when to retry (`retrySeconds`);
 * - refused: the request is wrong; failed: the server failed; stream: it failed in the middle of an answer.
 * @typedef {"network" | "cut" | "key" | "wait" | "refused" | "failed" | "stream"} FailureKind
 * @typedef {{ status?: number, code?: string | null, param?: string | null, retrySeconds?: number }} FailureDetails
 */

export class Failure extends Error {
  /** @override */
  name = "Failure";

  /**
   * @param {FailureKind} kind
   * @param {string} message
   * @param {FailureDetails} [details]
   */
  constructor(kind, message, details = {}) {
    super(message);
    this.kind = kind;
    this.status = details.status;
    this.code = details.code ?? undefined;
    this.param = details.param ?? undefined;
    this.retrySeconds = details.retrySeconds;
  }
}

/**
 * Returns the failure that an answer's status and body describe.
 * @param {number} status
 * @param {unknown} body as JSON.parse gave it
 * @param {string | null} retryAfter seconds, as the header has them
 */
export function failureOf(status, body, retryAfter) {
  const error = /** @type {{ error?: { message?: string, code?: string, param?: string } }} */ (body)?.error;
  const message = error?.message ?? `The server answered with status ${status}`;
  const seconds = retryAfter === null ? NaN : Number(retryAfter);
  const retrySeconds = Number.isFinite(seconds) ? Math.max(seconds, 1) : status === 429 ? 2 : undefined;
  const wait = (status === 429 || status === 503) && retrySeconds !== undefined;
  const kind = status === 401 ? "key" : wait ? "wait" : status < 500 ? "refused" : "failed";
  return new Failure(kind, message, { status, code: error?.code, param: error?.param, retrySeconds });
}

/**
 * Returns advice for a failure, as one sentence.
 * @param {Failure} failure
 * @param {number} [again] seconds after which the page tries again by itself
 * @returns {string}
 */
export function adviceFor({ kind, code }, again) {
  switch (kind) {
    case "network":
      return "The server does not answer. Look whether it runs and whether this machine reaches it, then try again.";
    case "cut":
      return "The connection was lost before the answer was complete. What came is kept: continue it, or try again.";
    case "key":
      return "Enter a key that this server takes.";
    case "wait":
      if (again !== undefined) return `Sent again in ${again} s; Stop gives up.`;
      return code === "queue_full" ? "The server stays busy. Try again later." : "Try again in a while.";
    case "stream":
      if (code === "shutting_down") return "Continue the answer, or try again, when the server is back.";
      return "The server failed in the midst of the answer. What came is kept: continue it, or try again.";
    case "failed":
      if (code && ADVICE[code]) return ADVICE[code];
      return "The server's log says why. Try again, or ask who runs the server.";
    case "refused":
      return ADVICE[code ?? ""] ?? "Change what is named here and try again.";
  }
}

/** @type {Record<string, string>} */
const ADVICE = {
  context_length_exceeded:
    "The conversation is longer than the model's context. Edit an earlier message, or begin a new one.",
  model_not_found: "Choose another model above.",
  model_load_failed: "Choose another model above, or ask who runs the server to look at its file.",
  host_not_allowed: "Open this page by a name that the server takes.",
  cross_site_request: "Start the server with --allow-host and the name in this page's address.",
  invalid_constraint: "Change the response format or the tools in the settings.",
  unsupported_content:
    "Choose another model above, or edit the message and remove its images. A model reads images if its vision tower (an mmproj file) is in its folder.",
  invalid_image: "Edit the message and attach another image, such as a smaller one.",
  request_too_large: "Edit a message and remove images from it, or begin a new conversation.",
  too_many_images: "Edit a message and remove images from it, or begin a new conversation.",
  image_gone: "Edit the message and attach the image again, or remove it.",
  chat_template_error:
    "The model's template does not take this conversation. Edit it, or leave the system prompt out.",
  constraint_failed: "The model could not complete an answer in this form. Try again, or allow more tokens.",
};

/** The server's API as the page uses it. All paths are relative to the page, so it works under any path prefix. */
export class Api {
  /** @type {string} */
  key = "";

  /** @param {string} base the page's address */
  constructor(base) {
    this.base = new URL(".", base);
  }

  /**
   * Returns a successful answer. Throws Failure, or the reason of an abort.
   * @param {string} path
   * @param {RequestInit} [init]
   * @returns {Promise<Response>}
   */
  async send(path, init = {}) {
    const headers = new Headers(init.headers);
    if (this.key !== "") headers.set("authorization", `Bearer ${this.key}`);
    const response = await fetch(new URL(path, this.base), { ...init, headers }).catch((error) => {
      init.signal?.throwIfAborted();
      throw new Failure("network", `No answer from ${this.base.host}`, { code: String(error) });
    });
    if (response.ok) return response;
    const body = await response.json().catch(() => undefined);
    throw failureOf(response.status, body, response.headers.get("retry-after"));
  }

  /**
   * @param {string} path
   * @param {RequestInit} [init]
   * @returns {Promise<any>} the JSON of the answer
   */
  async json(path, init) {
    const response = await this.send(path, init);
    return await response.json().catch(() => {
      throw new Failure("cut", "The answer ended before it was complete");
    });
  }

  /**
   * @param {string} path
   * @param {unknown} body
   * @param {AbortSignal} [signal]
   * @returns {Promise<any>}
   */
  post(path, body, signal) {
    return this.json(path, { ...jsonBody(body), signal });
  }

  /**
   * Yields the objects of a stream up to `[DONE]`. Throws Failure for an error event and for a stream that
   * ends early.
   * @param {string} path
   * @param {{ body?: unknown, signal: AbortSignal }} options with a body it is a POST
   * @returns {AsyncGenerator<any>}
   */
  async *stream(path, { body, signal }) {
    const response = await this.send(path, { ...(body === undefined ? {} : jsonBody(body)), signal });
    const cut = () => new Failure("cut", "The connection was lost in the midst of the answer");
    if (!response.body) throw cut();
    try {
      for await (const { data } of readEvents(response.body)) {
        if (data === "[DONE]") return;
        const value = JSON.parse(data);
        if (value?.error) throw new Failure("stream", value.error.message, value.error);
        yield value;
      }
    } catch (error) {
      signal.throwIfAborted();
      throw error instanceof Failure ? error : cut();
    }
    throw cut();
  }

  /**
   * Uploads a file and reports the uploaded share (0 to 1).
   * @param {string} path
   * @param {FormData} form
   * @param {{ signal: AbortSignal, onProgress: (share: number) => void }} options
   * @returns {Promise<any>}
   */
  upload(path, form, { signal, onProgress }) {
    // fetch() does not report upload progress.
    const request = new XMLHttpRequest();
    request.open("POST", new URL(path, this.base));
    if (this.key !== "") request.setRequestHeader("authorization", `Bearer ${this.key}`);
    request.upload.addEventListener("progress", ({ loaded, total }) => onProgress(loaded / total));
    const answered = new Promise((resolve, reject) => {
      request.addEventListener("load", () => {
        const body = parsed(request.responseText);
        if (request.status < 300 && body !== undefined) resolve(body);
        else reject(failureOf(request.status, body, request.getResponseHeader("retry-after")));
      });
      request.addEventListener("error", () => {
        reject(new Failure("network", `No answer from ${this.base.host} while the file was sent`));
      });
      request.addEventListener("abort", () => reject(signal.reason));
    });
    signal.addEventListener("abort", () => request.abort());
    request.send(form);
    return answered;
  }
}

/** @param {unknown} body */
function jsonBody(body) {
  const headers = { "content-type": "application/json" };
  return { method: "POST", headers, body: JSON.stringify(body) };
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
