/** Sets of characters: sorted ranges of code points that neither touch nor overlap. */

export type CharacterSet = readonly (readonly [first: number, last: number])[];

export const NOTHING: CharacterSet = [];
const LARGEST = 0x10ffff;

export function setOf(ranges: readonly (readonly [number, number])[]): CharacterSet {
  const sorted = [...ranges].sort((a, b) => a[0] - b[0]);
  const result: [number, number][] = [];
  for (const [first, last] of sorted) {
    const before = result.at(-1);
    if (before && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else result.push([first, last]);
  }
  return result;
}

export function union(a: CharacterSet, b: CharacterSet): CharacterSet {
  return a.length === 0 ? b : b.length === 0 ? a : setOf([...a, ...b]);
}

/** Returns the set of all characters outside `set`, without surrogates, which are not characters. */
export function complement(set: CharacterSet): CharacterSet {
  const result: [number, number][] = [];
  let next = 0;
  for (const [first, last] of setOf([...set, [0xd800, 0xdfff]])) {
    if (first > next) result.push([next, first - 1]);
    next = last + 1;
  }
  if (next <= LARGEST) result.push([next, LARGEST]);
  return result;
}

export function meet(a: CharacterSet, b: CharacterSet): boolean {
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i][1] < b[j][0]) i++;
    else if (b[j][1] < a[i][0]) j++;
    else return true;
  }
  return false;
}

export function equal(a: CharacterSet, b: CharacterSet): boolean {
  return a.length === b.length && a.every(([first, last], i) => first === b[i][0] && last === b[i][1]);
}

export function contains(set: CharacterSet, code: number): boolean {
  return set.some(([first, last]) => first <= code && code <= last);
}
