/** The properties of a line that determine its place in the order. */
export interface OrderedLine {
  readonly index: number;
  /** Lines whose keys share a prefix have prompts that share a prefix. */
  readonly key: string;
  /** Maximum tokens of the answer. */
  readonly answer: number;
}

/** Number of shared characters from which lines stay together: about 60 prompt tokens are then computed only once. */
const SHARED_CHARACTERS = 256;

/**
 * Returns a window of lines in the order in which the engine gets them:
 *
 * - Lines with a common prefix follow each other, so the prefix is computed once and stays in the prefix cache
 *   while lines need it. Lines that share a prefix with `previous`, the last key handed out, come first.
 * - Otherwise lines with long and short answers alternate: while long answers decode one token per step, the
 *   prompts of short ones fill the steps.
 * - In the last window long answers come first, so that no long answer runs alone at the end.
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
  groups.sort((a, b) => length(b) - length(a)); // stable: groups of equal length keep the order of their keys
  return [...begun, ...(last ? groups : fromBothEnds(groups))].flat();
}

function beginAlike(a: string, b: string): boolean {
  return a.length >= SHARED_CHARACTERS && a.slice(0, SHARED_CHARACTERS) === b.slice(0, SHARED_CHARACTERS);
}

function fromBothEnds<T>(values: readonly T[]): T[] {
  return values.map((_, i) => values[i % 2 === 0 ? i / 2 : values.length - (i + 1) / 2]);
}
