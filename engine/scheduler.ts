import { KV_BLOCK_TOKENS, type StepState } from "./backend/backend.ts";
import { KvCache } from "./kv_cache.ts";
import { RecurrentStates } from "./recurrent_state.ts";
import { grown, type Sequence, unscored, wantsToken } from "./sequence.ts";
import type { Restorer, StoredPrefixes } from "./stored_prefixes.ts";
import { EngineError } from "./types.ts";

/** Sequences that answer side by side while steps are bound by reading the weights, whatever computes them. */
const FEW_ANSWERS = 8;
/** `wholeRows` by default: a multiple of every kernel's register tile. */
const WHOLE_ROWS = 16;
const NO_TOKENS = new Int32Array(0);

export interface EngineLimits {
  /** Sequences that run at once. */
  readonly parallel: number;
  /** KV blocks in the pool. */
  readonly kvBlocks: number;
  /** Tokens that rows see in the layers of each group of the KV cache but the first; 0 is all. None by default. */
  readonly kvWindows?: readonly number[];
  /** Most rows (tokens) in one step. */
  readonly maxRows: number;
  /**
   * Rows that a step is filled with, where that is less: only a text that must be computed whole may take more, in a step of its
   * own. By default maxRows.
   */
  readonly stepRows?: number;
  /**
   * Rows of which a step's products take a multiple as fast as some fewer: just beyond it a row costs more than in a step of its
   * own (docs/lab/2026-11.md, "Kernels").
   */
  readonly wholeRows?: number;
  /** Most rows in one step whose logits are wanted. */
  readonly maxLogitRows: number;
  /** Most requests that wait for a place. */
  readonly queue: number;
  /** Slots of recurrent state: more than `parallel` and `draftSlots`. Only of models with recurrent layers. */
  readonly stateSlots?: number;
  /** Of these, slots for sequences with drafts: as many sequences can have one. None by default. */
  readonly draftSlots?: number;
}

/** A sequence's part of one step: its next `rows` tokens. */
export interface Scheduled {
  readonly sequence: Sequence;
  readonly rows: number;
  /** Rows whose next token is to be scored (`unscored`). They end `rows` or stand just before the last row. */
  readonly scores: number;
  /** Whether the last row's logits choose a new token. */
  readonly samples: boolean;
  /**
   * Tokens that may come next, by guess: a row each behind the sequence's own. They stand behind its tokens, beyond `length`, until
   * others take their place.
   */
  readonly drafts: Int32Array; // [rows of drafts]
  /** Whether the sequence is a text, all computed with these rows, and its pooled row is wanted. */
  readonly pools: boolean;
  readonly state?: StepState;
}

/**
 * Who runs in the next step: all policy is here.
 *
 * Sequences run continuously: each step takes the next token of the running ones and fills up with chunks of prompts. Tokens
 * that came without being sampled are rows to compute too: many of a sequence at a time where that costs little.
 * Interactive sequences come before batch ones in everything, earlier before later, decodes before prefills. Waiting
 * ones are admitted in that order too, and one that finds no place stops all behind it.
 *
 * A running sequence takes KV blocks as it grows. Where none is left, the latest batch sequence is preempted, then the
 * latest interactive one: it waits again, in its order of arrival, and computes its tokens again when it comes back. An
 * interactive sequence that waits preempts batch ones too, for their place as for their memory. Sequences whose reader
 * is slow do not run, and are preempted before others, by anyone.
 *
 * Texts that are pooled need no place but memory: as many run as the next step has rows for. (With recurrent states, of which
 * there is one a place, they take places too.) One that must be computed whole, and found too few rows left, comes first in the
 * next step.
 *
 * What a preemption frees is in part taken at once: who was preempted fits again only when others have ended or given way
 * in turn. The earliest interactive sequence whose reader keeps up, or else the earliest batch one, is never preempted
 * for memory, and one always fits. So all come to their end.
 */
