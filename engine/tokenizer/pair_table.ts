/**
 * Maps pairs of symbols to their merged symbol and priority. It is a hash table in typed arrays, because a vocabulary
 * has up to millions of pairs.
 */
export class PairTable {
  #mask: number;
  #size = 0;
  #left: Int32Array;
  #right: Int32Array;
  /** Priority of the pair in each slot, as `find` returns slots. */
  priority: Int32Array;
  merged: Int32Array;

  constructor(expected: number) {
    const capacity = 1 << Math.ceil(Math.log2(Math.max(16, expected * 2)));
    this.#mask = capacity - 1;
    this.#left = new Int32Array(capacity).fill(-1);
    this.#right = new Int32Array(capacity);
    this.priority = new Int32Array(capacity);
    this.merged = new Int32Array(capacity);
  }

  /** Returns the slot of a pair; -1 if absent. */
  find(left: number, right: number): number {
    for (let slot = this.#hash(left, right);; slot = (slot + 1) & this.#mask) {
      const found = this.#left[slot];
      if (found === -1) return -1;
      if (found === left && this.#right[slot] === right) return slot;
    }
  }

  /** Adds a pair, unless it exists. Pairs with lower priorities merge first. */
  add(left: number, right: number, priority: number, merged: number): void {
    if (this.#size * 2 > this.#mask) this.#grow();
    let slot = this.#hash(left, right);
    while (this.#left[slot] !== -1) {
      if (this.#left[slot] === left && this.#right[slot] === right) return;
      slot = (slot + 1) & this.#mask;
    }
    this.#left[slot] = left;
    this.#right[slot] = right;
    this.priority[slot] = priority;
    this.merged[slot] = merged;
    this.#size++;
  }

  #hash(left: number, right: number): number {
    let hash = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca77);
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
    return (hash ^ (hash >>> 13)) & this.#mask;
  }

  #grow(): void {
    const larger = new PairTable(this.#mask + 1);
    for (let slot = 0; slot <= this.#mask; slot++) {
      const left = this.#left[slot];
      if (left !== -1) larger.add(left, this.#right[slot], this.priority[slot], this.merged[slot]);
    }
    this.#mask = larger.#mask;
    this.#left = larger.#left;
    this.#right = larger.#right;
    this.priority = larger.priority;
    this.merged = larger.merged;
  }
}
