import type { AnswerForm } from "../output/answer_form.ts";
import type { LogitsRequest } from "../backend/backend.ts";
import type { Dry } from "../sampling/dry.ts";
import type { Random } from "../sampling/random.ts";
import type { TokenCounts } from "../sampling/sampler.ts";
import type { OutputText } from "../output/stop.ts";
import type { RunningSequence } from "../api/engine.ts";
import type { FinishReason, StoredPrompt, TokenEvent, TokenLogprob } from "../api/events.ts";
import type { UsedAdapter } from "../api/request.ts";
import type { SamplingParams } from "../api/sampling.ts";
import type { SequenceImages } from "./images.ts";

/** The recurrent state of a running sequence. */
export interface RunningState {
  /** The sequence's own slot of recurrent state. */
  slot: number;
  /**
   * State slots of the current step with drafts, in this order: after the sequence's own rows, after each of the first
   * drafts, after all drafts. The last slot always exists; the others depend on free slots.
   */
  drafted: number[];
  /** The snapshot's slot from which the sequence resumes, until its first step is done. */
  source: number | undefined;
  /** Block edges ahead, in tokens, at which to take a snapshot. */
  readonly snapshotEdges: Set<number>;
  /** Snapshots that the current step takes. */
  saves: { readonly position: number; readonly slot: number }[];
  /** The KV block after which the answer's last snapshot was taken. */
  answer: number | undefined;
}

/** The parts of a prefix to read from a disk into a waiting sequence's blocks and slot. */
export interface Restore {
  /** Number of blocks in the prefix, including those in memory. */
  readonly end: number;
  /** Number of tokens that need not be computed because of the read. */
  readonly tokens: number;
  /** Prefix parts ordered by position: the layer group (`kind`) and the destination block or slot (`place`). */
  readonly parts: readonly { readonly position: number; readonly kind: number; readonly place: number }[];
  /** Slot for the state after the prefix; undefined if the state is in memory or the model has none. */
  readonly slot: number | undefined;
}

/** A sequence's KV blocks in a layer group with a window. */
export interface WindowBlocks {
  /** Block ids by position in the sequence. The sequence holds the blocks from `first` to before `end`. */
  blocks: Int32Array; // [capacity]
  first: number;
  end: number;
}

/** The destination of a sequence's events. */
export interface EventSink {
  /** Whether the reader is too slow: then the sequence is not scheduled. */
  readonly full: boolean;
  push(event: TokenEvent): void;
  fail(error: Error): void;
}

/** The receiver of a text's pooled row. */
export interface PooledOutput {
  /** Whether all rows are pooled. They are then computed in one step, without the KV cache. */
  readonly whole: boolean;
  give(row: Float32Array): void;
  cancel(): void;
}

/** A sequence's place in the KV cache. KvCache writes it; `hashOf` appends to `hashes`. */
export interface KvPart {
  /** Number of tokens whose KV is computed. The other `length - cached` tokens are rows to run. */
  cached: number;
  /** KV blocks of the first layer group; the first `blockCount` are valid. Empty while the sequence waits. */
  blocks: Int32Array; // [capacity]
  blockCount: number;
  /** KV blocks of the other layer groups. Empty while the sequence waits. */
  windows: WindowBlocks[];
  /** Number of leading blocks in the prefix index. */
  indexed: number;
  /** Hashes of the chain of full blocks, computed on demand. */
  readonly hashes: number[];
}

/** The state of a sequence's prompt on the disk. StoredPrefixes writes it. */
export interface DiskPart {
  /** Links of the full blocks in the chain of names on disk, computed on demand. */
  readonly links: Uint8Array[];
  /** Set while the running sequence waits for its prefix from disk. `KvPart` already includes the prefix. */
  restoring: Restore | undefined;
  /** Whether the prompt must be stored on the disk before the sequence ends. */
  readonly mustStore: boolean;
  /** Identifies the current attempt to store the prompt. */
  storing: object | undefined;
  /** Whether to ignore the disk for this sequence, because a read was late or incomplete. */
  skips: boolean;
  /** The place on the disk where the prompt is stored; undefined until it is stored. */
  stored: StoredPrompt | undefined;
}

/** A sequence's sampling state. `append` in engine/output updates `counts` and `dry`; sampling advances `random`. */
export interface SamplerPart {
  readonly params: SamplingParams;
  readonly random: Random;
  /** Token counts; only with penalties. */
  readonly counts: TokenCounts | undefined;
  /** State of DRY sampling; only with a DRY penalty. */
  readonly dry: Dry | undefined;
  /** Template of the logits request for each sampled token, without row and counts. */
  readonly logits: LogitsRequest;
}

/** The part of a sequence about its first and its last admission. The scheduler writes this part. */
export interface AdmissionPart {
  /** Time of the first admission, by performance.now(); undefined before. */
  at: number | undefined;
  /** Number of prompt tokens found in the KV cache. */
  reused: number;
  /** Number of tokens, of the prompt and the answer, at the last admission. */
  length: number;
}

