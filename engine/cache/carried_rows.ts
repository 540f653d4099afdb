import type { StepState } from "../backend/backend.ts";
import type { Sequence } from "../schedule/sequence.ts";

/** The slots of a running sequence. */
interface Carried {
  /** Holds the row of the last computed token. */
  slot: number;
  /** Number of tokens with which the sequence began. The row before the next one is not known there. */
  readonly began: number;
  /** Slots of the current step: the row after the sequence's own rows, then the row after each of its drafts. */
  drafted: number[];
}

/**
 * Slots of state for models whose only state is the row that their drafting layer carries to the next token.
 *
 * The row changes drafts, never an answer. So no snapshots are taken: a sequence that continues a cached prefix
 * begins with zeros. The row is small, so a step with drafts saves the one after each draft, and the sequence goes on
 * with that of its last right draft.
 */
export class CarriedRows {
  readonly #free: number[];
  /** A slot that is never written. */
  readonly #zeros: number;
  /** Slots still available to drafts. */
  #forDrafts: number;
  readonly #carried = new Map<Sequence, Carried>();

  /** `slots` must exceed the number of sequences that can run by more than `drafts`, the slots for drafts. */
  constructor(slots: number, drafts: number) {
    this.#zeros = slots - 1;
    this.#free = Array.from({ length: slots - 1 }, (_, i) => slots - 2 - i);
    this.#forDrafts = drafts;
  }

  /** Gives an admitted sequence its slot. */
  start(sequence: Sequence): void {
    this.#carried.set(sequence, { slot: this.#free.pop()!, began: sequence.kv.cached, drafted: [] });
  }

  /** Returns what the sequence's next rows read and write. */
  step(sequence: Sequence): StepState {
    const { slot } = this.#dropDrafts(sequence);
    return { read: this.#readOf(sequence), write: slot, saves: [] };
  }

  /** Returns how many draft rows the sequence can have. */
  draftRoom(): number {
    return Math.max(0, this.#forDrafts - 1);
  }

  /** Returns the state access of the sequence's next `rows` rows with `drafts` drafts behind them. */
  draft(sequence: Sequence, rows: number, drafts: number): StepState {
    const { drafted } = this.#dropDrafts(sequence);
    for (let i = 0; i <= drafts; i++) drafted.push(this.#free.pop()!);
    this.#forDrafts -= drafts + 1;
    const saves = drafted.slice(0, -1).map((slot, i) => ({ after: rows + i, slot }));
    return { read: this.#readOf(sequence), write: drafted[drafts], saves };
  }

  /** Call after a step with drafts. `right`: number of right drafts, which is returned. */
  drafted(sequence: Sequence, right: number): number {
    const carried = this.#carried.get(sequence)!;
    [carried.slot, carried.drafted[right]] = [carried.drafted[right], carried.slot];
    this.#dropDrafts(sequence);
    return right;
  }

  /** Frees a sequence's slots. */
  release(sequence: Sequence): void {
    this.#free.push(this.#dropDrafts(sequence).slot);
    this.#carried.delete(sequence);
  }

  #readOf(sequence: Sequence): number | undefined {
    const { began, slot } = this.#carried.get(sequence)!;
    const { cached } = sequence.kv;
    return cached === 0 ? undefined : cached === began ? this.#zeros : slot;
  }

  /** Frees the slots of drafts; there are some left if a step was stopped. */
  #dropDrafts(sequence: Sequence): Carried {
    const carried = this.#carried.get(sequence)!;
    this.#free.push(...carried.drafted);
    this.#forDrafts += carried.drafted.length;
    carried.drafted = [];
    return carried;
  }
}
