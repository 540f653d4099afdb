/** A set of byte ranges `[start, end)`, in order, neither touching nor overlapping. */
export class Ranges {
  readonly #pairs: [start: number, end: number][] = [];

  constructor(pairs: Iterable<readonly [start: number, end: number]> = []) {
    for (const [start, end] of pairs) this.add(start, end);
  }

  get pairs(): readonly (readonly [start: number, end: number])[] {
    return this.#pairs;
  }

  /** Total number of bytes in all ranges. */
  get bytes(): number {
    return this.#pairs.reduce((sum, [start, end]) => sum + end - start, 0);
  }

  add(start: number, end: number): void {
    if (start >= end) return;
    const pairs = this.#pairs;
    const from = pairs.findIndex(([, otherEnd]) => otherEnd >= start);
    const first = from < 0 ? pairs.length : from;
    let last = first;
    while (last < pairs.length && pairs[last][0] <= end) last++;
    const merged = pairs.slice(first, last);
    const joined: [number, number] = [
      Math.min(start, merged[0]?.[0] ?? start),
      Math.max(end, merged.at(-1)?.[1] ?? end),
    ];
    pairs.splice(first, last - first, joined);
  }

  remove(start: number, end: number): void {
    if (start >= end) return;
    const kept = this.#pairs.flatMap(([from, to]): [number, number][] => {
      const before: [number, number] = [from, Math.min(to, start)];
      const after: [number, number] = [Math.max(from, end), to];
      return [before, after].filter(([from, to]) => from < to);
    });
    this.#pairs.splice(0, this.#pairs.length, ...kept);
  }

  clear(): void {
    this.#pairs.length = 0;
  }

  /** Whether the set contains all bytes from `start` to `end`. */
  covers(start: number, end: number): boolean {
    return this.gap(start, end) === undefined;
  }

  /** Returns the first missing range between `start` and `end`; undefined if none is missing. */
  gap(start: number, end: number): [start: number, end: number] | undefined {
    let at = start;
    for (const [from, to] of this.#pairs) {
      if (to <= at) continue;
      if (from > at) return at < end ? [at, Math.min(from, end)] : undefined;
      at = to;
    }
    return at < end ? [at, end] : undefined;
  }
}
