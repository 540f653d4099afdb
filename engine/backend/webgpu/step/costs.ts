import type { Kernel } from "../kernels/types.ts";
import type { Dispatch, StepSize } from "./dispatch.ts";

export type Grid = readonly [number, number, number];

/** A part of a dispatch: a range of its workgroups. */
export interface Piece {
  readonly dispatch: Dispatch;
  readonly kernel: Kernel;
  /** Id of the piece's first workgroup, and the number of workgroups on each axis. */
  readonly first: Grid;
  readonly groups: Grid;
  /** Approximate multiply-adds of the piece. */
  readonly work: number;
}

/** Initial estimate of milliseconds per multiply-add: that of a software adapter on a busy machine. */
const FIRST_GUESS = 5e-6;
/** Assumed multiply-adds per workgroup of a kernel that does not state its `work`. */
const SMALL_WORK = 4096;
/**
 * Error factor above which an estimate is corrected in full. A smaller error may be noise, so only its power SMALL_STEP
 * is corrected.
 */
const LARGE = 2;
const SMALL_STEP = 0.5;
/** Largest factor by which one measurement changes an estimate. */
const MOST = 8;

/** Learns from the duration of submits how long kernels take on this device. */
export class Costs {
  /** Milliseconds per multiply-add by kernel. */
  readonly #rates = new Map<string, number>();
  /** Kernels that were timed separately and state their work. */
  readonly #timed = new Set<string>();
  /**
   * The estimate for a kernel that has not run: that of the kernels measured last, until a kernel was timed separately.
   */
  #common: number;

  /** `guess`: milliseconds per multiply-add before any measurement. */
  constructor(guess = FIRST_GUESS) {
    this.#common = guess;
  }

  /** Returns whether the kernel has run. */
  has(key: string): boolean {
    return this.#rates.has(key);
  }

  /** Whether the device's clock has timed any kernel. */
  get timed(): boolean {
    return this.#timed.size > 0;
  }

  /** Returns the expected milliseconds for `work` multiply-adds of a kernel. */
  of(kernel: Kernel, work: number): number {
    return work * (this.#rates.get(kernel.key) ?? this.#unknown);
  }

  /** Returns the expected milliseconds for all pieces together. */
  sum(pieces: readonly Piece[]): number {
    return pieces.reduce((ms, { kernel, work }) => ms + this.of(kernel, work), 0);
  }

  /** Learns from a piece that was timed separately and was not its kernel's first run. */
  time({ kernel, work }: Piece, ms: number): void {
    if (ms <= 0) return;
    const ratio = Math.min(MOST, ms / this.of(kernel, work));
    this.#rates.set(kernel.key, this.#rates.get(kernel.key)! * ratio ** sizeOf(ratio));
    if (kernel.work) this.#timed.add(kernel.key);
  }

  /** Notes that the pieces were submitted in a step that times kernels separately. Their total time is not used. */
  ran(pieces: readonly Piece[]): void {
    for (const { kernel } of pieces) this.#know(kernel);
  }

  /**
   * Learns from pieces that took `ms` together: each kernel's estimate moves by its share of the total. If a kernel ran
   * for the first time, a long time is ignored, because the driver may have compiled it.
   */
  learn(pieces: readonly Piece[], ms: number): void {
    const expected = new Map<string, number>();
    let total = 0;
    let compiled = false;
    for (const { kernel, work } of pieces) {
      if (this.#know(kernel)) compiled = true;
      const cost = this.of(kernel, work);
      expected.set(kernel.key, (expected.get(kernel.key) ?? 0) + cost);
      total += cost;
    }
    if (total === 0 || ms <= 0) return;
    const ratio = Math.min(MOST, Math.max(1 / MOST, ms / total));
    if (compiled && ratio > 1) return;
    const size = sizeOf(ratio);
    let squares = 0;
    for (const cost of expected.values()) squares += (cost / total) ** 2;
    for (const [key, cost] of expected) {
      const share = Math.min(1, cost / total / squares);
      this.#rates.set(key, this.#rates.get(key)! * ratio ** (size * share));
    }
    this.#common *= ratio ** size;
  }

  /** Notes that the kernel has run. Returns whether this is its first run. */
  #know({ key }: Kernel): boolean {
    if (this.#rates.has(key)) return false;
    this.#rates.set(key, this.#unknown);
    return true;
  }

  /** Estimated milliseconds per multiply-add of a kernel that has not run yet. */
  get #unknown(): number {
    const timed = [...this.#timed].map((key) => this.#rates.get(key)!);
    return timed.length > 0 ? Math.max(...timed) : this.#common;
  }
}

/** Returns the exponent that damps the correction of an estimate by an error `ratio`. */
function sizeOf(ratio: number): number {
  return Math.abs(Math.log(ratio)) > Math.log(LARGE) ? 1 : SMALL_STEP;
}

/** Returns the kernel that a step uses for a dispatch, with all its workgroups. */
export function wholeOf(dispatch: Dispatch, size: StepSize): Piece {
  const rows = size[dispatch.rows];
  const kernel = dispatch.kernels.find(({ maxRows }) => rows <= maxRows)!;
  const groups = kernel.workgroups(dispatch.n, rows, size.context);
  return { dispatch, kernel, first: NONE, groups, work: workOf(kernel, groups, size) };
}

const NONE: Grid = [0, 0, 0];

/** Halves a piece along its longest axis, repeatedly, until each part should take at most `ms`. */
export function cutPiece(piece: Piece, size: StepSize, costs: Costs, ms: number): Piece[] {
  const { kernel, groups, first, work } = piece;
  const longest = Math.max(...groups);
  if (longest === 1 || costs.of(kernel, work) <= ms) return [piece];
  const axis = groups.indexOf(longest);
  const half = Math.ceil(longest / 2);
  const part = (from: number, count: number): Piece => {
    const counts = groups.with(axis, count) as unknown as Grid;
    const starts = first.with(axis, first[axis] + from) as unknown as Grid;
    return { ...piece, first: starts, groups: counts, work: workOf(kernel, counts, size) };
  };
  return [part(0, half), part(half, longest - half)].flatMap((p) => cutPiece(p, size, costs, ms));
}

function workOf({ work }: Kernel, [x, y, z]: Grid, size: StepSize): number {
  return x * y * z * (work?.(size) ?? SMALL_WORK);
}
