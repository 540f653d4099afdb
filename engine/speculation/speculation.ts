import type { StepInput, StepOutput } from "../backend/backend.ts";
import type { Scheduled, Scheduler } from "../scheduler.ts";
import type { Sequence } from "../sequence.ts";
import { Acceptance } from "./acceptance.ts";
import { type ComputedRows, type Draft, type Drafter, type DraftWanted, GRADES } from "./drafter.ts";
import { draftLengths } from "./lengths.ts";
import { StepCosts } from "./step_costs.ts";

/** Tokens of a draft at most. */
const MOST_TOKENS = 32;
/** In a crowd: as many of a sequence as this many times its share of a step's rows, and no fewer than these. */
const SHARES = 3;
const FEWEST_TOKENS = 4;
/** A token that is less likely than this to be right, with all before it, is not worth a row, whatever rows cost. */
const LEAST_CHANCE = 0.02;
/** A drafter that does not pay is asked again after so many tokens of a sequence, at first and at most. */
const FIRST_PAUSE = 8;
const LONGEST_PAUSE = 256;

/** Where a draft's first token is as likely as this, drafters that take time are not asked for another. */
const TRUSTED = 0.6;
/** What a row is taken to cost, as a share of a step, where drafts are compared. */
const ROW_COST = 0.05;

/**
 * Which share of a step asking free drafters may be, with all that follows of it. Where it is more, a sequence for which they have
 * nothing that pays is asked for again after some steps, at most so many.
 */
const ASKING_SHARE = 0.01;
const LONGEST_REST = 127;
/**
 * What asking takes for a sequence, in milliseconds, before it is known; how much of what is known a new time changes; and how many times
 * as long as that it can be: other times were held up by something else.
 */
const ASKING_MS = 0.008;
const ASKING_LEARNED = 1 / 16;
const ASKING_SURPRISE = 4;
/** What is known of a sequence's drafts from one drafter. */
interface Record {
  readonly byGrade: Acceptance;
  /** By a token's place in the draft: what is known before there is one. */
  readonly byPlace: Acceptance;
  /** Steps until a drafter that did not pay is asked again, and how many it will be after that. */
  pause: number;
  nextPause: number;
  /** The step from which on a free drafter that had nothing that pays is asked again. */
  askedFrom: number;
}

/** A sequence's draft in the step under way, verified or not. */
interface Proposal {
  readonly record: Record;
  readonly draft: Draft;
  /** The sequence's length before it. */
  readonly at: number;
  /** It took next to no time. */
  readonly free: boolean;
}

/**
 * Drafts for the sequences that decode: who proposes them, and how many of their tokens a step carries, by how often such tokens
 * were right and what rows cost. What they are for, and what becomes of them, is the scheduler's and the engine's.
 */
export class Speculation {
  readonly #drafting: StepCosts[];
  readonly #common: { byGrade: Acceptance; byPlace: Acceptance }[];
  readonly #records = new WeakMap<Sequence, Record[]>();
  /** Of several that of which most is expected counts. */
  readonly #proposals = new Map<Sequence, Proposal[]>();
  /** Drafters that are told what was computed. */
  readonly #following: readonly Drafter[];
  readonly #allFree: boolean;
  #steps = 0;
  /** The step from which on a drafter is asked again for anybody, and whether the step under way comes before. */
  #askedFrom = 0;
  #rested = false;
  /** What asking free drafters takes for a sequence; for how many they were asked in this step, and what it took so far. */
  #askingMs = ASKING_MS;
  #asked = 0;
  #askedMs = 0;

