import type { StepInput, StepOutput } from "../backend/backend.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import type { Scheduled } from "../schedule/step_part.ts";
import type { Sequence } from "../schedule/sequence.ts";
import { Acceptance } from "./acceptance.ts";
import { type ComputedRows, type Draft, type Drafter, type DraftWanted, GRADES } from "./drafter.ts";
import { draftLengths } from "./lengths.ts";
import { StepCosts } from "./step_costs.ts";

/** Maximum tokens of a draft. */
const MOST_TOKENS = 32;
/**
 * With many sequences, a draft has at most this many times the sequence's share of a step's rows, but at
 * least FEWEST_TOKENS.
 */
const SHARES = 3;
const FEWEST_TOKENS = 4;
/**
 * A draft token gets no row if the probability that this token and all before it are right is smaller, whatever
 * rows cost.
 */
const LEAST_CHANCE = 0.02;
/** Tokens of a sequence before an unprofitable drafter is asked again, at first and at most. */
const FIRST_PAUSE = 8;
const LONGEST_PAUSE = 256;

/** If a draft's first token is at least this likely, slower drafters are not asked. */
const TRUSTED = 0.6;
/** Assumed cost of a row as a share of a step, for comparing drafts. */
const ROW_COST = 0.05;

/**
 * Maximum share of a step's time for asking free drafters. Above it, a sequence without a profitable draft is
 * asked for again only after some steps, at most LONGEST_REST.
 */
const ASKING_SHARE = 0.01;
const LONGEST_REST = 127;
/**
 * Milliseconds to ask for one sequence before it is measured, the weight of a new measurement, and its
 * maximum as a multiple of the estimate. Longer times come from other delays.
 */
const ASKING_MS = 0.008;
const ASKING_LEARNED = 1 / 16;
const ASKING_SURPRISE = 4;
/** What is known about a sequence's drafts from one drafter. */
interface Record {
  readonly byGrade: Acceptance;
  /** Acceptance by a token's place in the draft, for estimates before there is a draft. */
  readonly byPlace: Acceptance;
  /** Steps until an unprofitable drafter is asked again, and the length of the next pause. */
  pause: number;
  nextPause: number;
  /** The step from which a free drafter without a profitable draft is asked again. */
  askedFrom: number;
}

/** A sequence's draft in the current step, verified or not. */
interface Proposal {
  readonly record: Record;
  readonly draft: Draft;
  /** The sequence's length before the draft. */
  readonly at: number;
  /** Whether the drafter is free. */
  readonly free: boolean;
}

/**
 * Decides which drafter proposes tokens for decoding sequences, and how many draft tokens a step carries,
 * from acceptance rates and row costs. The scheduler and the engine verify and publish them.
 */
export class Speculation {
  readonly #drafting: StepCosts[];
  readonly #common: { byGrade: Acceptance; byPlace: Acceptance }[];
  readonly #records = new WeakMap<Sequence, Record[]>();
  /** Proposed drafts of each sequence. The one with the highest expected gain is used. */
  readonly #proposals = new Map<Sequence, Proposal[]>();
  /** Drafters that are told about computed steps. */
  readonly #following: readonly Drafter[];
  readonly #allFree: boolean;
  #steps = 0;
  /** The step from which any drafter is asked again, and whether the current step comes before it. */
  #askedFrom = 0;
  #rested = false;
  /**
   * Milliseconds to ask free drafters for a sequence; sequences asked for in this step, and the time so far.
   */
  #askingMs = ASKING_MS;
  #asked = 0;
  #askedMs = 0;

