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
  /** The sequence's own slot. */
  slot: number;
  /** The slot that receives the state after drafts in the current step. */
  draft: number | undefined;
  /** The snapshot's slot that the sequence resumes from, until its first step is done. */
  source: number | undefined;
  /** Block edges ahead, in tokens, where a snapshot is wanted. */
  readonly snapshotEdges: Set<number>;
  /** Snapshots that the current step takes. */
  saves: { readonly position: number; readonly slot: number }[];
  /** The KV block after which the answer's last snapshot was taken. */
  answer: number | undefined;
}

/**
 * The parts of a prefix that a sequence waits for. The parts are read from a disk into the sequence's blocks and
 * slot.
 */
export interface Restore {
  /** Number of the prefix's blocks, including those in memory. */
  readonly end: number;
  /** Number of tokens that need not be computed because of the read. */
  readonly tokens: number;
  /** Ordered by position: the layer group (`kind`) and the KV block (`place`) to read into. */
  readonly parts: readonly { readonly position: number; readonly kind: number; readonly place: number }[];
  /** Slot for the state after the prefix; undefined if it is in memory or the model has none. */
  readonly slot: number | undefined;
}

/** A sequence's KV blocks in a layer group with a window. */
export interface WindowBlocks {
  /** Indexed by position in the sequence. The sequence holds the blocks from `first` to before `end`. */
  blocks: Int32Array; // [capacity]
  first: number;
  end: number;
}

/** The destination of a sequence's events. */
export interface EventSink {
  /** Whether the reader is slow; then the sequence is not scheduled. */
  readonly full: boolean;
  push(event: TokenEvent): void;
  fail(error: Error): void;
}

/** The receiver of a text's pooled row. */
export interface PooledOutput {
  /** Whether all rows are pooled. Then they are computed in one step, and none comes from the cache. */
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

/** A sequence's prompt on the disk. StoredPrefixes writes it. */
export interface DiskPart {
  /** Names of the full blocks on the disk, computed on demand. */
  readonly links: Uint8Array[];
  /** Set while the running sequence waits for its prefix. `KvPart` already includes that prefix. */
  restoring: Restore | undefined;
  /** Whether the prompt must be stored on the disk before the sequence ends. */
  readonly mustStore: boolean;
  /** Identifies the current attempt to store the prompt. */
  storing: object | undefined;
  /** Whether to ignore the disk, because a read was late or incomplete. */
  skips: boolean;
  /** The place on the disk where the prompt is stored; undefined until it is stored. */
  stored: StoredPrompt | undefined;
}

/** How a sequence's tokens are chosen. `append` in engine/output updates `counts` and `dry`; sampling advances `random`. */
export interface SamplerPart {
  readonly params: SamplingParams;
  readonly random: Random;
  /** Set only with penalties. */
  readonly counts: TokenCounts | undefined;
  /** Set only with a DRY penalty. */
  readonly dry: Dry | undefined;
  /** Template of the logits request for each sampled token, without row and counts. */
  readonly logits: LogitsRequest;
}

/** The part of a sequence about its first and its last admission. The scheduler writes this part. */
export interface AdmissionPart {
  /** Time of performance.now() in milliseconds; undefined until the admission. */
  at: number | undefined;
  /** Number of prompt tokens found in the KV cache. */
  reused: number;
  /** Number of tokens, of the prompt and the answer, at the last admission. */
  length: number;
}

/** What a sequence has published. The functions of engine/output write it. */
export interface ProgressPart {
  /** Whether the whole prompt has been in the KV cache, and the prompt's events have been published. */
  prefilled: boolean;
  /** Number of prompt tokens last reported as processed. */
  reported: number;
  /** Set only with promptLogprobs: the scored prompt tokens. The first (null) is there from the start. */
  readonly scores: { token: number; logprob: number | null; top: TokenLogprob[] }[];
  /** Events of the last, forced tokens, held until the prompt is computed or their scores arrive. */
  readonly held: TokenEvent[];
  /** Counts of correct and wrong draft tokens. */
  readonly drafts: { accepted: number; rejected: number };
  /** Time of performance.now() in milliseconds; undefined until the first token. */
  firstTokenAt: number | undefined;
  /** Why the answer ends with its last token, once known. */
  ending: FinishReason | undefined;
  /** Whether the sequence has finished, failed or been cancelled; then nothing more is published. */
  done: boolean;
}

/** One request's state in the engine. Data only. Each part has one writer, and everything may read it. */
export interface Sequence {
  /** Number in order of arrival. */
  readonly id: number;
  readonly batch: boolean;
  readonly stream: EventSink;
  /** Set only for pooled texts, which generate no tokens. */
  readonly pooled?: PooledOutput;
  readonly promptLength: number;
  /** Maximum number of tokens, prompt included. */
  readonly maxLength: number;
  /** Names the tenant: sequences of different salts share no cached prompts, and tenants share the engine. */
  readonly salt: string;
  /** Sequences share cached prompts if their keys are equal. The key covers the salt, the images and the adapters. */
  readonly prefixKey: string;
  readonly images?: SequenceImages;
  /** In ascending order of ids, each with a scale other than 0. */
  readonly adapters: readonly UsedAdapter[];
  /** The tenant's share of the engine, relative to others'. */
  readonly weight: number;
  /** The same object for all sequences of one request. */
  readonly request: object;
  readonly ignoreEos: boolean;
  /** Number of alternatives to report; undefined without log-probabilities. */
  readonly logprobs: number | undefined;
  readonly promptLogprobs: boolean;
  readonly markers: ReadonlySet<number>;
  /** Time of performance.now() in milliseconds. */
  readonly submittedAt: number;

  /**
   * The prompt and the generated tokens; the first `length` are valid. `append` in engine/output adds tokens. The
   * scheduler writes drafts beyond `length`.
   */
  tokens: Int32Array; // [capacity]
  length: number;

  readonly kv: KvPart;
  /** Set only while the sequence runs, for models with recurrent layers. RecurrentStates writes it. */
  state: RunningState | undefined;
  readonly disk: DiskPart;
  readonly sampler: SamplerPart;
  readonly admission: AdmissionPart;
  readonly progress: ProgressPart;
  readonly output: OutputText;

  /** The answer's constraint and thinking bounds; undefined without any. The engine sets it before it queues the sequence. */
  form: AnswerForm | undefined;
  /** Stops listening to the request's abort signal. Set by the engine. */
  unlisten: () => void;
}

/** Returns the parts of a sequence that has not been admitted yet. */
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

/** Returns a copy with twice the capacity, but at most `most`. */
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

/** Whether a token must be sampled once all tokens are in the KV cache. */
export function wantsToken(sequence: Sequence): boolean {
  return sequence.length < sequence.maxLength && sequence.progress.ending === undefined;
}

/**
 * Returns how many leading tokens can come from the cache. The last token and every unscored token need logits, so
 * they are computed.
 */
export function reusableTokens(sequence: Sequence): number {
  if (sequence.pooled?.whole) return 0;
  return (unscored(sequence)?.first ?? sequence.length) - 1;
}

/** Whether no part is stored on disk: embedding texts rarely repeat, and names on disk do not tell images apart. */
export function staysOffDisk({ pooled, images }: Sequence): boolean {
  return pooled !== undefined || images !== undefined;
}
