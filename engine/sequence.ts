import type { AnswerForm } from "./answer_form.ts";
import type { LogitsRequest } from "./backend/backend.ts";
import type { Dry } from "./dry.ts";
import type { Random } from "./random.ts";
import type { TokenCounts } from "./sampler.ts";
import type { OutputText } from "./stop.ts";
import type {
  FinishReason,
  RunningSequence,
  SamplingParams,
  StoredPrompt,
  TokenEvent,
  TokenLogprob,
} from "./types.ts";

/** A sequence's recurrent state while it runs. */
export interface RunningState {
  /** Its own slot. */
  slot: number;
  /** The slot that the step under way puts the state after drafts into. */
  draft: number | undefined;
  /** The snapshot that it resumes from, until its first step is done. */
  source: number | undefined;
  /** Block edges ahead, in tokens, at which a snapshot is wanted. */
  readonly marks: Set<number>;
  /** Snapshots that the step under way makes. */
  saves: { readonly position: number; readonly slot: number }[];
  /** The KV block after which the last snapshot of the answer was taken. */
  answer: number | undefined;
}

/** Parts of a prefix that a sequence waits for: they are read from a disk into what it holds. */
export interface Restore {
  /** Blocks of the prefix, those in memory included. */
  readonly end: number;
  /** Tokens that are not computed because of it. */
  readonly tokens: number;
  /** In the order of positions: the group of layers, and the KV block that is to hold them. */
  readonly parts: readonly { readonly position: number; readonly kind: number; readonly place: number }[];
  /** Slot for the state after the prefix; undefined where that is in memory, or the model has none. */
  readonly slot: number | undefined;
}

/** A sequence's KV blocks in a group of layers that see a window. */
export interface WindowBlocks {
  /** By their places in the sequence; those from `first` to before `end` are held. */
  blocks: Int32Array; // [capacity]
  first: number;
  end: number;
}

/** Where a sequence's events go. */
export interface EventSink {
  /** Its reader is slow: the sequence is not scheduled meanwhile. */
  readonly full: boolean;
  push(event: TokenEvent): void;
  fail(error: Error): void;
}

/** Who gets the row that a text is pooled to. */
export interface PooledText {
  /** All its rows are pooled: they are computed in one step, and none comes from the cache. */
  readonly whole: boolean;
  give(row: Float32Array): void;
  cancel(): void;
}

/** One request on its way through the engine. Data only: the scheduler, the KV cache and the engine change it. */
export interface Sequence {
  /** Order of arrival. */
  readonly id: number;
  readonly batch: boolean;
  readonly stream: EventSink;
  /** Only of a text that is pooled: it gets no tokens. */
  readonly pooled?: PooledText;

  /** The prompt and what was generated; the first `length` are valid. */
  tokens: Int32Array; // [capacity]
  length: number;
  readonly promptLength: number;
  /** Most tokens, prompt included. */
  readonly maxLength: number;

  /** Tokens whose KV is computed; the rest, `length - cached`, are rows to run. */
  cached: number;
  /** KV blocks of the first group of layers; the first `blockCount` are valid. None while it waits. */
  blocks: Int32Array; // [capacity]
  blockCount: number;
  /** KV blocks of the groups after the first. None while it waits. */
  windows: WindowBlocks[];
  /** Leading blocks that are in the prefix index. */
  indexed: number;
  /** Only while it runs, of models with recurrent layers. */
  state: RunningState | undefined;
  readonly salt: string;
  /** Hashes of the chain of full blocks, as far as they were needed. */
  readonly hashes: number[];
  /** The same for what is on a disk. */
  readonly links: Uint8Array[];
  /** While it runs and waits for its prefix: `cached` and `blocks` are as if that were there already. */
  restoring: Restore | undefined;
  /** Its prompt is to be on the disk before it ends. */
  readonly keeps: boolean;
  /** While that is being done: what stands for this attempt. */
  keeping: object | undefined;
  /** What is on the disk could not be read in time, or whole. */
  skipsDisk: boolean;
  /** Where its prompt is kept, once it is. */
  stored: StoredPrompt | undefined;

  readonly sampling: SamplingParams;
  readonly random: Random;
  /** Only with penalties. */
  readonly counts: TokenCounts | undefined;
  /** Only with a DRY penalty. */
  readonly dry: Dry | undefined;
  /** What is asked of the backend for each token to sample, but for the row and the counts. */
  readonly logits: LogitsRequest;
  readonly ignoreEos: boolean;
  readonly output: OutputText;
  /** Alternatives to report; undefined when no log-probabilities are wanted. */
  readonly logprobs: number | undefined;

  /** What the answer is bound to; undefined where it is free. */
  form: AnswerForm | undefined;
  readonly markers: ReadonlySet<number>;
  /** Why the answer ends with the last of its tokens, once that is known. */
  ending: FinishReason | undefined;

  readonly promptLogprobs: boolean;
  /** Only with promptLogprobs: the prompt's tokens that have their score, the first (null) included from the start. */
  readonly scores: { token: number; logprob: number | null; top: TokenLogprob[] }[];

  /** Whether the prompt was in the KV cache once, and all about it is published. */
  prefilled: boolean;
  /** Tokens that were computed by guess: how many of them were right, and how many were not. */
  readonly drafts: { accepted: number; rejected: number };
  /** Events of the last tokens, which came without being sampled: they wait for the prompt, or for their scores. */
  held: TokenEvent[];

  /** Finished, failed or cancelled: nothing more is published. */
  done: boolean;
  /** Stops listening to the request's signal. */
  unlisten: () => void;
  /** Prompt tokens found in the KV cache when first admitted. */
  reused: number;
  /** Prompt tokens last reported as processed. */
  reported: number;
  /** Milliseconds of performance.now(); undefined until then. */
  readonly submittedAt: number;
  admittedAt: number | undefined;
  firstTokenAt: number | undefined;
}

/** A copy with room for twice as many values, `most` at most. */
export function grown(values: Int32Array, most: number): Int32Array {
  const room = new Int32Array(Math.min(most, 2 * values.length));
  room.set(values);
  return room;
}

/**
 * The tokens whose log-probabilities are still to be computed, first and end: the prompt's own, and those that came without
 * being sampled. Undefined where there are none.
 */
export function unscored(sequence: Sequence): { first: number; end: number } | undefined {
  const { scores, promptLength, logprobs, length } = sequence;
  if (sequence.promptLogprobs && scores.length < promptLength) {
    return { first: scores.length, end: logprobs === undefined ? promptLength : length };
  }
  const first = logprobs === undefined ? length : publishedLength(sequence);
  return first < length ? { first, end: length } : undefined;
}

/** The prompt's tokens and those of the answer that need no event any more. */
export function publishedLength({ length, held }: Sequence): number {
  let waiting = 0;
  for (const { type } of held) if (type === "token") waiting++;
  return length - waiting;
}

export function inNumbers({ id, promptLength, maxLength, length, cached }: Sequence): RunningSequence {
  return {
    id,
    promptTokens: promptLength,
    cachedTokens: cached,
    generatedTokens: length - promptLength,
    maxTokens: maxLength - promptLength,
  };
}

/** Whether a token is to be sampled once all tokens are in the KV cache. */
export function wantsToken(sequence: Sequence): boolean {
  return sequence.length < sequence.maxLength && sequence.ending === undefined;
}
