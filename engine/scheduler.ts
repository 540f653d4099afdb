import type { StepState } from "./backend/backend.ts";
import { KvCache } from "./kv_cache.ts";
import { RecurrentStates } from "./recurrent_state.ts";
import { isScoring, type Sequence, wantsToken } from "./sequence.ts";
import { EngineError } from "./types.ts";

export interface EngineLimits {
  /** Sequences that run at once. */
  readonly parallel: number;
  /** KV blocks in the pool. */
  readonly kvBlocks: number;
  /** Most rows (tokens) in one step. */
  readonly maxRows: number;
  /** Most rows in one step whose logits are wanted. */
  readonly maxLogitRows: number;
  /** Most requests that wait for a place. */
  readonly queue: number;
  /** Slots of recurrent state: more than `parallel`. Only of models with recurrent layers. */
  readonly stateSlots?: number;
}

/** A sequence's part of one step: its next `rows` tokens. */
export interface Scheduled {
  readonly sequence: Sequence;
  readonly rows: number;
  /** Rows whose next prompt token is to be scored. They end `rows` or stand just before the last row. */
  readonly scores: number;
  /** Whether the last row's logits choose a new token. */
  readonly samples: boolean;
  readonly state?: StepState;
}

/**
 * Who runs in the next step: all policy is here.
 *
 * Sequences run continuously: each step takes the next token of the running ones and fills up with chunks of prompts.
 * Interactive sequences come before batch ones in everything, earlier before later, decodes before prefills. Waiting
 * ones are admitted in that order too, and one that finds no place stops all behind it; an interactive one takes the
 * place of the latest batch one, which starts over later from what the prefix cache still has. Anyone takes the
 * place of a sequence whose reader is slow.
 */
export class Scheduler {
  readonly cache: KvCache;
  readonly #states: RecurrentStates | undefined;
  readonly #limits: EngineLimits;
  /** Each in order of arrival. */
  readonly #waiting: { interactive: Sequence[]; batch: Sequence[] } = { interactive: [], batch: [] };
  readonly #running: { interactive: Sequence[]; batch: Sequence[] } = { interactive: [], batch: [] };

