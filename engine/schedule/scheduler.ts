import { KV_BLOCK_TOKENS } from "../backend/backend.ts";
import { KvCache } from "../cache/kv_cache.ts";
import { CarriedRows } from "../cache/carried_rows.ts";
import { RecurrentStates } from "../cache/recurrent_state.ts";
import { Fairness } from "./fairness.ts";
import { checkLimits, type EngineLimits } from "./limits.ts";
import { Queue } from "./queues.ts";
import type { Sequence } from "./sequence.ts";
import {
  awaitsDisk,
  isDecoding,
  isForced,
  isPrefilling,
  isSlow,
  partOf,
  type Scheduled,
  togetherRows,
} from "./step_part.ts";
import { StepRoom } from "./step_room.ts";
import type { Restorer, StoredPrefixes } from "../cache/stored_prefixes.ts";
import { EngineError } from "../api/errors.ts";

/** Number of decoding sequences up to which a step is limited by reading the weights on every backend. */
const FEW_ANSWERS = 8;
/** Default of `wholeRows`: a multiple of every kernel's row tile. */
const WHOLE_ROWS = 16;
/** The priorities, the most urgent one first. */
const PRIORITIES = ["interactive", "batch"] as const;

/**
 * Chooses the sequences of each step. All scheduling policy is here.
 *
 * Batching is continuous: each step takes the next token of the running sequences and fills up with chunks of
 * prompts. Forced tokens need rows too; a step takes many of them if that costs little. Interactive
 * sequences precede batch ones, decodes precede prefills, the tenant that was served least precedes others, and earlier
 * ones precede later ones. Waiting sequences are admitted in the same order (`Fairness`). A sequence that lacks memory
 * stops all sequences behind it; if its tenant runs other sequences, only those of the same tenant.
 *
 * A running sequence takes KV blocks as it grows. If no block is left, the latest batch sequence is preempted, then the
 * latest interactive one of the tenant that was served most. A preempted sequence waits in its order of arrival and
 * computes its tokens again when it is readmitted. A waiting interactive sequence preempts batch sequences too, for a
 * place or for memory. For a place alone, it preempts one interactive sequence of a tenant that runs more than its
 * share. If its own tenant runs no sequence, it also preempts sequences that have run long, even for memory. Sequences with a slow reader do
 * not run and are preempted first, even by batch sequences.
 *
 * Pooled texts need memory but no place: the next step's rows limit how many run. In models with recurrent states,
 * pooled texts take places too, because each place has one state. Rows that one step must compute but that found too few rows left come first in the
 * next step.
 *
 * Part of what a preemption frees is taken at once, so a preempted sequence fits again only when others end or are
 * preempted. The earliest interactive sequence whose reader keeps up, or else the earliest batch one, is preempted only for
 * another tenant, after progress. One sequence always fits, so every sequence finishes.
 */
export class Scheduler implements Restorer {
  readonly cache: KvCache;
  /** Finds rows and memory for drafts, and for several steps at once. */
  readonly room: StepRoom;
  readonly #states: RecurrentStates | undefined;
  readonly #rows: CarriedRows | undefined;
  readonly #limits: EngineLimits;
  readonly #stepRows: number;
  readonly #waiting = new Queue();
  readonly #running = new Queue();
  readonly #fairness: Readonly<Record<typeof PRIORITIES[number], Fairness>>;
  #preemptions = 0;
  /** A sequence whose next rows one step must compute, and that did not fit in the last step. */
  #leftOut: Sequence | undefined;

