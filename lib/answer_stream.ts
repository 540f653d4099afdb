import { toCompyError } from "./errors.ts";

/** Computes an answer: emits its parts and returns the complete answer. */
export type AnswerSource<Part, Answer> = (
  /**
   * Aborted when the caller leaves the iteration: the source then returns the answer so far. If the caller's own signal
   * was aborted, the source throws its reason.
   */
  signal: AbortSignal,
  emit: (part: Part) => void,
) => Promise<Answer>;

/**
 * An answer while it is computed: iterate over its parts, await the complete answer with `answer()`, or both. The
 * computation starts at the first use and runs once.
 *
 * Leaving a loop early, or disposing of the stream, cancels the rest. `answer()` then returns the answer so far, with
 * the finish reason `cancelled`. The request's `signal` cancels too: then its reason is thrown.
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
  /**
   * Resolves to the complete answer, always the same one. A caller that iterates gets failures there and need not call
   * `answer`.
   */
  answer(): Promise<Answer>;
}

/** An answer whose computation starts when it is first read. */
export class LazyAnswer<Part, Answer> implements AnswerStream<Part, Answer> {
  readonly #source: AnswerSource<Part, Answer>;
  readonly #signal: AbortSignal | undefined;
  readonly #cancel: AbortController = new AbortController();
  readonly #answer: PromiseWithResolvers<Answer> = Promise.withResolvers();
  readonly #parts: Part[] = [];
  #more: PromiseWithResolvers<void> = Promise.withResolvers();
  #begun = false;
  #ended = false;

  /** `signal`: the caller's signal, which cancels the answer. */
  constructor(source: AnswerSource<Part, Answer>, signal?: AbortSignal) {
    this.#source = source;
    this.#signal = signal;
    // A caller that only iterates gets the failure in the iteration.
    this.#answer.promise.catch(() => {});
  }

  answer(): Promise<Answer> {
    this.#begin();
    return this.#answer.promise;
  }

  /** Yields all parts of the answer, including earlier ones. */
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

  /** Cancels the rest of the answer and waits until the computation has stopped. */
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
