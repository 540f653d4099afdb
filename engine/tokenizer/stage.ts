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
