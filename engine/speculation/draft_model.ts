import {
  type Backend,
  type Candidates,
  greedyRequest,
  KV_BLOCK_TOKENS,
  type StepSequence,
  type StepState,
  type WindowTable,
} from "../backend/backend.ts";
import { grown, type Sequence } from "../schedule/sequence.ts";
import { type Draft, type Drafter, type DraftWanted, GRADES, NO_DRAFT } from "./drafter.ts";

/** Missing rows that are computed together with a draft. More rows need a separate step first. */
const MOST_BEHIND = 16;
/** A draft ends when the drafting model's probability that the whole draft is right falls below this. */
const LEAST_CHANCE = 0.15;

export interface DraftModelOptions {
  /** Loaded and compiled. The drafter closes it. */
  readonly backend: Backend;
  /** Tokens of the vocabulary that both models share. */
  readonly vocabSize: number;
  /** Tokens that one sequence may hold. */
  readonly contextLength: number;
  /** Sequences that can be followed at once. */
  readonly places: number;
  /** Most rows in one step. */
  readonly maxRows: number;
  /** Whether the model has recurrent layers. Each place then needs two state slots. */
  readonly hasStates: boolean;
  /** Returns the cache's block tables, one per group of layers, for these blocks of the first group. */
  tables(blocks: Int32Array): { blockTable: Int32Array; windowTables: WindowTable[] };
}

/** A sequence in the drafting model. */
interface Followed {
  readonly place: number;
  /** Computed tokens; the first `cached` are valid. */
  tokens: Int32Array; // [capacity]
  cached: number;
  /** Number of leading tokens that are surely tokens of the sequence, and not drafts. */
  sure: number;
}

/** An unfinished draft. */
interface Drafting {
  readonly want: DraftWanted;
  readonly followed: Followed;
  readonly tokens: number[];
  readonly grades: number[];
  chance: number;
}

/**
 * Drafts with the most likely tokens of a smaller model that shares the vocabulary. A grade is the model's
 * probability of the token.
 */
export class DraftModel implements Drafter {
  readonly kind = "draft";
  readonly free = false;
  readonly #options: DraftModelOptions;
  readonly #places: number[];
  readonly #followed = new Map<Sequence, Followed>();

  constructor(options: DraftModelOptions) {
    this.#options = options;
    this.#places = Array.from({ length: options.places }, (_, i) => options.places - 1 - i);
  }

