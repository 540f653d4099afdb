import type { Grammar, Matcher } from "./grammar/types.ts";
import { Heads } from "./message_heads.ts";
import { Thinking } from "./thinking.ts";
import type { ThinkingBounds } from "./types.ts";

/** What an answer is bound to: the form that its constraint gives it, and the length of its thinking. It knows what is no content. */
export class AnswerForm {
  readonly thinking: Thinking | undefined;
  readonly #heads: Heads | undefined;
  readonly #grammar: Grammar | undefined;
  readonly #matcher: Matcher | undefined;
  /** The matcher computes a mask: nobody else may use it, not even to close it. */
  #computing: Promise<unknown> | undefined;
  /** Tokens that must come next, not yet taken. */
  #run: readonly number[] = [];
  #closed = false;

  /** `spell`: a token's bytes, for marks of thinking that are text. */
  constructor(
    grammar: Grammar | undefined,
    thinking: ThinkingBounds | undefined,
    spell: (token: number) => Uint8Array,
  ) {
    this.#grammar = grammar;
    this.#matcher = grammar?.matcher();
    this.thinking = thinking && new Thinking(thinking, spell);
    this.#heads = thinking?.heads && new Heads(thinking.heads, spell);
  }

  get constrained(): boolean {
    return this.#matcher !== undefined;
  }

  /** Whether stop texts look into the text of the last token: not in thinking, and not in heads of messages. */
  get watched(): boolean {
    return !this.thinking?.took && !this.#heads?.inside;
  }

  /** Whether the answer is whole and nothing but its end may follow. */
  get complete(): boolean {
    return this.#matcher?.complete ?? false;
  }

  /** Which limit the answer has met, where it can no longer be completed for that. */
  get failure(): string | undefined {
    return this.#matcher?.failure;
  }

  /** Whether these tokens, from the answer's first on, are a whole answer. */
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

  /** Tokens that may come before one is due that thinking did not choose, at least. */
  get ahead(): number {
    return this.#matcher ? 0 : this.thinking?.ahead ?? Infinity;
  }

  /** The answer's next token; false, and nothing is changed, where its constraint refuses it. */
  take(token: number): boolean {
    if (this.#matcher && !this.#matcher.consume(token)) return false;
    this.#run = this.#run[0] === token ? this.#run.slice(1) : [];
    this.thinking?.take(token);
    this.#heads?.take(token);
    return true;
  }

  /**
   * Takes a token that must come next, and gives it; undefined where there is a choice. The end of a thinking whose budget is
   * spent comes as soon as the constraint takes it: not inside a character, for one.
   */
  takeForced(): number | undefined {
    const due = this.thinking?.due;
    if (due !== undefined && this.take(due)) return due;
    if (this.#run.length === 0) this.#run = this.#matcher?.forced() ?? [];
    const [forced] = this.#run;
    return forced !== undefined && this.take(forced) ? forced : undefined;
  }

  /** Lends the matcher to who computes its mask, until the promise settles. */
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
