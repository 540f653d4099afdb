import { toCompyError } from "./errors.ts";

/** What makes an answer: gives its parts as they come, and at last the whole. */
export type AnswerSource<Part, Answer> = (
  /** Aborted when nobody wants the rest: the source then gives what there is. Where the caller's own is, it throws that reason. */
  signal: AbortSignal,
  emit: (part: Part) => void,
) => Promise<Answer>;

/**
 * An answer as it comes: iterate over its parts, await all of it with `answer()`, or both. Nothing is computed before one of these is
 * called, and all of it once.
 *
 * Leaving a loop early, or disposing of it, cancels what is left; `answer()` then has what came so far, with the finish reason
 * `cancelled`. The `signal` of the request cancels too, and is thrown with its reason.
 *
 * ```ts
 * import { loadModel } from "compy";
 *
 * await using model = await loadModel();
 * const chat = model.chat("Who are you?", { temperature: 0 });
 * let said = "";
 * for await (const { text = "" } of chat) said += text; // as it comes
 * const { text, usage } = await chat.answer(); // and whole
 * console.log(said === text, usage.completionTokens);
 * ```
 */
export interface AnswerStream<Part, Answer> extends AsyncIterable<Part>, AsyncDisposable {
  /** The whole answer, once it is complete; the same each time. Who reads the parts hears of a failure there, and need not call this. */
  answer(): Promise<Answer>;
}

/** An answer whose source is asked for when somebody wants it. */
export class LazyAnswer<Part, Answer> implements AnswerStream<Part, Answer> {
  readonly #source: AnswerSource<Part, Answer>;
  readonly #signal: AbortSignal | undefined;
  readonly #cancel: AbortController = new AbortController();
  readonly #answer: PromiseWithResolvers<Answer> = Promise.withResolvers();
  readonly #parts: Part[] = [];
  #more: PromiseWithResolvers<void> = Promise.withResolvers();
  #begun = false;
  #ended = false;

  /** `signal` is the caller's. */
  constructor(source: AnswerSource<Part, Answer>, signal?: AbortSignal) {
    this.#source = source;
    this.#signal = signal;
    // Who only iterates hears of a failure there.
    this.#answer.promise.catch(() => {});
  }

  answer(): Promise<Answer> {
    this.#begin();
    return this.#answer.promise;
  }

  /** The parts from the first one on, however many of them came before. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Part, void, void> {
    this.#begin();
    let complete = false;
    try {
      for (let next = 0;;) {
        if (next < this.#parts.length) yield this.#parts[next++];
        else if (this.#ended) break;
        else await this.#more.promise;
      }
      complete = true;
      await this.#answer.promise;
    } finally {
      if (!complete) this.#cancel.abort();
    }
  }

  /** Cancels what is left and waits until nothing runs any more. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#cancel.abort();
    if (this.#begun) await this.#answer.promise.catch(() => {});
  }

  #begin(): void {
    if (this.#begun) return;
    this.#begun = true;
    this.#run().then(this.#answer.resolve, this.#answer.reject);
  }

  async #run(): Promise<Answer> {
    const abort = () => this.#cancel.abort();
    this.#signal?.addEventListener("abort", abort, { once: true });
    try {
      this.#signal?.throwIfAborted();
      return await this.#source(this.#cancel.signal, (part) => {
        this.#parts.push(part);
        this.#wake();
      });
    } catch (error) {
      this.#signal?.throwIfAborted();
      throw toCompyError(error);
    } finally {
      this.#signal?.removeEventListener("abort", abort);
      this.#ended = true;
      this.#wake();
    }
  }

  #wake(): void {
    this.#more.resolve();
    this.#more = Promise.withResolvers();
  }
}
