import type { ThinkingBounds } from "../chat/types.ts";

/** Text that may precede thinking at the start of an answer. */
const BLANKS = /^[ \n\r\t]+/;

/**
 * Tracks where an answer starts and ends thinking, and when thinking must end. A mark that is one special token is
 * matched by token. A mark that is plain text may be split into tokens in several ways, so it is matched by its bytes.
 */
export class Thinking {
  readonly #begin: MarkMatcher;
  readonly #end: MarkMatcher;
  readonly #budget: number;
  readonly #anywhere: boolean;
  /** The token that begins thinking, if it is a single token with text. */
  readonly #beginToken: number | undefined;
  /** Whether a later token may begin thinking. */
  #mayBegin: boolean;
  #inside: boolean;
  #took: boolean;
  #spent = 0;

  /** `spell` returns a token's bytes; none for a token without text. */
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

  /** Whether the last token was thinking, or the end of a thinking mark. */
  get took(): boolean {
    return this.#took;
  }

  /** Returns whether a token is plain text: a begin mark does not begin thinking after the answer has begun. */
  isText(token: number): boolean {
    return token === this.#beginToken && !this.#took;
  }

  /** Total number of tokens inside thinking, without the end mark. */
  get tokens(): number {
    return this.#spent - (this.#inside ? this.#end.matched : 0);
  }

  /** Lower bound on the number of tokens before the next forced token. */
  get ahead(): number {
    return Math.max(0, this.#budget - this.#spent);
  }

  /** The token that must come next because the thinking budget is spent. */
  get due(): number | undefined {
    return this.#inside && this.#spent >= this.#budget ? this.#end.next : undefined;
  }

  /** Takes the answer's next token. */
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

  /** Returns whether thinking may still begin after this token, which is blank or part of the mark. */
  #isBefore(token: number): boolean {
    const spelled = binary(this.spell(token));
    return this.#begin.matched > 0 || BLANKS.exec(spelled)?.[0] === spelled;
  }
}

/** Finds a mark in a stream of tokens. */
interface MarkMatcher {
  /** Number of tokens of the last mark that was found. */
  readonly length: number;
  /** Number of the last tokens that may be the beginning of the mark. */
  readonly matched: number;
  /** The token that would continue the mark. */
  readonly next: number | undefined;
  /** Returns whether the token completes the mark. The search then starts anew. */
  take(token: number): boolean;
}

/** Finds a sequence of tokens in an answer. An empty one is never found. */
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
    // Marks have few tokens, so the longest matching prefix is searched anew each time.
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

/** Finds the text of a mark, in any split into tokens. The text may begin and end inside tokens. */
class TextMatcher implements MarkMatcher {
  protected readonly text: string;
  /** The last bytes that may belong to the mark's text, and the number of bytes of each token. */
  #seen = "";
  #sizes: number[] = [];
  #length = 0;
  /** Number of the last tokens that are the mark's own tokens. */
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
    if (spelled === "") [this.#seen, this.#sizes] = ["", []]; // a token without bytes never occurs inside a text
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

  /** Returns the number of tokens that cover the last `bytes` bytes. */
  #covering(bytes: number): number {
    let tokens = 0;
    for (let i = this.#sizes.length - 1; bytes > 0; i--) {
      bytes -= this.#sizes[i];
      tokens++;
    }
    return tokens;
  }
}

/**
 * Finds a begin mark at the start of the answer. Only blanks may come before the mark; later in the answer it is
 * ordinary text.
 */
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

/** Returns the bytes as characters, so that string methods can search them. */
function binary(bytes: Uint8Array): string {
  return String.fromCharCode(...bytes);
}
