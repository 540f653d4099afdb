import type { DiskStats, EngineStats } from "../api/engine.ts";

/** Number of step size classes: steps are counted per power of two of their rows, up to 2^12. */
const STEP_ROWS_ENTRIES = 14;

/** The figures of EngineStats that the engine itself counts. */
export type Counted = Omit<
  EngineStats,
  "running" | "waiting" | "kvBlocksUsed" | "kvBlocksTotal" | "preemptions" | "loosenedKeywords" | "disk"
>;

/** Counts an engine's figures since it was loaded. */
export class Totals {
  readonly #counts = {
    promptTokens: 0,
    generatedTokens: 0,
    forcedTokens: 0,
    draftedTokens: 0,
    acceptedTokens: 0,
    cachedTokens: 0,
    steps: 0,
    rows: 0,
    submits: 0,
    deviceLosses: 0,
  };
  readonly #stepRows: number[] = new Array(STEP_ROWS_ENTRIES).fill(0);

  /** Counts `steps` steps of `rows` rows each that were submitted in one call. */
  submitted(steps: number, rows: number): void {
    this.#counts.submits++;
    this.#counts.steps += steps;
    this.#counts.rows += steps * rows;
    const entry = rows > 1 ? 32 - Math.clz32(rows - 1) : 0;
    this.#stepRows[Math.min(entry, STEP_ROWS_ENTRIES - 1)] += steps;
  }

  /** Counts a prompt of `tokens` tokens; `cached` of them were in the KV cache. */
  read(tokens: number, cached: number): void {
    this.#counts.promptTokens += tokens;
    this.#counts.cachedTokens += cached;
  }

  /** Counts `tokens` generated tokens; `sampled` of them were sampled. */
  generated(tokens: number, sampled: number): void {
    this.#counts.generatedTokens += tokens;
    this.#counts.forcedTokens += tokens - sampled;
  }

  drafted(tokens: number, accepted: number): void {
    this.#counts.draftedTokens += tokens;
    this.#counts.acceptedTokens += accepted;
  }

  lostDevice(): void {
    this.#counts.deviceLosses++;
  }

  stats(): Counted {
    return { ...this.#counts, stepRows: [...this.#stepRows] };
  }
}

/** The figures that are summed over an engine and its replacement. */
export type Summed = Counted & Pick<EngineStats, "preemptions" | "loosenedKeywords" | "disk">;

export function plus(a: Summed, b: Summed): Summed {
  const { stepRows, disk, ...counts } = a;
  return {
    ...sums(counts, b),
    stepRows: b.stepRows.map((count, i) => count + (stepRows[i] ?? 0)),
    disk: disk && b.disk ? plusDisk(disk, b.disk) : b.disk ?? disk,
  };
}

/** Sums the disk figures; the disk's size and limit are the later engine's. */
function plusDisk(a: DiskStats, b: DiskStats): DiskStats {
  return { ...sums(a, b), bytes: b.bytes, limit: b.limit };
}

/** Returns each figure of `a` plus the same figure of `b`, which may have others too. */
function sums<Figures extends Record<keyof Figures, number>>(a: Figures, b: Figures): Figures {
  const entries = Object.entries<number>(a).map(([name, value]) => [name, value + b[name as keyof Figures]]);
  return Object.fromEntries(entries);
}
