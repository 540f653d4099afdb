import type { PairTable } from "./pair_table.ts";

/** Symbols for which the working memory is kept between calls: most pieces are words. */
const KEPT = 4096;
/** Places are packed below priorities: priority * 2^31 + place, both exact in a double. */
const PLACES = 2 ** 31;

/** Working memory of one merge. */
class Scratch {
  readonly next: Int32Array;
  readonly previous: Int32Array;
  /** A binary heap of packed keys. Each merge removes a pair and adds two at most. */
  readonly heap: Float64Array;

  constructor(readonly capacity: number) {
    this.next = new Int32Array(capacity);
    this.previous = new Int32Array(capacity);
    this.heap = new Float64Array(3 * capacity);
  }
}

const kept = new Scratch(KEPT);

/**
 * Merges, again and again, the pair of neighbours that has the lowest priority, the leftmost of equals first, in
 * O(n log n). `symbols[0, count)` is overwritten with what is left; returns how many that are. Symbols below 0 never
 * merge.
 */
export function mergePairs(symbols: Int32Array, count: number, pairs: PairTable): number {
  if (count < 2) return count;
  const { next, previous, heap } = count <= KEPT ? kept : new Scratch(count);
  let size = 0;

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
  }
  for (let place = 0; place + 1 < count; place++) push(place);

  while (size > 0) {
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
    // A place that was merged away has no successor; a pair that has changed since has another priority.
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
  for (let place = 0; place < count; place = next[place]) symbols[length++] = symbols[place];
  return length;
}
