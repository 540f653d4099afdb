import { KV_BLOCK_TOKENS } from "../backend/backend.ts";
import { KvCache } from "../cache/kv_cache.ts";
import { RecurrentStates } from "../cache/recurrent_state.ts";
import { checkLimits, type EngineLimits } from "./limits.ts";
import { Queue } from "./queues.ts";
import { grown, type Sequence } from "./sequence.ts";
import {
  awaitsDisk,
  givesWay,
  isDecoding,
  isForced,
  isPrefilling,
  isSlow,
  partOf,
  type Scheduled,
} from "./step_part.ts";
import type { Restorer, StoredPrefixes } from "../cache/stored_prefixes.ts";
import { EngineError } from "../api/errors.ts";

/** Up to this many decoding sequences, a step is bound by reading the weights on every backend. */
const FEW_ANSWERS = 8;
/** Default of `wholeRows`: a multiple of every kernel's register tile. */
const WHOLE_ROWS = 16;

/**
 * Chooses the sequences of each step. All scheduling policy is here.
 *
 * Batching is continuous: each step takes the next token of the running sequences and fills up with chunks of
 * prompts. Forced tokens need rows too; a step takes many of a sequence where that costs little. Interactive
 * sequences precede batch ones, earlier ones precede later ones, and decodes precede prefills. Waiting sequences are
 * admitted in the same order. A sequence that does not fit stops all sequences behind it.
 *
 * A running sequence takes KV blocks as it grows. If no block is left, the latest batch sequence is preempted, then
 * the latest interactive one. A preempted sequence waits in its order of arrival and computes its tokens again when
 * it is readmitted. A waiting interactive sequence preempts batch sequences too, for a place or for memory. Sequences
 * with a slow reader do not run and are preempted first, even by batch sequences.
 *
 * Pooled texts need memory but no place: as many run as the next step has rows for. With recurrent states, which are
 * one per place, they take places too. A text that must be computed whole but found too few rows comes first in the
 * next step.
 *
 * Part of what a preemption frees is taken at once, so a preempted sequence fits again only when others end or are
 * preempted. The earliest interactive sequence whose reader keeps up, or else the earliest batch one, is never
 * preempted for memory. One sequence always fits, so every sequence finishes.
 */
export class Scheduler implements Restorer {
  readonly cache: KvCache;
  readonly #states: RecurrentStates | undefined;
  readonly #limits: EngineLimits;
  readonly #stepRows: number;
  readonly #waiting = new Queue();
  readonly #running = new Queue();
  #preemptions = 0;
  /** A text that must be computed whole and did not fit the last step. */
  #leftOut: Sequence | undefined;

