import type { ThinkingBounds } from "./types.ts";

/** Follows an answer into its thinking and out of it, by tokens, and says when it has to end. */
export class Thinking {
  readonly #begin: TokenMatcher;
  readonly #end: TokenMatcher;
  readonly #budget: number;
  #inside: boolean;
  #took: boolean;
  #spent = 0;

  constructor({ open, begin, end, budget }: ThinkingBounds) {
    this.#inside = open;
    this.#took = open;
    this.#begin = new TokenMatcher(begin);
    this.#end = new TokenMatcher(end);
    this.#budget = budget;
  }

  /** Whether the last token was thinking, or the end of one of its marks. */
  get took(): boolean {
    return this.#took;
  }

  /** Tokens inside, all told, without those that end it. */
  get tokens(): number {
    return this.#spent - (this.#inside ? this.#end.matched : 0);
  }

  /** How many tokens may come before one is due, at least. */
  get ahead(): number {
    return Math.max(0, this.#budget - this.#spent);
  }

  /** The token that must come now, since the budget is spent. */
  get due(): number | undefined {
    return this.#inside && this.#spent >= this.#budget ? this.#end.next : undefined;
  }

  /** The answer's next token. */
  take(token: number): void {
    if (!this.#inside) {
      this.#inside = this.#begin.take(token);
      this.#took = this.#inside;
      return;
    }
    this.#spent++;
    if (!this.#end.take(token)) return;
    this.#spent -= this.#end.length;
    this.#inside = false;
  }
}

/** Finds a run of tokens among those that come, as StopMatcher finds texts. Finds nothing where the run is empty. */
class TokenMatcher {
  /** How many of its tokens the last ones are. */
  #matched = 0;

  constructor(private readonly run: readonly number[]) {}

  get length(): number {
    return this.run.length;
  }

  get matched(): number {
    return this.#matched;
  }

  /** The token that would go on with the run. */
  get next(): number | undefined {
    return this.run[this.#matched];
  }

  /** Whether the token completes the run; begins anew then. */
  take(token: number): boolean {
    const { run } = this;
    if (run.length === 0) return false;
    // Runs are a few tokens: the longest prefix that the text ends with is looked for afresh.
    const seen = [...run.slice(0, this.#matched), token];
    let length = seen.length;
    while (length > 0 && !run.slice(0, length).every((t, i) => t === seen[seen.length - length + i])) {
      length--;
    }
    const complete = length === run.length;
    this.#matched = complete ? 0 : length;
    return complete;
  }
}
