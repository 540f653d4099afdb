import type { DiskStats, EngineStats } from "./types.ts";

/** Steps are counted by their rows up to 2^12. */
const STEP_ROWS_ENTRIES = 14;

/** The figures of EngineStats that an engine counts itself. */
export type Counted = Omit<
  EngineStats,
  "running" | "waiting" | "kvBlocksUsed" | "kvBlocksTotal" | "preemptions" | "disk"
>;

/** What an engine has counted since it was loaded. */
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

  /** Steps of so many rows each that were handed over at once. */
  submitted(steps: number, rows: number): void {
    this.#counts.submits++;
    this.#counts.steps += steps;
    this.#counts.rows += steps * rows;
    const entry = rows > 1 ? 32 - Math.clz32(rows - 1) : 0;
    this.#stepRows[Math.min(entry, STEP_ROWS_ENTRIES - 1)] += steps;
  }

  /** A prompt was read, of which so many tokens were in the cache. */
  read(tokens: number, cached: number): void {
    this.#counts.promptTokens += tokens;
    this.#counts.cachedTokens += cached;
  }

  /** Tokens came, of which so many were sampled. */
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

/** The figures that go on where another engine takes the place of one. */
export type Summed = Counted & Pick<EngineStats, "preemptions" | "disk">;

export function plus(a: Summed, b: Summed): Summed {
  return {
    promptTokens: a.promptTokens + b.promptTokens,
    generatedTokens: a.generatedTokens + b.generatedTokens,
    forcedTokens: a.forcedTokens + b.forcedTokens,
    draftedTokens: a.draftedTokens + b.draftedTokens,
    acceptedTokens: a.acceptedTokens + b.acceptedTokens,
    cachedTokens: a.cachedTokens + b.cachedTokens,
    steps: a.steps + b.steps,
    rows: a.rows + b.rows,
    stepRows: b.stepRows.map((count, i) => count + (a.stepRows[i] ?? 0)),
    submits: a.submits + b.submits,
    deviceLosses: a.deviceLosses + b.deviceLosses,
    preemptions: a.preemptions + b.preemptions,
    disk: a.disk && b.disk ? plusDisk(a.disk, b.disk) : b.disk ?? a.disk,
  };
}

/** What is on the disk is the later engine's to say. */
function plusDisk(a: DiskStats, b: DiskStats): DiskStats {
  return {
    ...b,
    hits: a.hits + b.hits,
    tokens: a.tokens + b.tokens,
    readBytes: a.readBytes + b.readBytes,
    writes: a.writes + b.writes,
    writtenBytes: a.writtenBytes + b.writtenBytes,
  };
}