export class Scheduler implements Restorer {
  readonly cache: KvCache;
  readonly #states: RecurrentStates | undefined;
  readonly #limits: EngineLimits;
  /** Each in order of arrival. */
  readonly #waiting: { interactive: Sequence[]; batch: Sequence[] } = { interactive: [], batch: [] };
  readonly #running: { interactive: Sequence[]; batch: Sequence[] } = { interactive: [], batch: [] };
  /** In order of urgency. */
  readonly #runningLists = [this.#running.interactive, this.#running.batch];
  #preemptions = 0;
  /** A text that must be computed whole and did not fit the step. */
  #leftOut: Sequence | undefined;

  /** `stored` has the prompts that are kept on a disk; `released` is told of sequences that no longer hold memory. */
  constructor(
    limits: EngineLimits,
    private readonly stored?: StoredPrefixes,
    private readonly released: (sequence: Sequence) => void = () => {},
  ) {
    const { kvWindows: windows = [], ...numbers } = limits;
    for (const [name, value] of Object.entries(numbers)) {
      const least = leastOf(name as keyof EngineLimits, limits);
      if (value === undefined || (Number.isSafeInteger(value) && value >= least)) continue;
      throw new RangeError(
        `Invalid engine limit ${name}: must be a whole number, ${least} or more (got ${value})`,
      );
    }
    this.#limits = limits;
    const { stateSlots, parallel, draftSlots } = limits;
    this.#states = stateSlots === undefined
      ? undefined
      : new RecurrentStates(stateSlots, parallel, draftSlots);
    this.cache = new KvCache(limits.kvBlocks, this.#states, { windows, maxRows: limits.maxRows }, stored);
    stored?.attach(this.cache);
  }

  get running(): number {
    return this.#running.interactive.length + this.#running.batch.length;
  }

  get waiting(): number {
    return this.#waiting.interactive.length + this.#waiting.batch.length;
  }

  /** How often a sequence that ran had to give way. */
  get preemptions(): number {
    return this.#preemptions;
  }

  /** A place for each sequence that can run, those that run first. */
  slots(): (Sequence | undefined)[] {
    const { interactive, batch } = this.#running;
    return Array.from(
      { length: this.#limits.parallel },
      (_, i) => interactive[i] ?? batch[i - interactive.length],
    );
  }

  /** All sequences, running and waiting. */
  sequences(): Sequence[] {
    const { interactive, batch } = this.#running;
    return [...interactive, ...batch, ...this.#waiting.interactive, ...this.#waiting.batch];
  }

  /**
   * Throws EngineError queue_full. Preempted sequences have as many places of their own as sequences can run. Texts to be pooled
   * do not count: whoever adds them sees to it that they are not too many.
   */
  add(sequence: Sequence): void {
    const { parallel, queue } = this.#limits;
    if (!sequence.pooled) {
      const [running, waiting] = [this.#running, this.#waiting].map(({ interactive, batch }) =>
        [...interactive, ...batch].filter(({ pooled }) => pooled === undefined)
      );
      const preempted = waiting.filter(({ admittedAt }) => admittedAt !== undefined).length;
      const queued = waiting.length - Math.min(preempted, parallel);
      if (queued >= queue + Math.max(0, parallel - running.length - preempted)) {
        throw new EngineError("queue_full", `The queue is full (${queued} waiting): try again later`);
      }
    }
    insert(this.#waiting[classOf(sequence)], sequence);
  }

  /** Takes the sequence out, wherever it is, and gives back its memory. */
  remove(sequence: Sequence): void {
    take(this.#waiting[classOf(sequence)], sequence);
    if (!take(this.#running[classOf(sequence)], sequence)) return;
    if (!sequence.restoring) this.#offerEnd(sequence);
    this.#release(sequence);
  }

  /** The next turn of a chat begins with this answer. */
  #offerEnd(sequence: Sequence): void {
    const { blocks, indexed, promptLength, state } = sequence;
    if (!this.stored) return;
    const answer = state?.answer === undefined ? 0 : blocks.subarray(0, indexed).indexOf(state.answer) + 1;
    const prompt = Math.floor((promptLength - 1) / KV_BLOCK_TOKENS);
    this.stored.edge(sequence, prompt);
    this.stored.edge(sequence, state ? answer : indexed);
  }

  /** Its prefix has been read: it runs. */
  restored(sequence: Sequence): void {
    sequence.restoring = undefined;
    this.#states?.restored(sequence);
    this.#begin(sequence);
  }

  /** Its prefix could not be read: it waits for admission again. */
  giveBack(sequence: Sequence): void {
    this.cache.release(sequence);
    take(this.#running[classOf(sequence)], sequence);
    insert(this.#waiting[classOf(sequence)], sequence);
  }

  /** The next step; empty when nothing can run. It is filled with `rows` at most, or with one of each sequence that runs. */
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
        rowsLeft = Math.max(rowsLeft, this.#rowsOfText(sequence));
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
   * Gives a step's sequences, which all decode, room for the rows of up to `further` steps like it. Returns for how many:
   * nobody is preempted for them.
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

  /** Rows of drafts that the step can carry. */
  draftRows(step: readonly Scheduled[]): number {
    let rows = this.#stepRows;
    let logits = this.#limits.maxLogitRows;
    for (const part of step) {
      rows -= part.rows;
      logits -= part.scores + (part.samples ? 1 : 0);
    }
    return Math.min(rows, logits);
  }

  /** Rows of drafts that the sequence can have in a step: its last token needs none, and nobody is preempted for them. */
  draftRoom({ sequence, rows, samples }: Scheduled): number {
    if (!samples) return 0;
    const most = sequence.maxLength - sequence.length - 1;
    return Math.min(most, this.#states?.draftRoom(sequence, rows) ?? most);
  }

  /** The part with as much of the draft as there is memory for. The part is given back where there is none. */
  withDraft(part: Scheduled, draft: Int32Array): Scheduled {
    const { sequence, rows } = part;
    const { length, blockCount } = sequence;
    let most = Math.min(draft.length, this.draftRoom(part));
    // Beyond the blocks that the sequence holds, only what the others do not need next.
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

  /** A part of a step has been computed; so many of its drafts were right. */
  advance({ sequence, rows, drafts }: Scheduled, right = 0): void {
    if (drafts.length > 0 && this.#states?.drafted(sequence, right === drafts.length) === false) return;
    sequence.cached += rows + right;
    this.cache.share(sequence);
    this.#states?.advance(sequence);
  }

  /**
   * How many rows forced tokens may take in the next step beside one of each sequence that answers: all, while those are few and
   * the step is bound by reading the weights; else what fills it to whole rows. The rest comes in steps that are computed anyway.
   */
  #forcedRows(): number {
    let answering = 0;
    let forced = 0;
    for (const running of this.#runningLists) {
      for (const sequence of running) {
        if (isSlow(sequence) || awaitsDisk(sequence) || isPrefilling(sequence)) continue;
        answering++;
        forced += sequence.length - sequence.cached - 1;
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

  /** Those that run by urgency, with `first` before all others if it runs. */
  *#inOrder(first: Sequence | undefined): Iterable<Sequence> {
    if (first && this.#runningLists.some((running) => running.includes(first))) yield first;
    for (const sequences of this.#runningLists) {
      const ready = sequences.filter((sequence) =>
        sequence !== first && !isSlow(sequence) && !awaitsDisk(sequence)
      );
      for (const urgency of [isDecoding, isForced, isPrefilling]) {
        for (const sequence of ready) if (urgency(sequence)) yield sequence;
      }
    }
  }

  /** Gives each running sequence the block that its next token needs. Who finds none preempts another, or itself. */
  #grow(): void {
    for (const running of this.#runningLists) {
      for (let i = 0; i < running.length; i++) {
        const sequence = running[i];
        if (sequence.stream.full) continue;
        while (!this.cache.extend(sequence, sequence.length)) {
          const victim = this.#victim(sequence) ?? running.at(-1)!;
          this.#preempt(victim);
          if (victim === sequence) return; // Nobody is later than itself.
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

  get #stepRows(): number {
    return this.#limits.stepRows ?? this.#limits.maxRows;
  }

  /** Rows of a step that a text has to itself. */
  #rowsOfText({ length }: Sequence): number {
    return Math.min(length, this.#limits.maxRows);
  }

  #takesPlace({ pooled }: Sequence): boolean {
    return pooled === undefined || this.#states !== undefined;
  }

  #start(sequence: Sequence): void {
    sequence.restoring = this.cache.admit(sequence);
    take(this.#waiting[classOf(sequence)], sequence);
    insert(this.#running[classOf(sequence)], sequence);
    if (sequence.restoring) this.stored!.fetch(sequence, sequence.restoring);
    else this.#begin(sequence);
  }

  #begin(sequence: Sequence): void {
    if (sequence.admittedAt !== undefined) return;
    sequence.admittedAt = performance.now();
    sequence.reused = Math.min(sequence.cached, sequence.promptLength);
  }

  /**
   * Whether the sequence should wait because one that runs now computes what both begin with. The one that runs must be
   * sure to get there: it is no less urgent, and its reader is not slow.
   */
  #isHeld(sequence: Sequence): boolean {
    const computes = (other: Sequence) => !other.stream.full && this.cache.isComputing(other, sequence);
    return this.#running.interactive.some(computes) || (sequence.batch && this.#running.batch.some(computes));
  }

  /** Whether the sequence can be admitted now, and if not why. Others are preempted for it, but only if that is of use. */
  #findPlace(sequence: Sequence): "found" | "no place" | "no memory" {
    let [places, rows] = [this.#limits.parallel, 0];
    let taken = 0;
    let blocks = 0;
    let spare = this.cache.growth(sequence);
    for (const running of this.#runningLists) {
      for (const other of running) {
        if (this.#takesPlace(other)) taken++;
        else rows += other.length - other.cached;
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
      if (!victim) return placeless ? "no place" : "no memory"; // What others gave up is held by those that stay, too.
      if (this.#takesPlace(victim)) taken--;
      this.#preempt(victim);
    }
  }

  /** Who is preempted first of those that give way to the sequence; `placed`: of those that take a place. */
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
    take(this.#running[classOf(sequence)], sequence);
    insert(this.#waiting[classOf(sequence)], sequence);
  }
}

/** The least that a limit may be. */
function leastOf(name: keyof EngineLimits, { parallel, draftSlots = 0 }: EngineLimits): number {
  if (name === "queue" || name === "draftSlots") return 0;
  return name === "stateSlots" ? parallel + draftSlots + 1 : 1;
}

function isSlow({ stream }: Sequence): boolean {
  return stream.full;
}

/** Whether it can do nothing until its prompt is read, or written. */
function awaitsDisk({ restoring, keeping }: Sequence): boolean {
  return restoring !== undefined || keeping !== undefined;
}

/** Whether a running sequence gives up its place and its memory to another that waits. */
function givesWay(running: Sequence, waiting: Sequence): boolean {
  return isSlow(running) || (running.batch && !waiting.batch);
}

/** What the sequence can do in a step with that many rows and logits left. */
function partOf(sequence: Sequence, rowsLeft: number, logitsLeft: number): Scheduled {
  const pending = sequence.length - sequence.cached;
  const scoring = unscored(sequence);
  const firstRow = scoring ? scoring.first - 1 : 0; // a row gives the next token's score
  let rows = Math.min(pending, rowsLeft);
  if (scoring) rows = Math.min(rows, Math.max(0, firstRow - sequence.cached) + logitsLeft);
  else if (rows === pending && wantsToken(sequence) && logitsLeft === 0) rows--;
  const end = sequence.cached + rows;
  if (sequence.pooled?.whole && rows < pending) rows = 0;
  return {
    sequence,
    rows,
    scores: scoring ? Math.max(0, Math.min(end, scoring.end - 1) - firstRow) : 0,
    samples: end === sequence.length && wantsToken(sequence),
    drafts: NO_TOKENS,
    pools: end === sequence.length && sequence.pooled !== undefined,
  };
}

function isDecoding(sequence: Sequence): boolean {
  return sequence.length - sequence.cached === 1;
}

/** Whether its next rows are an answer's: tokens that came without being sampled, most of the time. */
function isForced(sequence: Sequence): boolean {
  return !isDecoding(sequence) && sequence.cached >= sequence.promptLength;
}

function isPrefilling(sequence: Sequence): boolean {
  return !isDecoding(sequence) && sequence.cached < sequence.promptLength;
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