  /** Those before come first: a drafter is asked for sequences that none before it has a trusted draft for. */
  constructor(private readonly drafters: readonly Drafter[], private readonly costs = new StepCosts()) {
    this.#drafting = drafters.map(() => new StepCosts());
    this.#following = drafters.filter((drafter) => drafter.computed);
    this.#allFree = drafters.every(({ free }) => free);
    this.#common = drafters.map(() => ({
      byGrade: new Acceptance(byTrust),
      byPlace: new Acceptance(() => 0.6),
    }));
  }

  /** The step with drafts where they are likely to pay. Nothing may be awaited where it returns at once. */
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
    const share = Math.ceil(SHARES * scheduler.draftRows(step) / step.length);
    const longest = Math.min(MOST_TOKENS, Math.max(FEWEST_TOKENS, share));
    const wanted = step.flatMap((part) => {
      const most = Math.min(longest, scheduler.draftRoom(part));
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

  /** Asks the drafters from the `first` on, those that take time, where that is likely to pay. */
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
      // One that had to catch up first says nothing of what drafts take.
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

  /** Steps for which a free drafter that has nothing that pays for a sequence is not asked: asking takes its share of them. */
  #restOf(sequences: number): number {
    const ms = this.costs.withoutDrafts(sequences) ?? Infinity;
    return Math.min(LONGEST_REST, Math.floor(this.#askingMs * sequences / (ASKING_SHARE * ms)));
  }

  /** Asking took so long in this step, for all for whom drafters were asked. */
  #tookAsking(ms: number): void {
    const each = Math.min(ms / this.#asked, ASKING_SURPRISE * this.#askingMs);
    this.#askingMs += ASKING_LEARNED * (each - this.#askingMs);
  }

  /** Whether the drafter, which is free, is not asked for the sequence this time. */
  #rests(drafter: number, sequence: Sequence, rest: number): boolean {
    const record = this.#recordOf(sequence, drafter);
    if (this.#steps < record.askedFrom) return true;
    record.askedFrom = this.#steps + 1 + rest; // unless the step carries what it has now
    return false;
  }

  /** The next step in which a drafter is asked for one of them. */
  #nextAsked(wanted: readonly DraftWanted[]): number {
    let next = Infinity;
    for (const { sequence } of wanted) {
      for (const { askedFrom } of this.#records.get(sequence) ?? []) next = Math.min(next, askedFrom);
    }
    return next;
  }

  /** Keeps the drafts; gives those who have none, or none to be trusted. */
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

  /** Those for whom drafts of this drafter are likely to pay, and how long; now and then those for whom they were not. */
  #worthAsking(drafter: number, wanted: readonly DraftWanted[], step: readonly Scheduled[]): DraftWanted[] {
    if (wanted.length === 0) return [];
    const records = wanted.map(({ sequence }) => this.#recordOf(sequence, drafter));
    const chances = records.map(({ byPlace }, i) => chancesOf(byPlace, PLACES.subarray(0, wanted[i].most)));
    const rows = rowsOf(step);
    const most = Math.max(...chances.map(({ length }) => length));
    const all = chances.reduce((sum, { length }) => sum + length, 0);
    const costs = this.costs.estimates(step.length, rows, rows + all);
    const drafting = this.#drafting[drafter].estimates(wanted.length, 1, most);
    // Drafters draft for all in one go: rows of drafts are spread over the sequences.
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

  /** Carries as much of the drafts as is likely to pay. */
  #withDrafts(step: readonly Scheduled[], scheduler: Scheduler): readonly Scheduled[] {
    if (this.#proposals.size === 0) return step;
    const best = step.map(({ sequence }) => bestOf(this.#proposals.get(sequence) ?? []));
    const chances = best.map((found) => found?.chances ?? NO_CHANCES);
    if (chances.every(({ length }) => length === 0)) return step;
    const rows = rowsOf(step);
    const likely = chances.reduce((sum, { length }) => sum + length, 0);
    const most = Math.min(likely, scheduler.draftRows(step));
    const costs = this.costs.knowsPlain(step.length)
      ? this.costs.estimates(step.length, rows, rows + most)
      : undefined;
    if (!costs) return step; // such a crowd is measured without drafts first, and again after a while
    const lengths = draftLengths(chances, costs, step.length);
    return step.map((part, i) => {
      if (lengths[i] === 0 || part.sequence.done) return part;
      const { record, draft } = best[i]!;
      record.askedFrom = 0;
      return scheduler.withDraft(part, draft.tokens.subarray(0, lengths[i]));
    });
  }

  /** A step has been computed and published, all in so many milliseconds. */
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

  /** The sequence has ended, or waits again and will be computed anew. */
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

/** What a grade is taken for before anything is known: trust. */
function byTrust(grade: number): number {
  return 0.8 * (grade + 1) / GRADES;
}

const NO_CHANCES = new Float64Array(0);
const PLACES = Uint8Array.from({ length: GRADES }, (_, place) => place);

/** Whether its rows are of an answer, and choose a token. */
function decodes({ sequence, samples, pools }: Scheduled): boolean {
  return sequence.prefilled && samples && !pools;
}

/** How likely a draft is to be right up to and with each of its tokens, as far as that is worth a thought. */
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

/** A draft, and how likely it is to be right up to and with each of its tokens. */
type Valued = Proposal & { readonly chances: Float64Array };

/** The draft of which most right tokens are expected, less what its rows cost. */
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
