import type { Sequence } from "../sequence.ts";
import { type Draft, type Drafter, type DraftWanted, GRADES, NO_DRAFT } from "./drafter.ts";

/** Tokens that a match has at least. */
const LEAST = 2;
/** A match of so many is a source that is being copied; where it ends, the text may return to it. */
const SURE = 3;
/** How soon it does so, in tokens of the text, and how many of the source's may be left out. */
const PATIENCE = 4;
const NEAR = 3;
/** Beyond so many a longer match is no better. */
const ENOUGH = 24;
/** Places that are looked at for the longest match, latest first. */
const MOST_PLACES = 24;
const MIN_SLOTS = 1 << 10;
const MAX_SLOTS = 1 << 16;

/**
 * Drafts from the sequence's own text, prompt and answer: where its last tokens have come before, what followed them then may
 * follow them now. The longest such place counts, of equals the latest. Where a copy differs from what it is taken from, the place that
 * it may go on from. A grade is how many tokens match.
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

/** A place, and how many tokens before it are those at the text's end. */
interface Match {
  readonly place: number;
  readonly matched: number;
}

const NOWHERE: Match = { place: 0, matched: 0 };

/** Finds where the end of a text that only grows has come before: hash chains over pairs of tokens, as compressors have them. */
export class SuffixIndex {
  readonly #slots: Int32Array; // [power of two]: 1 + the latest place whose pair has this hash
  /** Of each place the one before it with the same hash, counted from 1. */
  #earlier: Int32Array;
  #indexed = 0;
  /** Where the last draft was taken from, and how long the text was: the likeliest place to go on from. */
  #last = { ...NOWHERE, length: 0 };
  /** Where the text left what it had been copying, and how long it was then. */
  #left = { place: 0, length: 0 };

  /** `length`: tokens that there will soon be. */
  constructor(length: number) {
    const slots = 2 ** Math.ceil(Math.log2(Math.max(1, length)));
    this.#slots = new Int32Array(Math.min(MAX_SLOTS, Math.max(MIN_SLOTS, slots)));
    this.#earlier = new Int32Array(2 * length);
  }

  /** What followed the longest place that ends as the text does, `most` tokens at most. */
  draft(tokens: Int32Array, length: number, most: number): Draft {
    this.#grow(tokens, length - 1);
    const { place, matched } = this.#source(tokens, length);
    if (place === 0 || most < 1) return NO_DRAFT;
    const draft = new Int32Array(most);
    const grades = new Uint8Array(most);
    const period = length - place;
    for (let i = 0; i < most; i++) {
      // What would follow beyond the text's end is the draft itself.
      draft[i] = i < period ? tokens[place + i] : draft[i - period];
      grades[i] = Math.min(GRADES - 1, matched + i);
    }
    return { tokens: draft, grades };
  }

  /** Takes in places up to `end`: a place is where the tokens after a pair begin. */
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

  /** Where the text's end has come before, or where else its source may go on. */
  #source(tokens: Int32Array, length: number): Match {
    const next = this.#last.place + length - this.#last.length;
    const follows = this.#last.place > 0 && next < length;
    let found = this.#longest(tokens, length, follows ? next : 0);
    // What should have come now is where the source is left.
    if (follows && this.#last.matched >= SURE && found.place !== next) {
      this.#left = { place: next - 1, length };
    }
    if (found.matched < LEAST) found = this.#near(tokens, length);
    this.#last = { ...found, length };
    return found;
  }

  /** Where the source that was left goes on: tokens of it were left out or replaced, or one was put in. */
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
    // As long as the last match goes on, nothing else need be looked at.
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

/** How many tokens before `place` are those before `end`. */
function matchedBefore(tokens: Int32Array, place: number, end: number): number {
  const most = Math.min(place, ENOUGH);
  let matched = 0;
  while (matched < most && tokens[place - 1 - matched] === tokens[end - 1 - matched]) matched++;
  return matched;
}
