import type { Grammar, Matcher } from "../grammar/types.ts";
import { HeaderTracker } from "./message_headers.ts";
import { Thinking } from "./thinking.ts";
import type { ThinkingBounds } from "../chat/types.ts";

/**
 * Applies a request's constraint and thinking bounds to its answer, and separates content from thinking and message
 * headers.
 */
export class AnswerForm {
  readonly thinking: Thinking | undefined;
  readonly #headers: HeaderTracker | undefined;
  readonly #grammar: Grammar | undefined;
  readonly #matcher: Matcher | undefined;
  /** Settles when the running mask computation ends. The matcher must not be used or closed before. */
  #computing: Promise<unknown> | undefined;
  /** Forced tokens that the answer has not taken yet. */
  #run: readonly number[] = [];
  #closed = false;

  /**
   * Creates the form of one answer. `spell` returns a token's bytes, to recognize thinking marks that are plain text.
   */
  constructor(
    grammar: Grammar | undefined,
    thinking: ThinkingBounds | undefined,
    spell: (token: number) => Uint8Array,
  ) {
    this.#grammar = grammar;
    this.#matcher = grammar?.matcher();
    this.thinking = thinking && new Thinking(thinking, spell);
    this.#headers = thinking?.headers && new HeaderTracker(thinking.headers, spell);
  }

  get constrained(): boolean {
    return this.#matcher !== undefined;
  }

  /** Whether stop texts apply to the last token's text. Stop texts do not apply inside thinking or message headers. */
  get watched(): boolean {
    return !this.thinking?.took && !this.#headers?.inside;
  }

  /** Whether the answer is complete, so that only an end token may follow. */
  get complete(): boolean {
    return this.#matcher?.complete ?? false;
  }

  /** The exceeded limit that makes it impossible to complete the answer; undefined while completion is possible. */
  get failure(): string | undefined {
    return this.#matcher?.failure;
  }

  /** Returns whether `tokens`, from the answer's first token, form a complete answer. */
  isWhole(tokens: Iterable<number>): boolean {
    const matcher = this.#grammar?.matcher();
    if (!matcher) return true;
    try {
      for (const token of tokens) if (!matcher.consume(token)) return false;
      return matcher.mayEnd;
    } finally {
      matcher.close();
    }
  }

  /** Lower bound on the number of tokens before the next token that the model does not choose freely. */
  get ahead(): number {
    return this.#matcher ? 0 : this.thinking?.ahead ?? Infinity;
  }

  /** Takes the answer's next token. Returns false and changes nothing if the constraint refuses it. */
  take(token: number): boolean {
    if (this.#matcher && !this.#matcher.consume(token)) return false;
    this.#run = this.#run[0] === token ? this.#run.slice(1) : [];
    this.thinking?.take(token);
    this.#headers?.take(token);
    return true;
  }

  /**
   * Takes the next forced token and returns it; returns undefined if the model has a choice. When the thinking budget
   * is spent, the end of thinking is forced as soon as the constraint accepts it.
   */
  takeForced(): number | undefined {
    const due = this.thinking?.due;
    if (due !== undefined && this.take(due)) return due;
    if (this.#run.length === 0) this.#run = this.#matcher?.forced() ?? [];
    const [forced] = this.#run;
    return forced !== undefined && this.take(forced) ? forced : undefined;
  }

  /** Gives `compute` exclusive use of the matcher, to compute a mask, until its promise settles. */
  lend(compute: (matcher: Matcher) => Promise<unknown>): void {
    const done = () => {
      this.#computing = undefined;
      if (this.#closed) this.#matcher!.close();
    };
    this.#computing = compute(this.#matcher!).then(done, done);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    if (!this.#computing) this.#matcher?.close();
  }
}
