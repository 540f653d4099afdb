import { classAt, SPACE, widthAt } from "./unicode.ts";

/**
 * Cuts `text[start, end)` into pieces and appends where each of them ends to `ends`. A stage sees nothing outside
 * of its range: the range's end counts as the end of the text.
 */
export type Stage = (text: string, start: number, end: number, ends: number[]) => void;

/** Where the match at `index` ends; `index` or less where there is none. Looks at no character at or past `end`. */
export type Match = (text: string, index: number, end: number) => number;

/** The ends of the pieces that the stages, each cutting the pieces of the one before, make of the text. */
export function splitText(stages: readonly Stage[], text: string): number[] {
  let ends = text.length > 0 ? [text.length] : [];
  for (const stage of stages) {
    const finer: number[] = [];
    let start = 0;
    for (const end of ends) {
      stage(text, start, end, finer);
      start = end;
    }
    ends = finer;
  }
  return ends;
}

/** Each match is a piece, and so is what lies between two of them. */
export function isolate(match: Match): Stage {
  return (text, start, end, ends) => {
    let gap = start;
    let index = start;
    while (index < end) {
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
  };
}

/** `\s+$` stands apart: read from the end, so that no run of white space is read twice. */
export const isolateTrailingSpace: Stage = (text, start, end, ends) => {
  let body = end;
  while (body > start && (classAt(text, body - 1, end) & SPACE) !== 0) body--;
  if (body > start) ends.push(body);
  if (body < end) ends.push(end);
};

/**
 * Cuts before every third digit from the end of a run of digits, and at one border of the run: before it, where its
 * length is a multiple of three, or after it. `isDigit` is asked of one character.
 */
export function triplesFromEnd(
  isDigit: (text: string, index: number, end: number) => boolean,
  border: "before" | "after",
): Stage {
  return (text, start, end, ends) => {
    let done = start;
    for (let index = start; index < end;) {
      const digits = [index];
      while (index < end && isDigit(text, index, end)) digits.push(index += widthAt(text, index));
      if (digits.length === 1) index += widthAt(text, index);
      const [first, last] = border === "before" ? [0, digits.length - 2] : [1, digits.length - 1];
      for (let i = first; i <= last && digits.length > 1; i++) {
        if ((digits.length - 1 - i) % 3 === 0 && digits[i] > done) ends.push(done = digits[i]);
      }
    }
    if (done < end) ends.push(end);
  };
}

/** A piece of blanks that does not end in a line break is cut into powers of two, from 512 down, the largest first. */
export const blanksByPowers: Stage = (text, start, end, ends) => {
  const last = text.charCodeAt(end - 1);
  let index = start;
  while (index < end && (classAt(text, index, end) & SPACE) !== 0) index++;
  if (index < end || last === 0x0a || last === 0x0d) {
    ends.push(end);
    return;
  }
  let size = 512;
  for (index = start; index < end; ends.push(index)) {
    while (size > end - index) size /= 2;
    index += size;
  }
};