  /** `stored` finds prompts on a disk. `released` is called with each sequence that has released its memory. */
  constructor(
    limits: EngineLimits,
    private readonly stored?: StoredPrefixes,
    private readonly released: (sequence: Sequence) => void = () => {},
  ) {
    checkLimits(limits);
    this.#limits = limits;
    this.#stepRows = limits.stepRows ?? limits.maxRows;
    this.#fairness = { interactive: new Fairness(limits.slice), batch: new Fairness(limits.slice) };
    const { stateSlots, draftSlots = 0, kvBlocks, kvCached, kvWindows: windows = [], maxRows } = limits;
    if (stateSlots && limits.carriesRows) this.#rows = new CarriedRows(stateSlots, draftSlots);
    else if (stateSlots) this.#states = new RecurrentStates(stateSlots, limits.parallel, draftSlots);
    this.cache = new KvCache(kvBlocks, this.#states, { windows, maxRows }, stored, kvCached);
    this.room = new StepRoom(limits, this.cache, this.#states ?? this.#rows, () => this.running);
    stored?.attach(this.cache);
  }

  get running(): number {
    return this.#running.length;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Number of preemptions of running sequences. */
  get preemptions(): number {
    return this.#preemptions;
  }

  /** Returns one place per sequence that can run; running sequences come first. */
  slots(): (Sequence | undefined)[] {
    const { interactive, batch } = this.#running;
    return Array.from(
      { length: this.#limits.parallel },
      (_, i) => interactive[i] ?? batch[i - interactive.length],
    );
  }

  /** All running and waiting sequences. */
  sequences(): Sequence[] {
    const { interactive, batch } = this.#running;
    return [...interactive, ...batch, ...this.#waiting.interactive, ...this.#waiting.batch];
  }

  /**
   * Queues a sequence. Throws EngineError queue_full. Up to `parallel` preempted sequences do not count towards the
   * queue. Pooled texts never count: their caller limits them. Each tenant may also have its share beyond a full queue,
   * so that others cannot keep it out.
   */
  add(sequence: Sequence): void {
    const { parallel, queue } = this.#limits;
    if (!sequence.pooled) {
      const [running, waiting] = [this.#running, this.#waiting].map(({ interactive, batch }) =>
        [...interactive, ...batch].filter(({ pooled }) => pooled === undefined)
      );
      const preempted = waiting.filter(({ admission }) => admission.at !== undefined).length;
      const queued = waiting.length - Math.min(preempted, parallel);
      const isFull = queued >= queue + Math.max(0, parallel - running.length - preempted);
      if (
        isFull && waiting.filter(({ salt }) => salt === sequence.salt).length >= this.#part(sequence, waiting)
      ) {
        throw new EngineError("queue_full", `The queue is full (${queued} waiting): try again later`);
      }
    }
    this.#fairness[priorityOf(sequence)].enter(sequence);
    this.#waiting.insert(sequence);
  }

  /** Returns the tenant's share of the queue, which is divided evenly among the tenants with waiting sequences. */
  #part({ salt }: Sequence, waiting: readonly Sequence[]): number {
    return Math.floor(this.#limits.queue / new Set([salt, ...waiting.map((other) => other.salt)]).size);
  }

  /** Removes the sequence, running or waiting, and frees its memory. */
  remove(sequence: Sequence): void {
    this.#fairness[priorityOf(sequence)].leave(sequence);
    this.#waiting.take(sequence);
    if (!this.#running.take(sequence)) return;
    if (!sequence.disk.restoring) this.#offerEnd(sequence);
    this.#release(sequence);
  }

  /** Offers the sequence's last block edges to the disk, because the next turn of a chat begins with this answer. */
  #offerEnd(sequence: Sequence): void {
    const { kv: { blocks, indexed }, promptLength, state } = sequence;
    if (!this.stored) return;
    const answer = state?.answer === undefined ? 0 : blocks.subarray(0, indexed).indexOf(state.answer) + 1;
    const prompt = Math.floor((promptLength - 1) / KV_BLOCK_TOKENS);
    this.stored.edge(sequence, prompt);
    this.stored.edge(sequence, state ? answer : indexed);
  }

  /** Lets the sequence run after its prefix was read. */
  restored(sequence: Sequence): void {
    this.#states?.restored(sequence);
    this.#begin(sequence);
  }

  /** Queues the sequence again after its prefix could not be read. */
  giveBack(sequence: Sequence): void {
    this.#rows?.release(sequence);
    this.cache.release(sequence);
    this.#running.take(sequence);
    this.#waiting.insert(sequence);
  }

  /**
   * Returns the next step; empty if nothing can run. It has at most `rows` rows, or one row per running sequence if
   * that is more.
   */
  schedule(rows = Infinity): Scheduled[] {
    this.#grow();
    this.#admit();
    const step: Scheduled[] = [];
    let rowsLeft = Math.min(this.#stepRows, Math.max(rows, this.running));
    let logitsLeft = this.#limits.maxLogitRows;
    let forcedLeft = this.#forcedRows();
    const first = this.#leftOut;
    this.#leftOut = undefined;
    for (const sequence of this.#inOrder(first)) {
      const whole = togetherRows(sequence);
      if (step.length === 0) rowsLeft = Math.max(rowsLeft, Math.min(whole, this.#limits.maxRows));
      const forced = isForced(sequence);
      const part = partOf(sequence, forced ? Math.min(rowsLeft, 1 + forcedLeft) : rowsLeft, logitsLeft);
      if (part.rows === 0) {
        if (whole > 0) this.#leftOut ??= sequence;
        continue;
      }
      if (forced) forcedLeft -= part.rows - 1;
      rowsLeft -= part.rows;
      logitsLeft -= part.scores + (part.samples ? 1 : 0);
      step.push({ ...part, state: (this.#states ?? this.#rows)?.step(sequence, part.rows) });
    }
    return step;
  }

  /** Updates a sequence after its part of a step was computed. `right`: number of correct drafts. */
  advance({ sequence, rows, drafts }: Scheduled, right = 0): void {
    const states = this.#states ?? this.#rows;
    const kept = states && drafts.length > 0 ? states.drafted(sequence, right, drafts.length) : right;
    if (kept === undefined) return;
    this.cache.advance(sequence, rows + kept);
    this.#states?.advance(sequence);
    this.#fairness[priorityOf(sequence)].charge(sequence, rows + kept);
  }

  /**
   * Returns how many rows forced tokens may take in the next step, beside one row per decoding sequence. With few
   * decoding sequences the step is bound by reading the weights, so all forced tokens may run. With more sequences,
   * forced tokens only fill the step to whole rows.
   */
  #forcedRows(): number {
    let answering = 0;
    let forced = 0;
    for (const running of this.#running.lists) {
      for (const sequence of running) {
        if (isSlow(sequence) || awaitsDisk(sequence) || isPrefilling(sequence)) continue;
        answering++;
        forced += sequence.length - sequence.kv.cached - 1;
      }
    }
    if (answering <= FEW_ANSWERS) return forced;
    const { wholeRows = WHOLE_ROWS } = this.#limits;
    const whole = (rows: number) => rows - rows % wholeRows;
    return Math.min(
      forced,
      Math.max(whole(answering + wholeRows - 1), whole(answering + forced)) - answering,
    );
  }

  /** Yields the running sequences by urgency, with `first` before all others if it runs. */
  *#inOrder(first: Sequence | undefined): Iterable<Sequence> {
    if (first && this.#running.lists.some((running) => running.includes(first))) yield first;
    for (const priority of PRIORITIES) {
      const ready = this.#running[priority].filter((sequence) =>
        sequence !== first && !isSlow(sequence) && !awaitsDisk(sequence)
      );
      yield* ready.filter(isDecoding);
      yield* ready.filter(isForced);
      yield* this.#fairness[priority].byService(ready.filter(isPrefilling));
    }
  }

  /** Gives each running sequence a block for its next token. Without a free block, preempts another sequence, or this one. */
  #grow(): void {
    for (const priority of PRIORITIES) {
      const running = this.#running[priority];
      for (let i = 0; i < running.length; i++) {
        const sequence = running[i];
        if (sequence.stream.full) continue;
        while (i >= 0 && !this.cache.extend(sequence, sequence.length)) {
          this.#preempt(this.#victims(sequence)[0] ?? this.#fairness[priority].last(running));
          i = running.indexOf(sequence); // -1 if the sequence itself was preempted: the loop starts again
        }
      }
    }
  }

  #admit(): void {
    for (const priority of PRIORITIES) if (!this.#admitAll(priority)) return;
  }

  /** Admits sequences of a priority. Returns false if memory is short, so that less urgent sequences must wait. */
  #admitAll(priority: typeof PRIORITIES[number]): boolean {
    const [waiting, running] = [this.#waiting[priority], this.#running[priority]];
    /** Tenants whose sequences cannot start, by kind of place; in both sets if memory is short. */
    const without = { text: new Set<string>(), answer: new Set<string>() };
    let short = false;
    const admitOne = () => {
      for (const sequence of this.#fairness[priority].order(waiting, running)) {
        const tenants = without[this.#takesPlace(sequence) ? "answer" : "text"];
        if (tenants.has(sequence.salt) || sequence.stream.full || this.#isHeld(sequence)) continue;
        const found = this.#findPlace(sequence);
        if (found === "found") return this.#start(sequence), true;
        tenants.add(sequence.salt);
        if (found === "no place") continue;
        short = true;
        if (!running.some(({ salt }) => salt === sequence.salt)) return false;
        for (const kind of Object.values(without)) kind.add(sequence.salt);
      }
      return false;
    };
    while (admitOne());
    return !short;
  }

  #takesPlace({ pooled }: Sequence): boolean {
    return pooled === undefined || this.#limits.stateSlots !== undefined;
  }

  #start(sequence: Sequence): void {
    const restore = this.cache.admit(sequence);
    this.#rows?.start(sequence);
    this.#waiting.take(sequence);
    this.#running.insert(sequence);
    sequence.admission.length = sequence.length;
    if (restore) this.stored!.fetch(sequence, restore);
    else this.#begin(sequence);
  }

  #begin(sequence: Sequence): void {
    if (sequence.admission.at !== undefined) return;
    sequence.admission.at = performance.now();
    sequence.admission.reused = Math.min(sequence.kv.cached, sequence.promptLength);
  }

  /**
   * Returns whether the sequence should wait while a running sequence computes their common prefix. The running
   * sequence must be at least as urgent, and its reader not slow.
   */
  #isHeld(sequence: Sequence): boolean {
    const computes = (other: Sequence) => !other.stream.full && this.cache.isComputing(other, sequence);
    return this.#running.interactive.some(computes) || (sequence.batch && this.#running.batch.some(computes));
  }

  /** Returns whether the sequence can be admitted now. Preempts others only if that makes it fit. */
  #findPlace(sequence: Sequence): "found" | "no place" | "no memory" {
    const victims = this.#victims(sequence);
    let [places, rows] = [this.#limits.parallel, 0];
    let taken = 0;
    let blocks = 0;
    let spare = this.cache.growth(sequence);
    for (const running of this.#running.lists) {
      for (const other of running) {
        if (this.#takesPlace(other)) taken++;
        else rows += other.length - other.kv.cached;
        if (!victims.includes(other)) spare += this.cache.growth(other);
        else {
          if (this.#takesPlace(other)) places++;
          blocks += this.cache.held(other);
        }
      }
    }
    const takes = this.#takesPlace(sequence);
    const yielding = takes && taken >= places && !sequence.batch
      ? this.#fairness.interactive.yielding(sequence, this.#running.interactive.toReversed())
      : undefined;
    if (takes ? taken >= places && !yielding : rows >= this.#stepRows) return "no place";
    const fits = () => this.cache.missing(sequence, spare) <= blocks;
    if (!fits()) {
      const { interactive } = this.#running;
      const longest = sequence.batch
        ? []
        : this.#fairness.interactive.ranLong(sequence, interactive.toReversed());
      for (const other of longest) {
        victims.push(other);
        blocks += this.cache.held(other);
        spare -= this.cache.growth(other);
        if (fits()) break;
      }
      if (!fits()) return yielding ? "no place" : "no memory";
    } else if (yielding) {
      victims.push(yielding);
    }
    for (;;) {
      const placeless = takes && taken >= this.#limits.parallel;
      if (!placeless && this.cache.missing(sequence, spare) <= 0) return "found";
      const next = victims.findIndex((other) => !placeless || this.#takesPlace(other));
      if (next < 0) return placeless ? "no place" : "no memory"; // sequences that stay share the released blocks
      const [victim] = victims.splice(next, 1);
      if (this.#takesPlace(victim)) taken--;
      this.#preempt(victim);
    }
  }

  /** Returns the running sequences that are preempted in favour of `sequence`, in this order. */
  #victims(sequence: Sequence): Sequence[] {
    const [interactive, batch] = PRIORITIES.map((priority) => this.#running[priority].toReversed());
    const keepsUp = sequence.batch ? [] : batch.filter((other) => !isSlow(other));
    return [...batch.filter(isSlow), ...keepsUp, ...interactive.filter(isSlow)];
  }

  #release(sequence: Sequence): void {
    this.#rows?.release(sequence);
    this.cache.release(sequence);
    this.released(sequence);
  }

  #preempt(sequence: Sequence): void {
    this.#preemptions++;
    this.#release(sequence);
    this.#running.take(sequence);
    this.#waiting.insert(sequence);
  }
}

function priorityOf({ batch }: Sequence): typeof PRIORITIES[number] {
  return batch ? "batch" : "interactive";
}