/** The published progress of a sequence. The functions of engine/output write it. */
export interface ProgressPart {
  /** Whether the whole prompt is in the KV cache and its events are published. */
  prefilled: boolean;
  /** Number of prompt tokens last reported as processed. */
  reported: number;
  /** Scored prompt tokens, only with promptLogprobs. The first (null) is there from the start. */
  readonly scores: { token: number; logprob: number | null; top: TokenLogprob[] }[];
  /** Held events of the last, forced tokens, until the prompt is computed or their scores arrive. */
  readonly held: TokenEvent[];
  /** Counts of correct and wrong draft tokens. */
  readonly drafts: { accepted: number; rejected: number };
  /** Time of the first token, by performance.now(); undefined before. */
  firstTokenAt: number | undefined;
  /** Why the answer ends with its last token, once known. */
  ending: FinishReason | undefined;
  /** Whether the sequence has finished, failed or been cancelled, so that nothing more is published. */
  done: boolean;
}

/** One request's state in the engine: only data. Each part has one writer; all code may read it. */
export interface Sequence {
  /** Sequential number, in order of arrival. */
  readonly id: number;
  readonly batch: boolean;
  readonly stream: EventSink;
  /** Receiver of the pooled row; only for texts, which generate no tokens. */
  readonly pooled?: PooledOutput;
  readonly promptLength: number;
  /** Maximum number of tokens in the sequence, prompt included. */
  readonly maxLength: number;
  /** Names the tenant. Sequences share cached prompts only within a salt, and tenants share the engine. */
  readonly salt: string;
  /** Sequences share cached prompts if their keys are equal. The key covers the salt, the images and the adapters. */
  readonly prefixKey: string;
  readonly images?: SequenceImages;
  /** Adapters of the request, in ascending order of ids, each with a scale other than 0. */
  readonly adapters: readonly UsedAdapter[];
  /** The tenant's share of the engine, relative to other tenants' shares. */
  readonly weight: number;
  /** Identifies the request: the same object for all its sequences. */
  readonly request: object;
  readonly ignoreEos: boolean;
  /** Number of alternatives to report per token; undefined without log-probabilities. */
  readonly logprobs: number | undefined;
  readonly promptLogprobs: boolean;
  readonly markers: ReadonlySet<number>;
  /** Time of submission, by performance.now(). */
  readonly submittedAt: number;

  /**
   * The prompt and the generated tokens; the first `length` are valid. `append` in engine/output adds tokens. The
   * scheduler writes drafts beyond `length`.
   */
  tokens: Int32Array; // [capacity]
  length: number;

  readonly kv: KvPart;
  /** Recurrent state of a running sequence; undefined for other models. RecurrentStates writes it. */
  state: RunningState | undefined;
  readonly disk: DiskPart;
  readonly sampler: SamplerPart;
  readonly admission: AdmissionPart;
  readonly progress: ProgressPart;
  readonly output: OutputText;

  /**
   * The answer's constraint and thinking bounds; undefined without any. The engine sets it before queueing the
   * sequence.
   */
  form: AnswerForm | undefined;
  /** Stops listening to the request's abort signal. Set by the engine. */
  unlisten: () => void;
}

/** Returns the initial parts of a sequence, before its admission. */
export function newParts(
  mustStore: boolean,
): Pick<Sequence, "kv" | "state" | "disk" | "admission" | "progress"> {
  return {
    kv: { cached: 0, blocks: new Int32Array(0), blockCount: 0, windows: [], indexed: 0, hashes: [] },
    state: undefined,
    disk: {
      links: [],
      restoring: undefined,
      mustStore,
      storing: undefined,
      skips: false,
      stored: undefined,
    },
    admission: { at: undefined, reused: 0, length: 0 },
    progress: {
      prefilled: false,
      reported: 0,
      scores: [],
      held: [],
      drafts: { accepted: 0, rejected: 0 },
      firstTokenAt: undefined,
      ending: undefined,
      done: false,
    },
  };
}

/** Returns a copy of the array with twice the capacity, but at most `most`. */
export function grown(values: Int32Array, most: number): Int32Array {
  const room = new Int32Array(Math.min(most, 2 * values.length));
  room.set(values);
  return room;
}

/**
 * Returns the range of tokens that still need log-probabilities: the prompt's own tokens, and forced tokens.
 * Returns undefined if no token needs them.
 */
export function unscored(sequence: Sequence): { first: number; end: number } | undefined {
  const { progress: { scores }, promptLength, logprobs, length } = sequence;
  if (sequence.promptLogprobs && scores.length < promptLength) {
    return { first: scores.length, end: logprobs === undefined ? promptLength : length };
  }
  const first = logprobs === undefined ? length : publishedLength(sequence);
  return first < length ? { first, end: length } : undefined;
}

/** Returns the number of prompt tokens and of answer tokens without a held event. */
export function publishedLength({ length, progress: { held } }: Sequence): number {
  let waiting = 0;
  for (const { type } of held) if (type === "token") waiting++;
  return length - waiting;
}

export function inNumbers({ id, promptLength, maxLength, length, kv }: Sequence): RunningSequence {
  return {
    id,
    promptTokens: promptLength,
    cachedTokens: kv.cached,
    generatedTokens: length - promptLength,
    maxTokens: maxLength - promptLength,
  };
}

/** Returns whether a token must be sampled once all tokens are in the KV cache. */
export function wantsToken(sequence: Sequence): boolean {
  return sequence.length < sequence.maxLength && sequence.progress.ending === undefined;
}

/**
 * Returns the number of leading tokens that can come from the cache. The last token and every unscored token need
 * logits, so they are computed.
 */
export function reusableTokens(sequence: Sequence): number {
  if (sequence.pooled?.whole) return 0;
  return (unscored(sequence)?.first ?? sequence.length) - 1;
}