  /**
   * Earlier drafters have priority: a drafter is asked only for sequences without a trusted draft from an
   * earlier drafter.
   */
  constructor(private readonly drafters: readonly Drafter[], private readonly costs = new StepCosts()) {
    this.#drafting = drafters.map(() => new StepCosts());
    this.#following = drafters.filter((drafter) => drafter.computed);
    this.#allFree = drafters.every(({ free }) => free);
    this.#common = drafters.map(() => ({
      byGrade: new Acceptance(byTrust),
      byPlace: new Acceptance(() => 0.6),
    }));
  }

  /**
   * Returns the step with drafts where they are likely to pay off. Returns without a promise if all drafters return
   * without one.
   */
  draft(
    step: readonly Scheduled[],
    scheduler: Scheduler,
  ): readonly Scheduled[] | Promise<readonly Scheduled[]> {
    this.#steps++;
    this.#proposals.clear();
    this.#rested = this.#steps < this.#askedFrom;
    this.#asked = 0;
    if (this.#rested || !step.every(decodes)) return step;
    const start = performance.now();
    const share = Math.ceil(SHARES * scheduler.room.draftRows(step) / step.length);
    const longest = Math.min(MOST_TOKENS, Math.max(FEWEST_TOKENS, share));
    const wanted = step.flatMap((part) => {
      const most = Math.min(longest, scheduler.room.draftRoom(part));
      return most > 0 ? [{ sequence: part.sequence, most }] : [];
    });
    if (wanted.length === 0) return step;
    let left: readonly DraftWanted[] = wanted;
    const rest = this.#restOf(step.length);
    for (const [i, drafter] of this.drafters.entries()) {
      if (!drafter.free) return this.#draftAtCost(i, left, step, scheduler);
      const asked = rest === 0 ? left : left.filter(({ sequence }) => !this.#rests(i, sequence, rest));
      const resting = asked.length === left.length ? [] : left.filter((want) => !asked.includes(want));
      if (asked.length === 0) continue;
      this.#asked = Math.max(this.#asked, asked.length);
      left = [...resting, ...this.#propose(i, asked, drafter.draft(asked) as readonly Draft[])];
    }
    const drafted = this.#withDrafts(step, scheduler);
    if (rest > 0 && this.#allFree) this.#askedFrom = this.#nextAsked(wanted);
    this.#askedMs = performance.now() - start;
    return drafted;
  }

  /** Asks the slower drafters, from index `first` on, where drafts are likely to pay off. */
  async #draftAtCost(
    first: number,
    wanted: readonly DraftWanted[],
    step: readonly Scheduled[],
    scheduler: Scheduler,
  ): Promise<readonly Scheduled[]> {
    let left = wanted;
    for (let i = first; i < this.drafters.length; i++) {
      const asked = this.#worthAsking(i, left, step);
      if (asked.length === 0) continue;
      const start = performance.now();
      const drafts = await this.drafters[i].draft(asked);
      const rows = Math.max(...asked.map(({ most }) => most));
      // If a drafter had to catch up first, this call's time says nothing about drafting.
      if (drafts.every(({ tokens }) => tokens.length > 0)) {
        this.#drafting[i].observe(asked.length, rows, performance.now() - start);
      }
      const without = this.#propose(i, asked, drafts);
      left = left.filter((want) =>
        without.includes(want) || !asked.some(({ sequence }) => sequence === want.sequence)
      );
    }
    return this.#withDrafts(step, scheduler);
  }

  /**
   * Returns the steps to skip before asking a free drafter again that has no profitable draft, to keep asking
   * within its share of time.
   */
  #restOf(sequences: number): number {
    const ms = this.costs.withoutDrafts(sequences) ?? Infinity;
    return Math.min(LONGEST_REST, Math.floor(this.#askingMs * sequences / (ASKING_SHARE * ms)));
  }

  /** Updates the time to ask per sequence from this step's total. */
  #tookAsking(ms: number): void {
    const each = Math.min(ms / this.#asked, ASKING_SURPRISE * this.#askingMs);
    this.#askingMs += ASKING_LEARNED * (each - this.#askingMs);
  }

  /** Whether to skip asking a free drafter for the sequence in this step. */
  #rests(drafter: number, sequence: Sequence, rest: number): boolean {
    const record = this.#recordOf(sequence, drafter);
    if (this.#steps < record.askedFrom) return true;
    record.askedFrom = this.#steps + 1 + rest; // reset if the step carries its draft
    return false;
  }

  /** Returns the next step in which a drafter is asked for any of these sequences. */
  #nextAsked(wanted: readonly DraftWanted[]): number {
    let next = Infinity;
    for (const { sequence } of wanted) {
      for (const { askedFrom } of this.#records.get(sequence) ?? []) next = Math.min(next, askedFrom);
    }
    return next;
  }

  /** Stores the drafts. Returns the sequences without a draft, or without a trusted one. */
  #propose(drafter: number, wanted: readonly DraftWanted[], drafts: readonly Draft[]): DraftWanted[] {
    return wanted.filter(({ sequence }, i) => {
      const draft = drafts[i];
      if (draft.tokens.length === 0) return true;
      const record = this.#recordOf(sequence, drafter);
      const earlier = this.#proposals.get(sequence) ?? [];
      const { free } = this.drafters[drafter];
      this.#proposals.set(sequence, [...earlier, { record, draft, at: sequence.length, free }]);
      return record.byGrade.of(draft.grades[0]) < TRUSTED;
    });
  }

  /**
   * Returns the sequences for which this drafter is likely to pay off, and the draft lengths. Includes others
   * from time to time.
   */
  #worthAsking(drafter: number, wanted: readonly DraftWanted[], step: readonly Scheduled[]): DraftWanted[] {
    if (wanted.length === 0) return [];
    const records = wanted.map(({ sequence }) => this.#recordOf(sequence, drafter));
    const chances = records.map(({ byPlace }, i) => chancesOf(byPlace, PLACES.subarray(0, wanted[i].most)));
    const rows = rowsOf(step);
    const most = Math.max(...chances.map(({ length }) => length));
    const all = chances.reduce((sum, { length }) => sum + length, 0);
    const costs = this.costs.estimates(step.length, rows, rows + all);
    const drafting = this.#drafting[drafter].estimates(wanted.length, 1, most);
    // Drafters draft for all sequences at once, so draft rows are spread over the sequences.
    const total = costs?.map((ms, added) =>
      added === 0 ? ms : ms + (drafting?.[Math.ceil(added / wanted.length) - 1] ?? 0)
    );
    const lengths = total ? draftLengths(chances, total, step.length) : chances.map(({ length }) => length);
    return wanted.flatMap((want, i) => {
      const record = records[i];
      if (lengths[i] > 0) {
        record.pause = record.nextPause = FIRST_PAUSE;
        return [{ ...want, most: lengths[i] }];
      }
      if (record.pause-- > 0) return [];
      record.nextPause = Math.min(LONGEST_PAUSE, 2 * record.nextPause);
      record.pause = record.nextPause;
      return [{ ...want, most: 1 }];
    });
  }

  /** Adds the part of the drafts that is likely to pay off to the step. */
  #withDrafts(step: readonly Scheduled[], scheduler: Scheduler): readonly Scheduled[] {
    if (this.#proposals.size === 0) return step;
    const best = step.map(({ sequence }) => bestOf(this.#proposals.get(sequence) ?? []));
    const chances = best.map((found) => found?.chances ?? NO_CHANCES);
    if (chances.every(({ length }) => length === 0)) return step;
    const rows = rowsOf(step);
    const likely = chances.reduce((sum, { length }) => sum + length, 0);
    const most = Math.min(likely, scheduler.room.draftRows(step));
    const costs = this.costs.knowsPlain(step.length)
      ? this.costs.estimates(step.length, rows, rows + most)
      : undefined;
    if (!costs) return step; // this concurrency level is measured without drafts first, and again after a while
    const lengths = draftLengths(chances, costs, step.length);
    return step.map((part, i) => {
      if (lengths[i] === 0 || part.sequence.progress.done) return part;
      const { record, draft } = best[i]!;
      record.askedFrom = 0;
      return scheduler.room.withDraft(part, draft.tokens.subarray(0, lengths[i]));
    });
  }

  /** Called after a step was computed and published, with its time in milliseconds. */
  computed(
    step: readonly Scheduled[],
    ms: number,
    rows: readonly ComputedRows[],
    input: StepInput,
    output: StepOutput,
  ): void | Promise<void> {
    if (this.#rested && this.#following.length === 0) return;
    const start = performance.now();
    for (const [sequence, proposals] of this.#proposals) {
      for (const { record, draft, at, free } of proposals) {
        const came = sequence.tokens.subarray(at, sequence.length);
        record.byGrade.observe(draft, came);
        if (!free) record.byPlace.observe({ tokens: draft.tokens.subarray(0, GRADES), grades: PLACES }, came);
      }
    }
    this.#proposals.clear();
    if (step.every(decodes)) this.costs.observe(step.length, rowsOf(step), ms);
    if (this.#asked > 0 && this.#allFree) this.#tookAsking(this.#askedMs + performance.now() - start);
    if (this.#following.length > 0) return this.#follow(rows, input, output);
  }

  async #follow(
    rows: readonly ComputedRows[],
    input: StepInput,
    output: StepOutput,
  ): Promise<void> {
    for (const drafter of this.#following) await drafter.computed!(rows, input, output);
  }

  /** Drops a sequence: it ended, or it was preempted and will be computed again. */
  forget(sequence: Sequence): void {
    for (const drafter of this.drafters) drafter.forget?.(sequence);
  }

  close(): void {
    for (const drafter of this.drafters) drafter.close?.();
  }

  #recordOf(sequence: Sequence, drafter: number): Record {
    let records = this.#records.get(sequence);
    if (!records) {
      records = this.#common.map(({ byGrade, byPlace }) => ({
        byGrade: new Acceptance(byGrade),
        byPlace: new Acceptance(byPlace),
        pause: FIRST_PAUSE,
        nextPause: FIRST_PAUSE,
        askedFrom: 0,
      }));
      this.#records.set(sequence, records);
    }
    return records[drafter];
  }
}

/** Returns the assumed acceptance of a grade before anything is known. */
function byTrust(grade: number): number {
  return 0.8 * (grade + 1) / GRADES;
}

const NO_CHANCES = new Float64Array(0);
const PLACES = Uint8Array.from({ length: GRADES }, (_, place) => place);

/** Whether the sequence's rows in the step decode an answer and sample a token. */
function decodes({ sequence, samples, pools }: Scheduled): boolean {
  return sequence.progress.prefilled && samples && !pools;
}

/**
 * Returns the probability that a draft is right up to and including each token, while it is above
 * LEAST_CHANCE.
 */
function chancesOf(acceptance: Acceptance, grades: Uint8Array): Float64Array {
  const chances = new Float64Array(grades.length);
  let chance = 1;
  let count = 0;
  for (; count < grades.length; count++) {
    chance *= acceptance.of(grades[count]);
    if (chance < LEAST_CHANCE) break;
    chances[count] = chance;
  }
  return chances.subarray(0, count);
}

/** A draft with the probability that it is right up to and including each token. */
type Valued = Proposal & { readonly chances: Float64Array };

/** Returns the draft with the most expected right tokens, minus the cost of its rows. */
function bestOf(proposals: readonly Proposal[]): Valued | undefined {
  let best: Valued | undefined;
  let most = -1;
  for (const proposal of proposals) {
    const chances = chancesOf(proposal.record.byGrade, proposal.draft.grades);
    const gain = chances.reduce((sum, chance) => sum + Math.max(0, chance - ROW_COST), 0);
    if (gain <= most) continue;
    most = gain;
    best = { ...proposal, chances };
  }
  return best;
}

function rowsOf(step: readonly Scheduled[]): number {
  return step.reduce((sum, { rows, drafts }) => sum + rows + drafts.length, 0);
}