  constructor(limits: EngineLimits) {
    for (const [name, value] of Object.entries(limits)) {
      const least = name === "queue" ? 0 : name === "stateSlots" ? limits.parallel + 1 : 1;
      if (value === undefined || (Number.isSafeInteger(value) && value >= least)) continue;
      throw new RangeError(
        `Invalid engine limit ${name}: found ${value}, allowed is a whole number from ${least}`,
      );
    }
    this.#limits = limits;
    const { stateSlots, parallel } = limits;
    this.#states = stateSlots === undefined ? undefined : new RecurrentStates(stateSlots, parallel);
    this.cache = new KvCache(limits.kvBlocks, this.#states);
  }

  get running(): number {
    return this.#running.interactive.length + this.#running.batch.length;
  }

  get waiting(): number {
    return this.#waiting.interactive.length + this.#waiting.batch.length;
  }

  /** All sequences, running and waiting. */
  sequences(): Sequence[] {
    const { interactive, batch } = this.#running;
    return [...interactive, ...batch, ...this.#waiting.interactive, ...this.#waiting.batch];
  }

  /** Throws EngineError queue_full. */
  add(sequence: Sequence): void {
    const free = this.#limits.parallel - this.running;
    if (this.waiting >= this.#limits.queue + free) {
      throw new EngineError("queue_full", `${this.waiting} requests are waiting already: try again later`);
    }
    insert(this.#waiting[classOf(sequence)], sequence);
  }

  /** Takes the sequence out, wherever it is, and gives back its memory. */
  remove(sequence: Sequence): void {
    take(this.#waiting[classOf(sequence)], sequence);
    if (take(this.#running[classOf(sequence)], sequence)) this.cache.release(sequence);
  }

  /** The next step; empty when nothing can run. */
  schedule(): Scheduled[] {
    this.#admit();
    const step: Scheduled[] = [];
    let rowsLeft = this.#limits.maxRows;
    let logitsLeft = this.#limits.maxLogitRows;
    for (const sequence of this.#inOrder()) {
      const part = partOf(sequence, rowsLeft, logitsLeft);
      if (part.rows === 0) continue;
      rowsLeft -= part.rows;
      logitsLeft -= part.scores + (part.samples ? 1 : 0);
      this.cache.extend(sequence, sequence.cached + part.rows);
      step.push({ ...part, state: this.#states?.step(sequence, part.rows) });
    }
    return step;
  }

  /** Gives a step's sequences room for the rows of further steps like it. */
  makeRoom(step: readonly Scheduled[], further: number): void {
    for (const { sequence, rows } of step) this.cache.extend(sequence, sequence.cached + rows + further);
  }

  /** A part of a step has been computed. */
  advance({ sequence, rows }: Scheduled): void {
    sequence.cached += rows;
    this.cache.share(sequence);
    this.#states?.advance(sequence);
  }

  *#inOrder(): Iterable<Sequence> {
    for (const sequences of [this.#running.interactive, this.#running.batch]) {
      const ready = sequences.filter((sequence) => !sequence.stream.full);
      for (const sequence of ready) if (isDecoding(sequence)) yield sequence;
      for (const sequence of ready) if (!isDecoding(sequence)) yield sequence;
    }
  }

  #admit(): void {
    for (const kind of ["interactive", "batch"] as const) {
      const waiting = this.#waiting[kind];
      for (let i = 0; i < waiting.length;) {
        const sequence = waiting[i];
        if (sequence.stream.full || this.#isHeld(sequence)) i++;
        else if (!this.#findPlace(sequence)) return;
        else this.#start(sequence);
      }
    }
  }

  #start(sequence: Sequence): void {
    take(this.#waiting[classOf(sequence)], sequence);
    insert(this.#running[classOf(sequence)], sequence);
    if (sequence.admittedAt !== undefined) return;
    sequence.admittedAt = performance.now();
    sequence.reused = sequence.cached;
  }

  /**
   * Whether the sequence should wait because one that runs now computes what both begin with. The one that runs must be
   * sure to go on: it is no less urgent, and its reader is not slow.
   */
  #isHeld(sequence: Sequence): boolean {
    const computes = (other: Sequence) => !other.stream.full && this.cache.isComputing(other, sequence);
    return this.#running.interactive.some(computes) || (sequence.batch && this.#running.batch.some(computes));
  }

  #findPlace(sequence: Sequence): boolean {
    while (this.running >= this.#limits.parallel || !this.cache.admit(sequence)) {
      const victim = this.#victim(sequence);
      if (!victim) return false;
      this.cache.release(victim);
      take(this.#running[classOf(victim)], victim);
      insert(this.#waiting[classOf(victim)], victim);
    }
    return true;
  }

  #victim(sequence: Sequence): Sequence | undefined {
    const slow = (other: Sequence) => other.stream.full;
    const { interactive, batch } = this.#running;
    return batch.findLast(slow) ?? (sequence.batch ? undefined : batch.at(-1)) ?? interactive.findLast(slow);
  }
}

/** What the sequence can do in a step with that many rows and logits left. */
function partOf(sequence: Sequence, rowsLeft: number, logitsLeft: number): Scheduled {
  const pending = sequence.length - sequence.cached;
  const scoring = isScoring(sequence);
  const firstToScore = scoring ? sequence.scores.length - 1 : 0; // its row gives the next token's score
  let rows = Math.min(pending, rowsLeft);
  if (scoring) rows = Math.min(rows, Math.max(0, firstToScore - sequence.cached) + logitsLeft);
  else if (rows === pending && wantsToken(sequence) && logitsLeft === 0) rows--;
  const end = sequence.cached + rows;
  return {
    sequence,
    rows,
    scores: scoring ? Math.max(0, Math.min(end, sequence.promptLength - 1) - firstToScore) : 0,
    samples: end === sequence.length && wantsToken(sequence),
  };
}

function isDecoding(sequence: Sequence): boolean {
  return sequence.length - sequence.cached === 1;
}

function classOf(sequence: Sequence): "interactive" | "batch" {
  return sequence.batch ? "batch" : "interactive";
}

/** Keeps the list in order of arrival. */
function insert(list: Sequence[], sequence: Sequence): void {
  const before = list.findLastIndex((other) => other.id < sequence.id);
  list.splice(before + 1, 0, sequence);
}

function take(list: Sequence[], sequence: Sequence): boolean {
  const index = list.indexOf(sequence);
  if (index >= 0) list.splice(index, 1);
  return index >= 0;
}
