/** Parses the output of cachegrind and perf. */

export interface Counts {
  readonly instructions: number;
  /** Reads and writes that missed the first-level data cache; `llMisses` for the last level. */
  readonly d1Misses: number;
  readonly llMisses: number;
}

/** Returns the whole process's counts from a cachegrind output file. Throws if the file has none. */
export function parseCounts(text: string): Counts {
  const events = /^events: (.+)$/m.exec(text)?.[1].trim().split(/\s+/);
  const summary = /^summary: (.+)$/m.exec(text)?.[1].trim().split(/\s+/);
  if (!events || !summary) {
    throw new Error("Cachegrind wrote no summary; its version may be too old (wanted: 3.15)");
  }
  const count = (name: string) => {
    const value = Number(summary[events.indexOf(name)]);
    if (Number.isFinite(value)) return value;
    throw new Error(`Cachegrind did not count ${name}, only ${events.join(", ")}`);
  };
  return {
    instructions: count("Ir"),
    d1Misses: count("D1mr") + count("D1mw"),
    llMisses: count("DLmr") + count("DLmw"),
  };
}

/** Returns the counts of one call, from two runs with different numbers of calls. */
export function perCall(calls: readonly [number, number], [few, many]: readonly Counts[]): Counts {
  const one = (name: keyof Counts) => (many[name] - few[name]) / (calls[1] - calls[0]);
  return { instructions: one("instructions"), d1Misses: one("d1Misses"), llMisses: one("llMisses") };
}

/** Returns instructions per cycle from the output of `perf stat -x,`; undefined if perf could not count them. */
export function parsePerf(text: string): number | undefined {
  const count = (name: string) =>
    Number(text.split("\n").map((line) => line.split(",")).find((cells) => cells[2]?.startsWith(name))?.[0]);
  const ipc = count("instructions") / count("cycles");
  return Number.isFinite(ipc) ? ipc : undefined;
}