  /** `stored` finds prompts on a disk. `released` is called with each sequence that no longer holds memory. */
  constructor(
    limits: EngineLimits,
    private readonly stored?: StoredPrefixes,
    private readonly released: (sequence: Sequence) => void = () => {},
  ) {
    checkLimits(limits);
    this.#limits = limits;
    this.#stepRows = limits.stepRows ?? limits.maxRows;
    const { stateSlots, parallel, draftSlots, kvWindows: windows = [] } = limits;
    this.#states = stateSlots === undefined
      ? undefined
      : new RecurrentStates(stateSlots, parallel, draftSlots);
    this.cache = new KvCache(limits.kvBlocks, this.#states, { windows, maxRows: limits.maxRows }, stored);
    stored?.attach(this.cache);
  }

  get running(): number {
    return this.#running.length;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Number of times that a running sequence was preempted. */
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
   * queue. Pooled texts never count: their caller limits them.
   */
  add(sequence: Sequence): void {
    const { parallel, queue } = this.#limits;
    if (!sequence.pooled) {
      const [running, waiting] = [this.#running, this.#waiting].map(({ interactive, batch }) =>
        [...interactive, ...batch].filter(({ pooled }) => pooled === undefined)
      );
      const preempted = waiting.filter(({ admission }) => admission.at !== undefined).length;
      const queued = waiting.length - Math.min(preempted, parallel);
      if (queued >= queue + Math.max(0, parallel - running.length - preempted)) {
        throw new EngineError("queue_full", `The queue is full (${queued} waiting): try again later`);
      }
    }
    this.#waiting.insert(sequence);
  }

  /** Removes the sequence, running or waiting, and frees its memory. */
  remove(sequence: Sequence): void {
    this.#waiting.take(sequence);
    if (!this.#running.take(sequence)) return;
    if (!sequence.disk.restoring) this.#offerEnd(sequence);
    this.#release(sequence);
  }

  /** Offers the sequence's last edges to the disk, because the next turn of a chat begins with this answer. */
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
    this.cache.release(sequence);
    this.#running.take(sequence);
    this.#waiting.insert(sequence);
  }

  /**
   * Returns the next step; empty when nothing can run. It has at most `rows` rows, or one row per running sequence if
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
      if (step.length === 0 && sequence.pooled?.whole) {
        rowsLeft = Math.max(rowsLeft, Math.min(sequence.length, this.#limits.maxRows));
      }
      const forced = isForced(sequence);
      const part = partOf(sequence, forced ? Math.min(rowsLeft, 1 + forcedLeft) : rowsLeft, logitsLeft);
      if (part.rows === 0) {
        if (sequence.pooled?.whole) this.#leftOut ??= sequence;
        continue;
      }
      if (forced) forcedLeft -= part.rows - 1;
      rowsLeft -= part.rows;
      logitsLeft -= part.scores + (part.samples ? 1 : 0);
      step.push({ ...part, state: this.#states?.step(sequence, part.rows) });
    }
    return step;
  }

  /**
   * Gives a step's sequences, which all decode, room for up to `further` similar steps. Returns for how many steps:
   * no sequence is preempted for them.
   */
  makeRoom(step: readonly Scheduled[], further: number): number {
    const lacking = (blocks: number, { sequence }: Scheduled) =>
      blocks + this.cache.lacking(sequence, sequence.length + further);
    while (further > 0 && step.reduce(lacking, 0) > this.cache.available) further >>= 1;
    if (further > 0) {
      for (const { sequence } of step) {
        this.cache.extend(sequence, sequence.length + further);
      }
    }
    return further;
  }

  /** Returns how many draft rows the step can carry. */
  draftRows(step: readonly Scheduled[]): number {
    let rows = this.#stepRows;
    let logits = this.#limits.maxLogitRows;
    for (const part of step) {
      rows -= part.rows;
      logits -= part.scores + (part.samples ? 1 : 0);
    }
    return Math.min(rows, logits);
  }

  /**
   * Returns how many draft rows the sequence can have in a step. Its last token needs none, and no sequence is
   * preempted for them.
   */
  draftRoom({ sequence, rows, samples }: Scheduled): number {
    if (!samples) return 0;
    const most = sequence.maxLength - sequence.length - 1;
    return Math.min(most, this.#states?.draftRoom(sequence, rows) ?? most);
  }

  /** Returns the part with as much of the draft as there is memory for; the part itself if there is none. */
  withDraft(part: Scheduled, draft: Int32Array): Scheduled {
    const { sequence, rows } = part;
    const { length, kv: { blockCount } } = sequence;
    let most = Math.min(draft.length, this.draftRoom(part));
    // Beyond its own blocks, the sequence takes only blocks that the others do not need next.
    const spare = this.cache.available - this.running;
    if (this.cache.lacking(sequence, length + most) > Math.max(0, spare)) {
      most = Math.min(most, blockCount * KV_BLOCK_TOKENS - length);
    }
    if (most <= 0 || !this.cache.extend(sequence, length + most)) return part;
    const state = this.#states?.draft(sequence, rows);
    const drafts = draft.slice(0, most);
    while (sequence.tokens.length < length + most) {
      sequence.tokens = grown(sequence.tokens, sequence.maxLength);
    }
    sequence.tokens.set(drafts, length);
    return { ...part, drafts, state };
  }

  /** Updates a sequence after its part of a step was computed. `right` is the number of correct drafts. */
  advance({ sequence, rows, drafts }: Scheduled, right = 0): void {
    if (drafts.length > 0 && this.#states?.drafted(sequence, right === drafts.length) === false) return;
    this.cache.advance(sequence, rows + right);
    this.#states?.advance(sequence);
  }

  /**
   * Returns how many rows forced tokens may take in the next step, beside one row per decoding sequence. With few
   * decoding sequences the step is bound by reading the weights, so all may run. With more, they only fill the step
   * to whole rows; the rest waits for later steps.
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
    for (const sequences of this.#running.lists) {
      const ready = sequences.filter((sequence) =>
        sequence !== first && !isSlow(sequence) && !awaitsDisk(sequence)
      );
      for (const urgency of [isDecoding, isForced, isPrefilling]) {
        for (const sequence of ready) if (urgency(sequence)) yield sequence;
      }
    }
  }

  /**
   * Gives each running sequence the block for its next token. A sequence that finds none preempts another, or itself.
   */
  #grow(): void {
    for (const running of this.#running.lists) {
      for (let i = 0; i < running.length; i++) {
        const sequence = running[i];
        if (sequence.stream.full) continue;
        while (!this.cache.extend(sequence, sequence.length)) {
          const victim = this.#victim(sequence) ?? running.at(-1)!;
          this.#preempt(victim);
          if (victim === sequence) return; // No other sequence is later than this one.
          i = running.indexOf(sequence);
        }
      }
    }
  }

  #admit(): void {
    const places = { text: true, answer: true };
    for (const kind of ["interactive", "batch"] as const) {
      const waiting = this.#waiting[kind];
      for (let i = 0; i < waiting.length && (places.text || places.answer);) {
        const sequence = waiting[i];
        const needs = this.#takesPlace(sequence) ? "answer" : "text";
        if (!places[needs] || sequence.stream.full || this.#isHeld(sequence)) {
          i++;
          continue;
        }
        const found = this.#findPlace(sequence);
        if (found === "no memory") return;
        if (found === "no place") places[needs] = false;
        else this.#start(sequence);
      }
    }
  }

  #takesPlace({ pooled }: Sequence): boolean {
    return pooled === undefined || this.#states !== undefined;
  }

  #start(sequence: Sequence): void {
    const restore = this.cache.admit(sequence);
    this.#waiting.take(sequence);
    this.#running.insert(sequence);
    if (restore) this.stored!.fetch(sequence, restore);
    else this.#begin(sequence);
  }

