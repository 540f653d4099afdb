import type { Sequence } from "./sequence.ts";

/** Waiting sequences by priority, each list in order of arrival. */
export class Queue {
  readonly interactive: Sequence[] = [];
  readonly batch: Sequence[] = [];
  /** Lists of waiting sequences by priority, the most urgent first. */
  readonly lists: readonly Sequence[][] = [this.interactive, this.batch];

  get length(): number {
    return this.interactive.length + this.batch.length;
  }

  /** Inserts a sequence in order of arrival. */
  insert(sequence: Sequence): void {
    const list = this.#listOf(sequence);
    const before = list.findLastIndex((other) => other.id < sequence.id);
    list.splice(before + 1, 0, sequence);
  }

  /** Removes a sequence. Returns whether it was in the queue. */
  take(sequence: Sequence): boolean {
    const list = this.#listOf(sequence);
    const index = list.indexOf(sequence);
    if (index >= 0) list.splice(index, 1);
    return index >= 0;
  }

  #listOf(sequence: Sequence): Sequence[] {
    return sequence.batch ? this.batch : this.interactive;
  }
}
