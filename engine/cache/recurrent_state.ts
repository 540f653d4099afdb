import { KV_BLOCK_TOKENS, type StepState } from "../backend/backend.ts";
import type { RunningState, Sequence } from "../schedule/sequence.ts";

/**
 * Slots of recurrent state: one per running sequence, and snapshots at block edges that later sequences resume from.
 *
 * A recurrent state cannot be cut back to a shorter prefix, as KV blocks can. So snapshots are taken where they will
 * likely be needed:
 * - at the last block edge of a prompt;
 * - where two prompts diverge;
 * - at each block edge of an answer, replacing the answer's earlier snapshot.
 *
 * A snapshot belongs to the KV block that ends there. It is dropped when that block leaves the prefix index, or when
 * a newer snapshot needs the slot, least recently used first. There is a slot for every sequence that can run, so an
 * admitted sequence always finds one.
 */
export class RecurrentStates {
  readonly #mostSnapshots: number;
  /** Number of slots for steps with drafts, and the number of free ones. */
  readonly #draftSlots: number;
  #forDrafts: number;
  #running = 0;
  readonly #free: number[];
  /** Slot of the snapshot after a KV block, least recently used first. */
  readonly #snapshots = new Map<number, number>();
  /** Number of slots in which the current step stores snapshots. */
  #saving = 0;
  /** Number of waiting sequences that will resume from each snapshot slot. */
  readonly #readers = new Map<number, number>();

  /** `slots` must exceed `parallel` + `drafts`. `drafts`: number of slots for steps with drafts. */
  constructor(slots: number, parallel: number, drafts = 0) {
    this.#mostSnapshots = slots - parallel - drafts;
    this.#draftSlots = this.#forDrafts = drafts;
    this.#free = Array.from({ length: slots }, (_, i) => slots - 1 - i);
  }

  get snapshots(): number {
    return this.#snapshots.size;
  }

  /** Whether there is a snapshot after this KV block. */
  has(block: number): boolean {
    return this.#snapshots.has(block);
  }

  /** Returns the slot of the snapshot after this KV block. */
  slotOf(block: number): number | undefined {
    return this.#snapshots.get(block);
  }

