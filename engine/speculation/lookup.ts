import type { Sequence } from "../schedule/sequence.ts";
import { type Draft, type Drafter, type DraftWanted, GRADES, NO_DRAFT } from "./drafter.ts";

/** Minimum tokens of a match. */
const LEAST = 2;
/**
 * A match this long means that the text copies a source. Where the copy differs, it may return to the source.
 */
const SURE = 3;
/** The maximum number of different tokens before the copy returns, and of tokens of the source that it may skip. */
const PATIENCE = 4;
const NEAR = 3;
/** Longer matches are no better, so the search stops at this length. */
const ENOUGH = 24;
/** Positions tested for the longest match, latest first. */
const MOST_PLACES = 24;
const MIN_SLOTS = 1 << 10;
const MAX_SLOTS = 1 << 16;

/**
 * Drafts from the sequence's own prompt and answer: tokens that followed an earlier occurrence of its last
 * tokens. The longest match wins, among equals the latest. Where a copy differs from its source, the draft
 * continues at the likely point of return. A grade is the length of the match.
 */
export class LookupDrafter implements Drafter {
  readonly kind = "lookup";
  readonly free = true;
  readonly #indexes = new WeakMap<Sequence, SuffixIndex>();

  draft(wanted: readonly DraftWanted[]): Draft[] {
    return wanted.map(({ sequence, most }) => {
      let index = this.#indexes.get(sequence);
      if (!index) this.#indexes.set(sequence, index = new SuffixIndex(sequence.length));
      return index.draft(sequence.tokens, sequence.length, most);
    });
  }
}

/** A position whose previous `matched` tokens equal the end of the text. */
interface Match {
  readonly place: number;
  readonly matched: number;
}

const NOWHERE: Match = { place: 0, matched: 0 };

/**
 * Finds earlier occurrences of the end of a growing text by hash chains over pairs of tokens, as in
 * compressors.
 */
export class SuffixIndex {
  readonly #slots: Int32Array; // [power of two]: 1 + the latest position of this hash
  /** For each position, 1 + the previous one with the same hash. */
  #earlier: Int32Array;
  #indexed = 0;
  /** Source of the last draft and the text's length then: the likeliest position to continue from. */
  #last = { ...NOWHERE, length: 0 };
  /** The place in the source where the text stopped copying, and the length of the text then. */
  #left = { place: 0, length: 0 };

  /** `length`: the expected number of tokens. */
  constructor(length: number) {
    const slots = 2 ** Math.ceil(Math.log2(Math.max(1, length)));
    this.#slots = new Int32Array(Math.min(MAX_SLOTS, Math.max(MIN_SLOTS, slots)));
    this.#earlier = new Int32Array(2 * length);
  }

  /** Returns up to `most` tokens that followed the longest match of the text's end. */
  draft(tokens: Int32Array, length: number, most: number): Draft {
    this.#grow(tokens, length - 1);
    const { place, matched } = this.#source(tokens, length);
    if (place === 0 || most < 1) return NO_DRAFT;
    const draft = new Int32Array(most);
    const grades = new Uint8Array(most);
    const period = length - place;
    for (let i = 0; i < most; i++) {
      // Beyond the text's end, the draft continues with itself.
      draft[i] = i < period ? tokens[place + i] : draft[i - period];
      grades[i] = Math.min(GRADES - 1, matched + i);
    }
    return { tokens: draft, grades };
  }

  /** Indexes positions up to `end`. A position is where the tokens after a pair begin. */
  #grow(tokens: Int32Array, end: number): void {
    if (end >= this.#earlier.length) {
      const earlier = new Int32Array(2 * end);
      earlier.set(this.#earlier);
      this.#earlier = earlier;
    }
    for (let place = Math.max(LEAST, this.#indexed + 1); place <= end; place++) {
      const slot = this.#slotOf(tokens, place);
      this.#earlier[place] = this.#slots[slot];
      this.#slots[slot] = place + 1;
    }
    this.#indexed = Math.max(this.#indexed, end);
  }

  /** Returns an earlier occurrence of the text's end, or the point where a copied source may continue. */
  #source(tokens: Int32Array, length: number): Match {
    const next = this.#last.place + length - this.#last.length;
    const follows = this.#last.place > 0 && next < length;
    let found = this.#longest(tokens, length, follows ? next : 0);
    // The expected next token did not come, so the source is left here.
    if (follows && this.#last.matched >= SURE && found.place !== next) {
      this.#left = { place: next - 1, length };
    }
    if (found.matched < LEAST) found = this.#near(tokens, length);
    this.#last = { ...found, length };
    return found;
  }

  /** Returns the point where a left source may continue, after tokens were skipped, replaced or inserted. */
  #near(tokens: Int32Array, length: number): Match {
    const { place: left, length: since } = this.#left;
    if (left === 0 || length - since >= PATIENCE) return NOWHERE;
    for (let place = left + 1; place <= Math.min(left + NEAR, length - 1); place++) {
      if (tokens[place - 1] === tokens[length - 1]) return { place, matched: 1 };
    }
    return length === since ? { place: left, matched: 0 } : NOWHERE;
  }

  #longest(tokens: Int32Array, length: number, next: number): Match {
    let best = NOWHERE;
    if (length <= LEAST) return best;
    const look = (place: number) => {
      const matched = matchedBefore(tokens, place, length);
      if (matched > best.matched) best = { place, matched };
    };
    // While the last match continues, no other position is tested.
    if (next > 0) look(next);
    let place = this.#slots[this.#slotOf(tokens, length)] - 1;
    for (let i = 0; i < MOST_PLACES && place >= 0 && best.matched < ENOUGH; i++) {
      look(place);
      place = this.#earlier[place] - 1;
    }
    return best;
  }

  #slotOf(tokens: Int32Array, place: number): number {
    const hash = Math.imul(Math.imul(tokens[place - 2], 0x9e3779b1) + tokens[place - 1], 0x85ebca6b);
    return (hash ^ hash >>> 15) & this.#slots.length - 1;
  }
}

/** Returns how many tokens before `place` equal those before `end`. */
function matchedBefore(tokens: Int32Array, place: number, end: number): number {
  const most = Math.min(place, ENOUGH);
  let matched = 0;
  while (matched < most && tokens[place - 1 - matched] === tokens[end - 1 - matched]) matched++;
  return matched;
}
