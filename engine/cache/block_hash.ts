import { KV_BLOCK_TOKENS } from "../backend/backend.ts";
import type { Sequence } from "../schedule/sequence.ts";

/** Returns the hash of the prefix key and all blocks up to `position`. Hashes can collide, so compare tokens after a match. */
export function hashOf(sequence: Sequence, position: number): number {
  const { kv: { hashes }, tokens, prefixKey } = sequence;
  while (hashes.length <= position) {
    const count = hashes.length;
    const parent = count === 0 ? hashOfKey(prefixKey) : hashes[count - 1];
    hashes.push(hashOfBlock(parent, tokens, count * KV_BLOCK_TOKENS));
  }
  return hashes[position];
}

function hashOfKey(key: string): number {
  let hash = 0;
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 0x01000193) + 1;
  return hash >>> 0;
}

/** Returns a hash of 53 bits, computed in two 32-bit lanes with different multipliers. */
function hashOfBlock(parent: number, tokens: Int32Array, start: number): number {
  let low = parent | 0;
  let high = Math.floor(parent / 2 ** 32) | 0;
  for (let i = start; i < start + KV_BLOCK_TOKENS; i++) {
    low = Math.imul(low ^ tokens[i], 0x9e3779b1);
    low ^= low >>> 15;
    high = Math.imul(high + tokens[i], 0x85ebca6b) ^ low;
    high ^= high >>> 13;
  }
  return (high & 0x1fffff) * 2 ** 32 + (low >>> 0);
}
