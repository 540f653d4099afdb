import { type Paced, STEPS_PER_OFFER } from "../pacing/pauses.ts";
import type { PairTable } from "./pair_table.ts";

/** Maximum number of symbols whose working memory is reused between calls: most pieces are words. */
const KEPT = 4096;
/** A heap key is priority * 2^31 + position, exact in a double. */
const PLACES = 2 ** 31;

/** Working memory of one call of `mergePairs`. */
class Scratch {
  readonly next: Int32Array;
  readonly previous: Int32Array;
  /** Binary heap of packed keys. Each merge removes one pair and adds at most two. */
  readonly heap: Float64Array;

  constructor(readonly capacity: number) {
    this.next = new Int32Array(capacity);
    this.previous = new Int32Array(capacity);
    this.heap = new Float64Array(3 * capacity);
  }
}

const kept = new Scratch(KEPT);

/**
 * Merges adjacent pairs in order of priority, lowest first and leftmost among equals, in O(n log n).
 * Overwrites the start of `symbols` with the result and returns its length. Symbols below 0 never merge.
 */
export function* mergePairs(symbols: Int32Array, count: number, pairs: PairTable): Paced<number> {
  if (count < 2) return count;
  // All texts share this memory, so a call that uses it must not pause: another text could use it meanwhile.
  const pauses = count > KEPT;
  const { next, previous, heap } = pauses ? new Scratch(count) : kept;
  let size = 0;
  let steps = 0;

  const push = (left: number) => {
    const slot = pairs.find(symbols[left], symbols[next[left]]);
    if (slot < 0) return;
    const key = pairs.priority[slot] * PLACES + left;
    let hole = size++;
    while (hole > 0 && heap[(hole - 1) >> 1] > key) {
      heap[hole] = heap[(hole - 1) >> 1];
      hole = (hole - 1) >> 1;
    }
    heap[hole] = key;
  };

  for (let place = 0; place < count; place++) {
    next[place] = place + 1;
    previous[place] = place - 1;
    if (pauses && place % STEPS_PER_OFFER === 0) yield;
  }
  for (let place = 0; place + 1 < count; place++) {
    push(place);
    if (pauses && ++steps % STEPS_PER_OFFER === 0) yield;
  }

  while (size > 0) {
    if (pauses && ++steps % STEPS_PER_OFFER === 0) yield;
    const key = heap[0];
    const moved = heap[--size];
    let hole = 0;
    for (let child = 1; child < size; child = 2 * hole + 1) {
      if (child + 1 < size && heap[child + 1] < heap[child]) child++;
      if (heap[child] >= moved) break;
      heap[hole] = heap[child];
      hole = child;
    }
    heap[hole] = moved;

    const left = key % PLACES;
    const right = next[left];
    // A heap entry is stale if its position was merged away (no successor) or its pair changed (another priority).
    if (right < 0 || right >= count) continue;
    const slot = pairs.find(symbols[left], symbols[right]);
    if (slot < 0 || pairs.priority[slot] * PLACES + left !== key) continue;

    symbols[left] = pairs.merged[slot];
    const after = next[right];
    next[left] = after;
    next[right] = -1;
    if (after < count) {
      previous[after] = left;
      push(left);
    }
    if (previous[left] >= 0) push(previous[left]);
  }

  let length = 0;
  for (let place = 0; place < count; place = next[place]) {
    symbols[length++] = symbols[place];
    if (pauses && length % STEPS_PER_OFFER === 0) yield;
  }
  return length;
}
