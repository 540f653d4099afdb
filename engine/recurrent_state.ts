import { KV_BLOCK_TOKENS, type StepState } from "./backend/backend.ts";
import type { RunningState, Sequence } from "./sequence.ts";

/**
 * Slots of recurrent state: one for each sequence that runs, and snapshots at block edges that others resume from.
 *
 * A recurrent state cannot be cut back to a shorter prefix, as KV blocks can. So a snapshot is taken where one is likely
 * to be wanted: at the last block edge of a prompt, where two prompts part, and at each block edge of an answer, whose
 * earlier ones are given up as it goes on. It belongs to the KV block that ends there, and goes when that leaves the
 * prefix index, or when a newer one needs the slot, least recently used first.
 * There are as many slots for running sequences as can run, so whoever is admitted finds one.
 */
export class RecurrentStates {
  readonly #mostSnapshots: number;
  /** Slots that sequences with drafts may still take. */
  #forDrafts: number;
  readonly #free: number[];
  /** Slot of the snapshot after a KV block; least recently used first. */
  readonly #snapshots = new Map<number, number>();
  /** Slots that steps under way save to. */
  #saving = 0;
  /** How many sequences have yet to resume from a slot. */
  readonly #readers = new Map<number, number>();

  /** More slots than sequences can run at once, and `drafts` of them can have drafts. */
  constructor(slots: number, parallel: number, drafts = 0) {
    this.#mostSnapshots = slots - parallel - drafts;
    this.#forDrafts = drafts;
    this.#free = Array.from({ length: slots }, (_, i) => slots - 1 - i);
  }

  get snapshots(): number {
    return this.#snapshots.size;
  }

  /** Whether there is a snapshot after this KV block. */
  has(block: number): boolean {
    return this.#snapshots.has(block);
  }

  /** The slot of the snapshot after this KV block. */
  slotOf(block: number): number | undefined {
    return this.#snapshots.get(block);
  }

