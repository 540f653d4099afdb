/** Parameters of a scenario. */
export interface Storm {
  /** Number of faults. A row of storms.json names the unit. */
  readonly count: number;
  readonly seed: number;
  say(line: string): void;
}

/** Counts and measurements, by name. */
export type Figures = Readonly<Record<string, number>>;

/** Injects faults. Throws at the first broken promise; returns undefined if this machine lacks a program or device. */
export type Scenario = (storm: Storm) => Promise<Figures | undefined>;

/** Returns the value below which `share` of the values lie. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}
