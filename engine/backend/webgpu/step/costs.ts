import type { Kernel } from "../kernels/types.ts";
import type { Dispatch, StepSize } from "./dispatch.ts";

export type Grid = readonly [number, number, number];

/** Some workgroups of a dispatch. */
export interface Piece {
  readonly dispatch: Dispatch;
  readonly kernel: Kernel;
  /** The first workgroup, and how many from there on. */
  readonly first: Grid;
  readonly groups: Grid;
  /** Multiply-adds, about. */
  readonly work: number;
}

/** Milliseconds of a multiply-add of which nothing is known yet: as slow as a software adapter on a busy machine. */
const FIRST_GUESS = 5e-6;
/** Multiply-adds of a workgroup of a kernel that does not say. */
const SMALL_WORK = 4096;
/** How much of an error is corrected at once, of one that is no mere noise, and how much of a small one. */
const LARGE = 2;
const SMALL_STEP = 0.5;
/** Most by which one measurement moves an estimate. */
const MOST = 8;

/** What kernels take on this device, learned from how long submits took. */
export class Costs {
  /** Milliseconds of a multiply-add, by kernel. */
  readonly #rates = new Map<string, number>();
  /** Kernels that were timed by themselves and say their work. */
  readonly #timed = new Set<string>();
  /** Of a kernel that has not run yet where none was timed by itself: as those that were measured last. */
  #common: number;

  /** `guess`: milliseconds of a multiply-add, before anything was measured. */
  constructor(guess = FIRST_GUESS) {
    this.#common = guess;
  }

  /** Whether the kernel has run. */
  has(key: string): boolean {
    return this.#rates.has(key);
  }

  /** Whether the device's clock has told what kernels take. */
  get timed(): boolean {
    return this.#timed.size > 0;
  }

  /** Milliseconds that so much work of a kernel is expected to take. */
  of(kernel: Kernel, work: number): number {
    return work * (this.#rates.get(kernel.key) ?? this.#unknown);
  }

  /** Milliseconds that the pieces are expected to take together. */
  sum(pieces: readonly Piece[]): number {
    return pieces.reduce((ms, { kernel, work }) => ms + this.of(kernel, work), 0);
  }

  /** The piece took so long by itself, and was not its kernel's first. */
  time({ kernel, work }: Piece, ms: number): void {
    if (ms <= 0) return;
    const ratio = Math.min(MOST, ms / this.of(kernel, work));
    this.#rates.set(kernel.key, this.#rates.get(kernel.key)! * ratio ** sizeOf(ratio));
    if (kernel.work) this.#timed.add(kernel.key);
  }

  /** The pieces have been handed over in a step of which each kernel is timed by itself: nothing is learned from all together. */
  ran(pieces: readonly Piece[]): void {
    for (const { kernel } of pieces) this.#know(kernel);
  }

  /**
   * The pieces took so long together. Each kernel's estimate moves by its share of them. Where a kernel ran for the first time, a long
   * time says nothing: the driver may have compiled it.
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

  /** Notes that the kernel has run; gives whether that is new. */
  #know({ key }: Kernel): boolean {
    if (this.#rates.has(key)) return false;
    this.#rates.set(key, this.#unknown);
    return true;
  }

  /** Milliseconds of a multiply-add of a kernel that has not run yet. */
  get #unknown(): number {
    const timed = [...this.#timed].map((key) => this.#rates.get(key)!);
    return timed.length > 0 ? Math.max(...timed) : this.#common;
  }
}

/** The power of an error by which an estimate is corrected. */
function sizeOf(ratio: number): number {
  return Math.abs(Math.log(ratio)) > Math.log(LARGE) ? 1 : SMALL_STEP;
}

/** The kernel that a step takes of a dispatch, and how many workgroups of it. */
export function wholeOf(dispatch: Dispatch, size: StepSize): Piece {
  const rows = size[dispatch.rows];
  const kernel = dispatch.kernels.find(({ maxRows }) => rows <= maxRows)!;
  const groups = kernel.workgroups(dispatch.n, rows, size.context);
  return { dispatch, kernel, first: NONE, groups, work: workOf(kernel, groups, size) };
}

const NONE: Grid = [0, 0, 0];

/** The piece in halves of its longest side, and those again, until each is expected to take at most `ms`. */
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