  /**
   * Gives a sequence its state slot. The sequence resumes from the snapshot after the last block of `shared`, if any.
   * `known` is the number of its leading blocks in the index.
   */
  start(sequence: Sequence, shared: readonly number[], known: number): void {
    const last = shared.at(-1);
    const source = last === undefined || !this.has(last) ? undefined : this.#use(last);
    const slot = this.#free.pop()!;
    const state: RunningState = {
      slot,
      source,
      snapshotEdges: new Set(),
      saves: [],
      answer: undefined,
      drafted: [],
    };
    sequence.state = state;
    this.#running++;
    this.mark(sequence, known * KV_BLOCK_TOKENS);
    // When a sequence starts, forced tokens after the prompt belong to the answer. After a preemption, all tokens count
    // as prompt.
    const end = sequence.admission.at === undefined ? sequence.promptLength : sequence.length;
    const edge = Math.floor((end - 1) / KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS;
    this.mark(sequence, edge);
    // The template's text after the last message may cross an edge, so the next prompt diverges before that edge.
    if (sequence.disk.mustStore) this.mark(sequence, edge - KV_BLOCK_TOKENS);
  }

  /**
   * Returns a slot for the recurrent state that the sequence reads from disk: a snapshot's slot if possible, else the
   * sequence's own.
   */
  reserve(sequence: Sequence): number {
    const state = sequence.state!;
    const slot = this.#takeForSnapshot();
    if (slot !== undefined) state.saves.push({ position: sequence.kv.cached, slot });
    return slot ?? state.slot;
  }

  /** Call after the state was written to the slot of `reserve` and the sequence's blocks are indexed. */
  restored(sequence: Sequence): void {
    const state = sequence.state!;
    if (state.saves.length === 0) return; // nothing to save: the sequence resumes from its own slot
    this.#keepSaves(sequence);
    state.source = this.#use(sequence.kv.blocks[sequence.kv.cached / KV_BLOCK_TOKENS - 1]);
  }

  /** Requests a snapshot at a block edge, unless the sequence has passed that edge. */
  mark(sequence: Sequence, position: number): void {
    if (position > sequence.kv.cached) sequence.state!.snapshotEdges.add(position);
  }

  /** Returns the state slots that the sequence's next `rows` rows read, write and save. */
  step(sequence: Sequence, rows: number): StepState {
    const state = sequence.state!;
    const end = sequence.kv.cached + rows;
    for (const position of [...state.snapshotEdges].filter((mark) => mark <= end).sort((a, b) => a - b)) {
      state.snapshotEdges.delete(position);
      if (position > sequence.promptLength && !this.#followsAnswer(state)) continue;
      const slot = this.#takeForSnapshot();
      if (slot !== undefined) state.saves.push({ position, slot });
    }
    return {
      read: sequence.kv.cached === 0 ? undefined : state.source ?? state.slot,
      write: state.slot,
      saves: state.saves.map(({ position, slot }) => ({ after: position - sequence.kv.cached, slot })),
    };
  }

  /**
   * Returns the number of draft rows that may follow the sequence's next `rows` rows. Rows before a marked block edge
   * get no drafts.
   */
  draftRoom(sequence: Sequence, rows: number): number {
    const { snapshotEdges, saves } = sequence.state!;
    if (this.#forDrafts === 0 || saves.length > 0) return 0;
    const end = sequence.kv.cached + rows;
    return Math.max(0, Math.min(...snapshotEdges) - 1 - end);
  }

  /**
   * Returns the state access of a step with `rows` own rows of the sequence and `drafts` draft rows after them. The
   * current state stays unchanged until the drafts are verified. The step writes the state after all drafts to another
   * slot. If the sequence has further slots, the step also saves the states after the own rows and after the first drafts.
   */
  draft(sequence: Sequence, rows: number, drafts: number): StepState {
    const state = sequence.state!;
    this.#dropDrafts(state); // of a step that was stopped
    const { read } = this.step(sequence, rows);
    const share = Math.max(1, Math.floor(this.#draftSlots / this.#running));
    const slots = Math.min(drafts + 1, share, this.#forDrafts);
    state.drafted = Array.from({ length: slots }, () => this.#free.pop()!);
    this.#forDrafts -= slots;
    const saves = state.drafted.slice(0, -1).map((slot, i) => ({ after: rows + i, slot }));
    return { read, write: state.drafted[slots - 1], saves };
  }

  /**
   * Call after a step with drafts, `right` of which were right. The sequence continues from the last saved state that
   * includes only right drafts. Returns the number of drafts in that state. Returns undefined if the sequence must compute
   * its own rows again.
   */
  drafted(sequence: Sequence, right: number, drafts: number): number | undefined {
    const state = sequence.state!;
    const last = state.drafted.length - 1;
    const kept = right === drafts ? last : Math.min(right, last - 1);
    if (kept >= 0) [state.slot, state.drafted[kept]] = [state.drafted[kept], state.slot];
    this.#dropDrafts(state);
    return kept < 0 ? undefined : right === drafts ? drafts : kept;
  }

  #dropDrafts(state: RunningState): void {
    this.#free.push(...state.drafted);
    this.#forDrafts += state.drafted.length;
    state.drafted = [];
  }

  /** Call after a step was computed and the sequence's `cached` and `indexed` were updated. */
  advance(sequence: Sequence): void {
    this.#dropSource(sequence.state!);
    this.#keepSaves(sequence);
    if (sequence.kv.cached < sequence.promptLength) return;
    this.mark(sequence, (Math.floor(sequence.kv.cached / KV_BLOCK_TOKENS) + 1) * KV_BLOCK_TOKENS);
  }

  #keepSaves(sequence: Sequence): void {
    const state = sequence.state!;
    for (const { position, slot } of state.saves) {
      const edge = position / KV_BLOCK_TOKENS;
      const block = sequence.kv.blocks[edge - 1];
      this.#saving--;
      if (edge > sequence.kv.indexed || this.#snapshots.has(block)) this.#free.push(slot);
      else this.#snapshots.set(block, slot);
      if (position > sequence.promptLength) state.answer = block;
    }
    state.saves = [];
  }

  /**
   * Returns whether to take another snapshot of the answer in place of its previous one. Returns false while a sequence
   * waits for the previous one, or if it was evicted: others need the slots more. An answer thus displaces at most one
   * snapshot.
   */
  #followsAnswer(state: RunningState): boolean {
    if (this.#mostSnapshots === 1) return false; // the only snapshot belongs to the prompt
    if (state.answer === undefined) return true;
    const slot = this.#snapshots.get(state.answer);
    if (slot !== undefined && !this.#readers.has(slot)) this.forget(state.answer);
    return slot !== undefined;
  }

  /** Frees a sequence's state slot. Its snapshots stay. */
  release(sequence: Sequence): void {
    const state = sequence.state!;
    this.#dropSource(state);
    this.#dropDrafts(state);
    this.#running--;
    this.#saving -= state.saves.length;
    this.#free.push(state.slot, ...state.saves.map(({ slot }) => slot));
    sequence.state = undefined;
  }

  /**
   * Drops the snapshot of a KV block that left the index. No sequence resumes from it, since it would hold the block.
   */
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

  /** Takes a slot for a snapshot. Returns undefined if sequences have yet to resume from all snapshots. */
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
