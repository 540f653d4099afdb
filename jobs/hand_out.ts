/** What the order of lines depends on. */
export interface OrderedLine {
  readonly index: number;
  /** Lines whose keys begin alike have prompts that begin alike. */
  readonly key: string;
  /** Tokens that the answer may have. */
  readonly answer: number;
}

/** Prompts with so many characters in common are kept together: some 60 tokens that are computed once. */
const SHARED_CHARACTERS = 256;

/**
 * The order in which a stretch of lines is handed out:
 *
 * - Lines with a common beginning follow each other, so that it is computed once and stays in the prefix cache while it
 *   is needed. Those that continue `previous`, the key that was handed out last, come first.
 * - Else lines with long and with short answers take turns: while the long ones add a token a step, the prompts of the
 *   short ones fill the steps up.
 * - In the last stretch long answers come first, so that none of them is left to run alone at the end.
 */
export function handOutOrder<T extends OrderedLine>(
  lines: readonly T[],
  previous: string,
  last: boolean,
): T[] {
  const sorted = lines.toSorted((a, b) => a.key < b.key ? -1 : a.key > b.key ? 1 : a.index - b.index);
  const groups: T[][] = [];
  for (const line of sorted) {
    const group = groups.at(-1);
    if (group !== undefined && beginAlike(group[0].key, line.key)) group.push(line);
    else groups.push([line]);
  }
  const first = groups.findIndex(([{ key }]) => beginAlike(previous, key));
  const begun = first < 0 ? [] : groups.splice(first, 1);
  const length = (group: T[]) => group.reduce((most, { answer }) => Math.max(most, answer), 0);
  groups.sort((a, b) => length(b) - length(a)); // stable: equal ones stay in the order of their keys
  return [...begun, ...(last ? groups : fromBothEnds(groups))].flat();
}

function beginAlike(a: string, b: string): boolean {
  return a.length >= SHARED_CHARACTERS && a.slice(0, SHARED_CHARACTERS) === b.slice(0, SHARED_CHARACTERS);
}

function fromBothEnds<T>(values: readonly T[]): T[] {
  return values.map((_, i) => values[i % 2 === 0 ? i / 2 : values.length - (i + 1) / 2]);
}
