import { KV_BLOCK_TOKENS } from "../backend/backend.ts";

/** The figures that determine how many KV blocks a sequence takes. */
export interface KvDemand {
  /** Window sizes in tokens of the layer groups after the first group, which sees all tokens. 0 means no window. */
  readonly windows: readonly number[];
  /** Maximum rows in one step. */
  readonly maxRows: number;
}

/** Returns the number of KV blocks for `tokens` tokens in one layer group. */
export function blocksFor(tokens: number): number {
  return Math.ceil(tokens / KV_BLOCK_TOKENS);
}

/** Returns the first block of a layer group that the row after `cached` tokens, or a later row, can see. */
export function firstSeen(window: number, cached: number): number {
  return window === 0 ? 0 : Math.floor(Math.max(0, cached + 1 - window) / KV_BLOCK_TOKENS);
}

/**
 * Returns the maximum blocks of a layer group that a sequence of `tokens` tokens holds, with `rows` of its rows in a
 * step.
 */
export function blocksOfWindow(window: number, tokens: number, rows: number): number {
  if (window === 0) return blocksFor(tokens);
  const seen = window - 1 + rows; // positions from the start of the first row's window to the last row
  return Math.min(blocksFor(tokens), Math.ceil((seen - 1) / KV_BLOCK_TOKENS) + 1);
}

/** Returns the maximum blocks of all layer groups that a sequence of `tokens` tokens holds, prefill included. */
export function blocksOfSequence({ windows, maxRows }: KvDemand, tokens: number): number {
  return windows.reduce((sum, w) => sum + blocksOfWindow(w, tokens, maxRows), blocksFor(tokens));
}

/** Returns the length in tokens of the longest sequence that always fits into `blocks` blocks. */
export function longestSequence(demand: KvDemand, blocks: number): number {
  let [low, high] = [0, blocks];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (blocksOfSequence(demand, middle * KV_BLOCK_TOKENS) <= blocks) low = middle;
    else high = middle - 1;
  }
  return low * KV_BLOCK_TOKENS;
}
