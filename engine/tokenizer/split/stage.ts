import { type Paced, STEPS_PER_OFFER } from "../../pacing/pauses.ts";
import { classAt, SPACE, widthAt } from "./unicode.ts";

/**
 * Splits pieces of the text, given by their ends, and returns the ends of the parts. For a stage, the end of a piece
 * counts as the end of the text.
 */
export type Stage = (text: string, pieces: readonly number[]) => Paced<number[]>;

/** Returns the end of a match at `index`; `index` or less if there is none. Never reads at or past `end`. */
export type Match = (text: string, index: number, end: number) => number;

/**
 * Returns the ends of the text's pieces after all stages. Each stage splits the pieces of the previous one.
 */
export function* splitText(stages: readonly Stage[], text: string): Paced<number[]> {
  let ends = text.length > 0 ? [text.length] : [];
  for (const stage of stages) ends = yield* stage(text, ends);
  return ends;
}

/** Returns a stage that makes each match a piece, and the text between two matches too. */
export function isolate(match: Match): Stage {
  return function* (text, pieces) {
    const ends: number[] = [];
    let steps = 0;
    let index = 0;
    for (const end of pieces) {
      let gap = index;
      while (index < end) {
        if (++steps % STEPS_PER_OFFER === 0) yield;
        const stop = match(text, index, end);
        if (stop <= index) {
          index += widthAt(text, index);
          continue;
        }
        if (gap < index) ends.push(index);
        ends.push(stop);
        gap = index = stop;
      }
      if (gap < end) ends.push(end);
      index = end;
    }
    return ends;
  };
}

/** Returns a stage that splits piece by piece: `split` appends the ends of a piece's parts to `ends`. */
function eachPiece(split: (text: string, start: number, end: number, ends: number[]) => Paced<void>): Stage {
  return function* (text, pieces) {
    const ends: number[] = [];
    let start = 0;
    for (const end of pieces) {
      yield* split(text, start, end, ends);
      start = end;
    }
    return ends;
  };
}

/** Splits off `\s+$`. The stage reads from the end, so that it never reads a run of white space twice. */
export const isolateTrailingSpace: Stage = eachPiece(function* (text, start, end, ends) {
  let body = end;
  while (body > start && (classAt(text, body - 1, end) & SPACE) !== 0) {
    body--;
    if (body % STEPS_PER_OFFER === 0) yield;
  }
  if (body > start) ends.push(body);
  if (body < end) ends.push(end);
  if (ends.length % STEPS_PER_OFFER === 0) yield;
});

/**
 * Splits a run of digits into groups of three from its end, and separates it from the text before or after
 * it, as `border` says. Before the run, it separates only if the length is a multiple of three. `isDigit`
 * tests one character.
 */
export function triplesFromEnd(
  isDigit: (text: string, index: number, end: number) => boolean,
  border: "before" | "after",
): Stage {
  return eachPiece(function* (text, start, end, ends) {
    let done = start;
    let steps = 0;
    for (let index = start; index < end;) {
      if (++steps % STEPS_PER_OFFER === 0) yield;
      const digits = [index];
      while (index < end && isDigit(text, index, end)) {
        digits.push(index += widthAt(text, index));
        if (digits.length % STEPS_PER_OFFER === 0) yield;
      }
      if (digits.length === 1) index += widthAt(text, index);
      const [first, last] = border === "before" ? [0, digits.length - 2] : [1, digits.length - 1];
      for (let i = first; i <= last && digits.length > 1; i++) {
        if ((digits.length - 1 - i) % 3 === 0 && digits[i] > done) ends.push(done = digits[i]);
        if (i % STEPS_PER_OFFER === STEPS_PER_OFFER - 1) yield;
      }
    }
    if (done < end) ends.push(end);
  });
}

/**
 * Splits a piece of blanks that does not end in a line break into powers of two, largest first, from 512
 * down.
 */
export const blanksByPowers: Stage = eachPiece(function* (text, start, end, ends) {
  const last = text.charCodeAt(end - 1);
  let index = start;
  while (index < end && (classAt(text, index, end) & SPACE) !== 0) {
    if (++index % STEPS_PER_OFFER === 0) yield;
  }
  if (index < end || last === 0x0a || last === 0x0d) {
    ends.push(end);
    return;
  }
  let size = 512;
  for (index = start; index < end; ends.push(index)) {
    while (size > end - index) size /= 2;
    index += size;
  }
});
