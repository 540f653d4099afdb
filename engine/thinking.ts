import type { ThinkingBounds } from "./types.ts";

/** What may come before thinking that comes first. */
const BLANKS = /^[ \n\r\t]+/;

/**
 * Follows an answer into its thinking and out of it, and says when it has to end. Marks that are tokens of their own are found by
 * these; marks that are text in the vocabulary can be written in other tokens than the tokenizer's, and are found by their bytes.
 */
export class Thinking {
  readonly #begin: MarkMatcher;
  readonly #end: MarkMatcher;
  readonly #budget: number;
  readonly #anywhere: boolean;
  /** The mark that begins it, where that is a token with a text. */
  readonly #beginToken: number | undefined;
  /** Whether it may begin with a later token. */
  #mayBegin: boolean;
  #inside: boolean;
  #took: boolean;
  #spent = 0;

  /** `spell`: a token's bytes; none where it is no text. */
  constructor(
    { open, anywhere, begin, end, budget }: ThinkingBounds,
    private readonly spell: (token: number) => Uint8Array,
  ) {
    this.#anywhere = anywhere;
    this.#mayBegin = anywhere || !open;
    this.#inside = open;
    this.#took = open;
    this.#beginToken = begin.length === 1 && spell(begin[0]).length > 0 ? begin[0] : undefined;
    const isText = (run: readonly number[]) =>
      run.length > 1 && run.every((token) => spell(token).length > 0);
    this.#begin = isText(begin) ? new FirstText(begin, spell) : new TokenMatcher(begin);
    this.#end = isText(end) ? new TextMatcher(end, spell) : new TokenMatcher(end);
    this.#budget = budget;
  }

  /** Whether the last token was thinking, or the end of one of its marks. */
  get took(): boolean {
    return this.#took;
  }

  /** Whether the last token is text like any other, though elsewhere it begins thinking: that comes first, or not at all. */
  isText(token: number): boolean {
    return token === this.#beginToken && !this.#took;
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
      this.#took = this.#inside = this.#mayBegin && this.#begin.take(token);
      if (!this.#anywhere) this.#mayBegin &&= !this.#inside && this.#isBefore(token);
      return;
    }
    this.#spent++;
    if (!this.#end.take(token)) return;
    this.#spent -= this.#end.length;
    this.#inside = false;
  }

  /** Whether thinking may still come first after this token: it is blank, or of the mark. */
  #isBefore(token: number): boolean {
    const spelled = binary(this.spell(token));
    return this.#begin.matched > 0 || BLANKS.exec(spelled)?.[0] === spelled;
  }
}

/** Finds a mark among the tokens that come. */
interface MarkMatcher {
  /** How many tokens the mark had that was found last. */
  readonly length: number;
  /** How many of the last tokens the mark may have begun with. */
  readonly matched: number;
  /** The token that would go on with the mark. */
  readonly next: number | undefined;
  /** Whether the token completes the mark; begins anew then. */
  take(token: number): boolean;
}

/** Finds a run of tokens, as StopMatcher finds texts. Finds nothing where the run is empty. */
class TokenMatcher implements MarkMatcher {
  #matched = 0;

  constructor(private readonly run: readonly number[]) {}

  get length(): number {
    return this.run.length;
  }

  get matched(): number {
    return this.#matched;
  }

  get next(): number | undefined {
    return this.run[this.#matched];
  }

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

/** Finds the text of a run of tokens, in whichever tokens it is written, from a token's midst to another's. */
class TextMatcher implements MarkMatcher {
  protected readonly text: string;
  /** The last bytes, as many as may belong to the text, and how many of them each token has. */
  #seen = "";
  #sizes: number[] = [];
  #length = 0;
  /** How many of the run's own tokens the last ones are. */
  #forced = 0;

  constructor(
    private readonly run: readonly number[],
    protected readonly spell: (token: number) => Uint8Array,
  ) {
    this.text = run.map((token) => binary(spell(token))).join("");
  }

  get length(): number {
    return this.#length;
  }

  get matched(): number {
    let bytes = Math.min(this.#seen.length, this.text.length - 1);
    while (bytes > 0 && !this.text.startsWith(this.#seen.slice(-bytes))) bytes--;
    return this.#covering(bytes);
  }

  get next(): number | undefined {
    return this.run[this.#forced];
  }

  take(token: number): boolean {
    this.#forced = token === this.run[this.#forced] ? this.#forced + 1 : 0;
    const spelled = binary(this.spell(token));
    if (spelled === "") [this.#seen, this.#sizes] = ["", []]; // no text has this in its midst
    this.#seen += spelled;
    this.#sizes.push(spelled.length);
    const at = this.#seen.indexOf(this.text);
    if (at >= 0) {
      this.#length = this.#covering(this.#seen.length - at);
      [this.#seen, this.#sizes, this.#forced] = ["", [], 0];
      return true;
    }
    if (this.#forced === this.run.length) this.#forced = 0;
    while (this.#seen.length - this.#sizes[0] >= this.text.length) {
      this.#seen = this.#seen.slice(this.#sizes.shift());
    }
    return false;
  }

  /** Of how many tokens the last bytes are. */
  #covering(bytes: number): number {
    let tokens = 0;
    for (let i = this.#sizes.length - 1; bytes > 0; i--) {
      bytes -= this.#sizes[i];
      tokens++;
    }
    return tokens;
  }
}

/** Finds a text that nothing but blanks comes before: thinking that is marked by text comes first, or not at all. */
class FirstText extends TextMatcher {
  #answer = "";
  #passed = false;

  override take(token: number): boolean {
    if (this.#passed) return false;
    this.#answer = (this.#answer + binary(this.spell(token))).replace(BLANKS, "");
    this.#passed = !this.text.startsWith(this.#answer);
    return super.take(token) && this.#answer.startsWith(this.text);
  }
}

/** Bytes as characters, so that texts' methods serve. */
function binary(bytes: Uint8Array): string {
  return String.fromCharCode(...bytes);
}
