import type { StreamDecoder } from "../tokenizer/types.ts";

/**
 * Finds stop strings in text that comes in pieces, and returns only text that can no longer become part of one.
 *
 * The match that completes first wins; of several that complete at the same character, the longest. This rule does
 * not depend on the pieces, so streamed and unstreamed text are equal.
 */
export class StopMatcher {
  readonly #automaton: Automaton;
  /** The longest beginning of a stop text with which the text so far ends. */
  #node = ROOT;
  #held = "";
  #found: string | undefined;
  #dropped = 0;

  /** `stops`: well-formed UTF-16 texts, none empty. */
  constructor(stops: readonly string[]) {
    this.#automaton = automatonOf(stops);
  }

  /** The stop text that was found; text after it is ignored. */
  get found(): string | undefined {
    return this.#found;
  }

  /** Number of UTF-16 units pushed since the start of the found stop text. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Takes whole characters. Returns the text that is now final, up to a stop text. */
  push(piece: string): string {
    if (this.#found !== undefined) return "";
    const text = this.#held + piece;
    for (let i = this.#held.length; i < text.length; i++) {
      this.#node = this.#automaton.next(this.#node, text.charCodeAt(i));
      const length = this.#automaton.completed(this.#node);
      if (length === 0) continue;
      const begin = i + 1 - length;
      this.#found = text.slice(begin, i + 1);
      this.#held = "";
      this.#dropped = text.length - begin;
      return text.slice(0, begin);
    }
    const certain = text.length - this.#automaton.depth(this.#node);
    this.#held = text.slice(certain);
    return text.slice(0, certain);
  }

  /** Ends the text. Returns the part that was held back. */
  end(): string {
    const held = this.#held;
    this.#held = "";
    return held;
  }
}

/** Automata by the list of stop texts. All answers to a request share one. */
const automatons = new WeakMap<readonly string[], Automaton>();

function automatonOf(stops: readonly string[]): Automaton {
  const known = automatons.get(stops);
  if (known) return known;
  const made = new Automaton(stops);
  automatons.set(stops, made);
  return made;
}

const ROOT = 0;
const UNITS = 2 ** 16;

/**
 * The automaton of Aho and Corasick for a list of texts. The average work per character does not depend on the number
 * of texts.
 */
class Automaton {
  /** Edges of the automaton: at `node * UNITS + unit` the node of the text that is one unit longer. */
  readonly #edges = new Map<number, number>();
  /** Length of the text of each node. */
  readonly #depths = [0];
  /** The node of the longest proper suffix of each node's text. */
  readonly #suffixes = [ROOT];
  /** Length of the longest given text with which each node's text ends; 0 for none. */
  readonly #completed = [0];

  constructor(texts: readonly string[]) {
    /** Each text, and the node to which its first `depth` units lead. */
    let open = texts.map((text) => ({ text, node: ROOT }));
    for (let depth = 0; open.length > 0; depth++) {
      for (const one of open) {
        one.node = this.#child(one.node, one.text.charCodeAt(depth));
        if (one.text.length === depth + 1) this.#completed[one.node] = depth + 1;
      }
      open = open.filter(({ text }) => text.length > depth + 1);
    }
  }

  /** Returns the node of the longest text with which `node` plus the unit ends. */
  next(node: number, unit: number): number {
    for (let from = node;; from = this.#suffixes[from]) {
      const to = this.#edges.get(from * UNITS + unit);
      if (to !== undefined) return to;
      if (from === ROOT) return ROOT;
    }
  }

  depth(node: number): number {
    return this.#depths[node];
  }

  completed(node: number): number {
    return this.#completed[node];
  }

  /** Returns the node for `node` plus the unit. Shorter texts must have their nodes already. */
  #child(node: number, unit: number): number {
    const key = node * UNITS + unit;
    const known = this.#edges.get(key);
    if (known !== undefined) return known;
    const suffix = node === ROOT ? ROOT : this.next(this.#suffixes[node], unit);
    const made = this.#depths.length;
    this.#edges.set(key, made);
    this.#depths.push(this.#depths[node] + 1);
    this.#suffixes.push(suffix);
    this.#completed.push(this.#completed[suffix]);
    return made;
  }
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

  /**
   * Number of UTF-16 units at the end of the text that are not output, because they follow the start of a stop text.
   */
  get dropped(): number {
    return this.#matcher.dropped;
  }

  push(token: number): string {
    return this.#matcher.push(this.#decoder.push(token));
  }

  /** Ends a section that is searched for stop texts. Returns the text held back; the search starts again after it. */
  cut(): string {
    const held = this.#decoder.end() + this.#matcher.end();
    this.#matcher = new StopMatcher(this.#stops);
    return held;
  }

  /** Returns text as `push` does, but stop texts match neither in this token's text nor across it. */
  pushUnwatched(token: number): string {
    const held = this.#matcher.end();
    if (held !== "") this.#matcher = new StopMatcher(this.#stops);
    return held + this.#decoder.push(token);
  }

  /** Ends the text. Returns the part that was held back, which may complete a stop text (`stopped`). */
  end(): string {
    return this.#matcher.push(this.#decoder.end()) + this.#matcher.end();
  }
}