  /**
   * Gives a sequence its slot. It resumes from the snapshot after the last block of `shared`, if there is one; `known` are
   * in the index.
   */
  start(sequence: Sequence, shared: readonly number[], known: number): void {
    const last = shared.at(-1);
    const source = last === undefined || !this.has(last) ? undefined : this.#use(last);
    const slot = this.#free.pop()!;
    const state: RunningState = {
      slot,
      source,
      marks: new Set(),
      saves: [],
      answer: undefined,
      draft: undefined,
    };
    sequence.state = state;
    this.mark(sequence, known * KV_BLOCK_TOKENS);
    // What came without being sampled belongs to the answer.
    const end = sequence.admittedAt === undefined ? sequence.promptLength : sequence.length;
    const edge = Math.floor((end - 1) / KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS;
    this.mark(sequence, edge);
    // What a template adds behind the last message may reach across an edge: the next prompt parts before it.
    if (sequence.keeps) this.mark(sequence, edge - KV_BLOCK_TOKENS);
  }

  /** A slot for the state at the sequence's end, which it waits for: a snapshot's, or else its own. */
  reserve(sequence: Sequence): number {
    const state = sequence.state!;
    const slot = this.#takeForSnapshot();
    if (slot !== undefined) state.saves.push({ position: sequence.cached, slot });
    return slot ?? state.slot;
  }

  /** What `reserve` gave has been written. The sequence's blocks are in the index. */
  restored(sequence: Sequence): void {
    const state = sequence.state!;
    if (state.saves.length === 0) return; // it resumes from its own slot
    this.#keepSaves(sequence);
    state.source = this.#use(sequence.blocks[sequence.cached / KV_BLOCK_TOKENS - 1]);
  }

  /** Wants a snapshot of the sequence at this block edge, if it is still ahead. */
  mark(sequence: Sequence, position: number): void {
    if (position > sequence.cached) sequence.state!.marks.add(position);
  }

  /** What the sequence's next `rows` rows do with its state. */
  step(sequence: Sequence, rows: number): StepState {
    const state = sequence.state!;
    const end = sequence.cached + rows;
    for (const position of [...state.marks].filter((mark) => mark <= end).sort((a, b) => a - b)) {
      state.marks.delete(position);
      if (position > sequence.promptLength && !this.#followsAnswer(state)) continue;
      const slot = this.#takeForSnapshot();
      if (slot !== undefined) state.saves.push({ position, slot });
    }
    return {
      read: sequence.cached === 0 ? undefined : state.source ?? state.slot,
      write: state.slot,
      saves: state.saves.map(({ position, slot }) => ({ after: position - sequence.cached, slot })),
    };
  }

  /** Rows of drafts that the sequence can have behind its next `rows`: the rows at a mark are computed without any. */
  draftRoom(sequence: Sequence, rows: number): number {
    const { marks, saves } = sequence.state!;
    if (this.#forDrafts === 0 || saves.length > 0) return 0;
    const end = sequence.cached + rows;
    return Math.max(0, Math.min(...marks) - 1 - end);
  }

  /**
   * What the sequence's next rows do with its state where drafts are among them: it stays as it is until they are known to be
   * right, and what comes of them is put into another slot.
   */
  draft(sequence: Sequence, rows: number): StepState {
    const state = sequence.state!;
    this.#dropDraft(state); // of a step that was stopped
    const { read } = this.step(sequence, rows);
    state.draft = this.#free.pop()!;
    this.#forDrafts--;
    return { read, write: state.draft, saves: [] };
  }

  /** The rows have been computed: the state after them is the sequence's where all its drafts were right. Else false. */
  drafted(sequence: Sequence, right: boolean): boolean {
    const state = sequence.state!;
    if (right) [state.slot, state.draft] = [state.draft!, state.slot];
    this.#dropDraft(state);
    return right;
  }

  #dropDraft(state: RunningState): void {
    if (state.draft === undefined) return;
    this.#free.push(state.draft);
    this.#forDrafts++;
    state.draft = undefined;
  }

  /** A step has been computed, and `cached` and `indexed` have moved. */
  advance(sequence: Sequence): void {
    this.#dropSource(sequence.state!);
    this.#keepSaves(sequence);
    if (sequence.cached < sequence.promptLength) return;
    this.mark(sequence, (Math.floor(sequence.cached / KV_BLOCK_TOKENS) + 1) * KV_BLOCK_TOKENS);
  }

  #keepSaves(sequence: Sequence): void {
    const state = sequence.state!;
    for (const { position, slot } of state.saves) {
      const edge = position / KV_BLOCK_TOKENS;
      const block = sequence.blocks[edge - 1];
      this.#saving--;
      if (edge > sequence.indexed || this.#snapshots.has(block)) this.#free.push(slot);
      else this.#snapshots.set(block, slot);
      if (position > sequence.promptLength) state.answer = block;
    }
    state.saves = [];
  }

  /**
   * Whether another snapshot of the answer is taken. It takes the place of the one before, unless somebody is about to resume
   * from that; where that is gone already, others need the slots more. So an answer, however long, displaces one snapshot at most.
   */
  #followsAnswer(state: RunningState): boolean {
    if (this.#mostSnapshots === 1) return false; // it is the prompt's
    if (state.answer === undefined) return true;
    const slot = this.#snapshots.get(state.answer);
    if (slot !== undefined && !this.#readers.has(slot)) this.forget(state.answer);
    return slot !== undefined;
  }

  /** Takes back a sequence's slot; what it has saved stays. */
  release(sequence: Sequence): void {
    const state = sequence.state!;
    this.#dropSource(state);
    this.#dropDraft(state);
    this.#saving -= state.saves.length;
    this.#free.push(state.slot, ...state.saves.map(({ slot }) => slot));
    sequence.state = undefined;
  }

  /** A KV block has left the prefix index. Nobody resumes from its snapshot: they would hold the block. */
  forget(block: number): void {
    const slot = this.#snapshots.get(block);
    if (slot === undefined) return;
    this.#snapshots.delete(block);
    this.#free.push(slot);
  }

  #use(block: number): number {
    const slot = this.#snapshots.get(block)!;
    this.#snapshots.delete(block);
    this.#snapshots.set(block, slot);
    this.#readers.set(slot, (this.#readers.get(slot) ?? 0) + 1);
    return slot;
  }

  #dropSource(state: RunningState): void {
    if (state.source === undefined) return;
    const readers = this.#readers.get(state.source)! - 1;
    if (readers > 0) this.#readers.set(state.source, readers);
    else this.#readers.delete(state.source);
    state.source = undefined;
  }

  /** Undefined where all snapshots are still to be resumed from. */
  #takeForSnapshot(): number | undefined {
    if (this.#snapshots.size + this.#saving >= this.#mostSnapshots) {
      const oldest = [...this.#snapshots].find(([, slot]) => !this.#readers.has(slot));
      if (!oldest) return undefined;
      this.forget(oldest[0]);
    }
    this.#saving++;
    return this.#free.pop();
  }
}
