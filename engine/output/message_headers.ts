import type { MessageHeaders } from "../chat/types.ts";

const BLANK = 0x20;

/** Follows an answer that consists of messages, and tells which of its tokens belong to message headers. */
export class HeaderTracker {
  readonly #begin: ReadonlySet<number>;
  readonly #end: number;
  #inside: boolean;
  #isFirst = true;

  /** Tracks headers from the answer's start. `spell` returns a token's bytes; none for a token without text. */
  constructor({ open, begin, end }: MessageHeaders, private readonly spell: (token: number) => Uint8Array) {
    this.#begin = new Set(begin);
    this.#end = end;
    this.#inside = open;
  }

  /** Whether the last token belongs to a message header. */
  get inside(): boolean {
    return this.#inside;
  }

  take(token: number): void {
    if (this.#begin.has(token)) this.#inside = true;
    else if (token === this.#end || this.#isFirst && !this.#isHeader(token)) this.#inside = false;
    this.#isFirst = false;
  }

  /**
   * Returns whether the token belongs to a header. An answer that begins with text has no header. In a header, a tool's
   * name begins with a blank.
   */
  #isHeader(token: number): boolean {
    const [first = BLANK] = this.spell(token);
    return first === BLANK;
  }
}
