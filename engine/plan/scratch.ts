import { buffersOf } from "./ops/registry.ts";
import type { BufferRows, Plan, PlanBuffer } from "./plan.ts";

/** Alignment in bytes of buffers in the arena: a cache line. */
const ALIGN = 64;
/** Unit to which quantized buffers round up their rows, and float rows their columns. */
const ROUND = 16;

export interface Scratch {
  /** Byte offset of each buffer in the arena. */
  readonly offsets: readonly number[];
  readonly arenaBytes: number;
}

/**
 * Returns the bytes of a buffer of `rows` rows in the kernels' layout (rust-kernels/src/program/buffer.rs).
 */
export function bufferBytes(buffer: PlanBuffer, rows: number): number {
  if (buffer.form === "float") return rows * roundUp(buffer.columns, ROUND) * 4;
  const rowBytes = roundUp(buffer.columns + buffer.columns / 32 * 12, ALIGN);
  return roundUp(rows, ROUND) * rowBytes * (buffer.form === "fine" ? 2 : 1);
}

/**
 * Returns the maximum rows of a buffer. Each row of a step may be a sequence to pool. Each expert's rows start on a new
 * tile, of at most ROUND rows.
 */
function mostRows(rows: BufferRows, maxRows: number, maxLogitRows: number): number {
  if (rows === "step" || rows === "pools") return maxRows;
  if (rows === "logits") return maxLogitRows;
  const chosen = maxRows * rows.used;
  return chosen + Math.min(chosen, rows.count) * (ROUND - 1);
}

/**
 * Returns the places of all buffers in one arena. Buffers that are never live together share bytes. First fit, in order
 * of first use.
 */
export function planScratch(plan: Plan, maxRows: number, maxLogitRows: number): Scratch {
  const lives = lifetimes(plan);
  const offsets: number[] = new Array(plan.buffers.length).fill(0);
  const order = plan.buffers.map((_, i) => i).sort((a, b) => lives[a].first - lives[b].first);
  let arenaBytes = ALIGN;
  // The placed buffers that are live at the next one's first use, ordered by offset.
  let alive: { start: number; end: number; last: number }[] = [];
  for (const id of order) {
    const buffer = plan.buffers[id];
    const { first, last } = lives[id];
    const size = roundUp(bufferBytes(buffer, mostRows(buffer.rows, maxRows, maxLogitRows)), ALIGN);
    alive = alive.filter((other) => other.last >= first);
    let [start, at] = [0, 0];
    for (; at < alive.length && alive[at].start - start < size; at++) start = Math.max(start, alive[at].end);
    offsets[id] = start;
    arenaBytes = Math.max(arenaBytes, start + size);
    alive.splice(at, 0, { start, end: start + size, last });
  }
  return { offsets, arenaBytes };
}

/** Returns the first and last op that use each buffer. */
function lifetimes(plan: Plan): { first: number; last: number }[] {
  const lives = plan.buffers.map(() => ({ first: Infinity, last: -1 }));
  plan.ops.forEach((op, i) => {
    for (const { buffer } of buffersOf(op)) {
      lives[buffer].first = Math.min(lives[buffer].first, i);
      lives[buffer].last = Math.max(lives[buffer].last, i);
    }
  });
  return lives;
}

function roundUp(n: number, to: number): number {
  return Math.ceil(n / to) * to;
}
