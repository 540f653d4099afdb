import type { StreamDecoder } from "./tokenizer/types.ts";

/**
 * Finds stop strings in text that comes in pieces, and gives out only text that can no longer become one.
 *
 * The match that is complete first wins; of several complete at the same character, the longest. That rule does
 * not depend on how the text was cut into pieces, so streamed and unstreamed text are the same.
 *
 * Each stop string is followed by the automaton of Knuth, Morris and Pratt: constant work a character.
 */
export class StopMatcher {
  readonly #stops: readonly string[];
  readonly #fallbacks: readonly Int32Array[];
  /** Characters of each stop string that the text so far ends with. */
  readonly #matched: Int32Array; // [stops]
  #held = "";
  #found: string | undefined;
  #dropped = 0;

  /** `stops`: not empty and well-formed UTF-16 each. */
  constructor(stops: readonly string[]) {
    this.#stops = stops;
    this.#fallbacks = stops.map(fallbacks);
    this.#matched = new Int32Array(stops.length);
  }

  /** The stop string that was found; what comes after it is ignored. */
  get found(): string | undefined {
    return this.#found;
  }

  /** UTF-16 units from the stop string's first on, of all that was pushed until it was found. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Takes whole characters; gives the text that is certain now, up to a stop string. */
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

  /** No more text comes: what was held back. */
  end(): string {
    const held = this.#held;
    this.#held = "";
    return held;
  }

  /** The longest stop string that this character completes. */
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

/** For each prefix, the length of its longest proper suffix that is a prefix too. */
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

/** A sequence's tokens as text: whole characters, up to a stop string. */
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

  /** How much of the text's end is no part of the output, since a stop string was found: UTF-16 units. */
  get dropped(): number {
    return this.#matcher.dropped;
  }

  push(token: number): string {
    return this.#matcher.push(this.#decoder.push(token));
  }

  /** What is held back where text ends that stop strings look into; after it they are looked for anew. */
  cut(): string {
    const held = this.#decoder.end() + this.#matcher.end();
    this.#matcher = new StopMatcher(this.#stops);
    return held;
  }

  /** As `push`, but stop strings do not look into the token's text, nor reach across it. */
  pushUnwatched(token: number): string {
    const held = this.#matcher.end();
    if (held !== "") this.#matcher = new StopMatcher(this.#stops);
    return held + this.#decoder.push(token);
  }

  /** What was still held back; it may end with a stop string (`stopped`). */
  end(): string {
    return this.#matcher.push(this.#decoder.end()) + this.#matcher.end();
  }
}