  #begin(sequence: Sequence): void {
    if (sequence.admission.at !== undefined) return;
    sequence.admission.at = performance.now();
    sequence.admission.reused = Math.min(sequence.kv.cached, sequence.promptLength);
  }

  /**
   * Whether the sequence should wait because a running sequence is computing their common prefix. That sequence must
   * be certain to reach it: it is at least as urgent, and its reader is not slow.
   */
  #isHeld(sequence: Sequence): boolean {
    const computes = (other: Sequence) => !other.stream.full && this.cache.isComputing(other, sequence);
    return this.#running.interactive.some(computes) || (sequence.batch && this.#running.batch.some(computes));
  }

  /** Returns whether the sequence can be admitted now, or what is missing. Preempts others only if that makes it fit. */
  #findPlace(sequence: Sequence): "found" | "no place" | "no memory" {
    let [places, rows] = [this.#limits.parallel, 0];
    let taken = 0;
    let blocks = 0;
    let spare = this.cache.growth(sequence);
    for (const running of this.#running.lists) {
      for (const other of running) {
        if (this.#takesPlace(other)) taken++;
        else rows += other.length - other.kv.cached;
        if (!givesWay(other, sequence)) spare += this.cache.growth(other);
        else {
          if (this.#takesPlace(other)) places++;
          blocks += this.cache.held(other);
        }
      }
    }
    const takes = this.#takesPlace(sequence);
    if (takes ? taken >= places : rows >= this.#stepRows) return "no place";
    if (this.cache.missing(sequence, spare) > blocks) return "no memory";
    for (;;) {
      const placeless = takes && taken >= this.#limits.parallel;
      if (!placeless && this.cache.missing(sequence, spare) <= 0) return "found";
      const victim = this.#victim(sequence, placeless);
      if (!victim) return placeless ? "no place" : "no memory"; // sequences that stay share the released blocks
      if (this.#takesPlace(victim)) taken--;
      this.#preempt(victim);
    }
  }

  /** Returns the sequence to preempt first in favour of `sequence`. With `placed`, only one that takes a place. */
  #victim(sequence: Sequence, placed = false): Sequence | undefined {
    const { interactive, batch } = this.#running;
    const suits = (other: Sequence) => !placed || this.#takesPlace(other);
    const slow = (other: Sequence) => isSlow(other) && suits(other);
    return batch.findLast(slow) ?? (sequence.batch ? undefined : batch.findLast(suits)) ??
      interactive.findLast(slow);
  }

  #release(sequence: Sequence): void {
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
