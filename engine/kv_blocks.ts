import { KV_BLOCK_TOKENS } from "./backend/backend.ts";

/** How sequences take KV blocks. */
export interface KvDemand {
  /** Tokens that rows see in the layers of each group but the first, which sees all; 0 is all there too. */
  readonly windows: readonly number[];
  /** Most rows in one step. */
  readonly maxRows: number;
}

/** Blocks that so many tokens take in one group. */
export function blocksFor(tokens: number): number {
  return Math.ceil(tokens / KV_BLOCK_TOKENS);
}

/** The first block of a group that is seen by a row after `cached` tokens, or by any later one. */
export function firstSeen(window: number, cached: number): number {
  return window === 0 ? 0 : Math.floor(Math.max(0, cached + 1 - window) / KV_BLOCK_TOKENS);
}

/** Blocks of a group that a sequence of so many tokens holds at most, where a step has so many of its rows. */
export function blocksOfWindow(window: number, tokens: number, rows: number): number {
  if (window === 0) return blocksFor(tokens);
  const seen = window - 1 + rows; // from the first row's window to the last row
  return Math.min(blocksFor(tokens), Math.ceil((seen - 1) / KV_BLOCK_TOKENS) + 1);
}

/** Blocks of all groups that a sequence of so many tokens holds at most, from its prompt on. */
export function blocksOfSequence({ windows, maxRows }: KvDemand, tokens: number): number {
  return windows.reduce((sum, w) => sum + blocksOfWindow(w, tokens, maxRows), blocksFor(tokens));
}

/** Tokens of the longest sequence that always fits into so many blocks. */
export function longestSequence(demand: KvDemand, blocks: number): number {
  let [low, high] = [0, blocks];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (blocksOfSequence(demand, middle * KV_BLOCK_TOKENS) <= blocks) low = middle;
    else high = middle - 1;
  }
  return low * KV_BLOCK_TOKENS;
}
