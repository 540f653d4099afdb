import type { StreamDecoder } from "../tokenizer/types.ts";

/**
 * Finds stop strings in text that comes in pieces, and returns only text that can no longer become part of one.
 *
 * The match that completes first wins; of several that complete at the same character, the longest. This rule does
 * not depend on the pieces, so streamed and unstreamed text are equal.
 *
 * A Knuth-Morris-Pratt automaton follows each stop string: constant work per character.
 */
export class StopMatcher {
  readonly #stops: readonly string[];
  readonly #fallbacks: readonly Int32Array[];
  /** Number of characters of each stop string that the text so far ends with. */
  readonly #matched: Int32Array; // [stops]
  #held = "";
  #found: string | undefined;
  #dropped = 0;

  /** `stops`: well-formed UTF-16 texts, none empty. */
  constructor(stops: readonly string[]) {
    this.#stops = stops;
    this.#fallbacks = stops.map(fallbacks);
    this.#matched = new Int32Array(stops.length);
  }

  /** The stop string that was found; text after it is ignored. */
  get found(): string | undefined {
    return this.#found;
  }

  /** Number of UTF-16 units pushed from the start of the found stop string on. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Takes whole characters. Returns the text that is now certain, up to a stop string. */
  push(piece: string): string {
    if (this.#found !== undefined) return "";
    if (this.#stops.length === 0) return piece;
    const text = this.#held + piece;
    for (let i = this.#held.length; i < text.length; i++) {
      const found = this.#advance(text.charCodeAt(i));
      if (found === undefined) continue;
      const end = i + 1 - found.length;
      this.#found = found;
      this.#held = "";
      this.#dropped = text.length - end;
      return text.slice(0, end);
    }
    const certain = text.length - Math.max(...this.#matched);
    this.#held = text.slice(certain);
    return text.slice(0, certain);
  }

  /** Ends the text. Returns the text that was held back. */
  end(): string {
    const held = this.#held;
    this.#held = "";
    return held;
  }

  /** Returns the longest stop string that this character completes. */
  #advance(unit: number): string | undefined {
    let longest: string | undefined;
    for (let s = 0; s < this.#stops.length; s++) {
      const stop = this.#stops[s];
      let matched = this.#matched[s];
      while (matched > 0 && stop.charCodeAt(matched) !== unit) matched = this.#fallbacks[s][matched - 1];
      if (stop.charCodeAt(matched) === unit) matched++;
      if (matched === stop.length && matched > (longest?.length ?? 0)) longest = stop;
      this.#matched[s] = matched;
    }
    return longest;
  }
}

/** Returns, for each prefix, the length of its longest proper suffix that is also a prefix. */
function fallbacks(stop: string): Int32Array {
  const table = new Int32Array(stop.length);
  let length = 0;
  for (let i = 1; i < stop.length; i++) {
    while (length > 0 && stop.charCodeAt(i) !== stop.charCodeAt(length)) length = table[length - 1];
    if (stop.charCodeAt(i) === stop.charCodeAt(length)) length++;
    table[i] = length;
  }
  return table;
}

/** Decodes a sequence's tokens into text: whole characters, up to a stop string. */
export class OutputText {
  readonly #decoder: StreamDecoder;
  readonly #stops: readonly string[];
  #matcher: StopMatcher;

  constructor(decoder: StreamDecoder, stops: readonly string[]) {
    this.#decoder = decoder;
    this.#stops = stops;
    this.#matcher = new StopMatcher(stops);
  }

  /** The stop string that ended the text. */
  get stop(): string | undefined {
    return this.#matcher.found;
  }

  get stopped(): boolean {
    return this.stop !== undefined;
  }

  /** Number of UTF-16 units at the end of the text that are not output, because a stop string was found. */
  get dropped(): number {
    return this.#matcher.dropped;
  }

  push(token: number): string {
    return this.#matcher.push(this.#decoder.push(token));
  }

  /**
   * Ends a stretch of text that is searched for stop strings. Returns the text held back; the search starts anew
   * after it.
   */
  cut(): string {
    const held = this.#decoder.end() + this.#matcher.end();
    this.#matcher = new StopMatcher(this.#stops);
    return held;
  }

  /** Returns text as `push` does, but stop strings neither match in this token's text nor across it. */
  pushUnwatched(token: number): string {
    const held = this.#matcher.end();
    if (held !== "") this.#matcher = new StopMatcher(this.#stops);
    return held + this.#decoder.push(token);
  }

  /** Returns the text that was still held back. It may complete a stop string (`stopped`). */
  end(): string {
    return this.#matcher.push(this.#decoder.end()) + this.#matcher.end();
  }
}