  async draft(wanted: readonly DraftWanted[]): Promise<Draft[]> {
    const drafts = new Map<Sequence, Draft>();
    const behind: Drafting[] = [];
    const ready: Drafting[] = [];
    for (const want of wanted) {
      const followed = this.#follow(want.sequence);
      if (!followed || want.most < 1 || want.sequence.length >= this.#options.contextLength) continue;
      const one = { want, followed, tokens: [], grades: [], chance: 1 };
      (want.sequence.length - followed.cached > MOST_BEHIND ? behind : ready).push(one);
    }
    if (behind.length > 0) await this.#catchUp(behind);
    for (let left = ready; left.length > 0;) {
      const rows = await this.#step(left);
      left = left.filter((one, i) => this.#takes(one, rows[i]));
    }
    for (const { want, followed, tokens, grades } of ready) {
      // A recurrent state cannot return to the point where a draft went wrong.
      if (this.#options.hasStates) followed.cached = want.sequence.length;
      drafts.set(want.sequence, { tokens: Int32Array.from(tokens), grades: Uint8Array.from(grades) });
    }
    return wanted.map(({ sequence }) => drafts.get(sequence) ?? NO_DRAFT);
  }

  forget(sequence: Sequence): void {
    const followed = this.#followed.get(sequence);
    if (!followed) return;
    this.#followed.delete(sequence);
    this.#places.push(followed.place);
  }

  close(): void {
    this.#options.backend.close();
  }

  /** Returns the sequence's valid computed tokens; undefined if no place is free. */
  #follow(sequence: Sequence): Followed | undefined {
    let followed = this.#followed.get(sequence);
    if (!followed) {
      const place = this.#places.pop();
      if (place === undefined) return undefined;
      followed = { place, tokens: new Int32Array(2 * sequence.length), cached: 0, sure: 0 };
      this.#followed.set(sequence, followed);
    }
    const { tokens, cached } = followed;
    const most = Math.min(cached, sequence.length - 1); // the last token must be computed to get the next
    let same = Math.min(followed.sure, most);
    while (same < most && tokens[same] === sequence.tokens[same]) same++;
    // A recurrent state cannot be rewound, not even by zero tokens.
    followed.cached = followed.sure = this.#options.hasStates && same < cached ? 0 : same;
    return followed;
  }

  /** Computes missing rows, up to the rows of one step. */
  async #catchUp(behind: readonly Drafting[]): Promise<void> {
    let rows = this.#options.maxRows;
    const parts = behind.flatMap(({ want: { sequence }, followed }) => {
      const count = Math.min(rows, sequence.length - 1 - followed.cached);
      rows -= count;
      return count > 0 ? [this.#partOf(sequence, followed, followed.cached + count)] : [];
    });
    await this.#compute(parts, false);
  }

  /** Returns the candidates after each draft so far. */
  #step(drafting: readonly Drafting[]): Promise<Candidates[]> {
    const parts = drafting.map(({ want: { sequence }, followed, tokens }) => {
      return this.#partOf(sequence, followed, sequence.length + tokens.length, tokens.at(-1));
    });
    return this.#compute(parts, true);
  }

  /** Returns the rows up to `end`. `draft` is the last token if that is a draft token. */
  #partOf({ tokens, length }: Sequence, followed: Followed, end: number, draft?: number) {
    const first = followed.cached;
    while (followed.tokens.length < end) followed.tokens = grown(followed.tokens, Infinity);
    followed.tokens.set(tokens.subarray(first, Math.min(end, length)), first);
    if (draft !== undefined) followed.tokens[end - 1] = draft;
    followed.cached = end;
    return { followed, first, end, length };
  }

  async #compute(
    parts: readonly { followed: Followed; first: number; end: number; length: number }[],
    scores: boolean,
  ): Promise<Candidates[]> {
    const rows = parts.reduce((sum, { first, end }) => sum + end - first, 0);
    const tokens = new Int32Array(rows);
    const sequences: StepSequence[] = [];
    let start = 0;
    for (const { followed, first, end, length } of parts) {
      tokens.set(followed.tokens.subarray(first, end), start);
      const { contextLength, hasStates } = this.#options;
      const most = Math.ceil(contextLength / KV_BLOCK_TOKENS);
      const blocks = Int32Array.from({ length: Math.ceil(end / KV_BLOCK_TOKENS) }, (_, i) => {
        return followed.place * most + i;
      });
      const state = hasStates ? stateOf(followed.place, first, length) : undefined;
      sequences.push({ start, length: end - first, cached: first, ...this.#options.tables(blocks), state });
      start += end - first;
    }
    const logits = scores ? sequences.map(({ start, length }) => greedyRequest(start + length - 1)) : [];
    return (await this.#options.backend.step({ tokens, sequences, logits })).rows;
  }

  /** Adds the most likely token to the draft. Returns whether the draft may continue. */
  #takes(drafting: Drafting, row: Candidates): boolean {
    const { want: { sequence, most }, tokens, grades } = drafting;
    const token = row.ids[0];
    if (token === undefined || token >= this.#options.vocabSize) return false;
    const likely = Math.exp(row.rawLogits[0] - row.logSumExp);
    tokens.push(token);
    grades.push(Math.min(GRADES - 1, Math.floor(GRADES * likely)));
    drafting.chance *= likely;
    const end = sequence.length + tokens.length;
    return tokens.length < most && drafting.chance >= LEAST_CHANCE && end < this.#options.contextLength;
  }
}

/**
 * Returns the slots of a step. A place's first slot holds the state after the sequence's own tokens, the
 * second the state after drafts.
 */
function stateOf(place: number, first: number, length: number): StepState {
  const [own, drafted] = [2 * place, 2 * place + 1];
  if (first < length) return { read: first === 0 ? undefined : own, write: own, saves: [] };
  return { read: first === length ? own : drafted, write: drafted, saves: [] };
}
