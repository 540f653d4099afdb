import type { GgufFile } from "../gguf/types.ts";
export { POOLING_KINDS, type PoolingKind } from "../gguf/hparams/pooling.ts";
export {
  ACTIVATION_PRECISIONS,
  type ActivationPrecision,
  type CompileOptions,
  DEFAULT_KV_TYPE,
  KV_BLOCK_TOKENS,
  KV_TYPES,
  KV_WORDS,
  type KvType,
  type WindowTable,
} from "../plan/choices.ts";
import type { CompileOptions, WindowTable } from "../plan/choices.ts";
import type { Plan } from "../plan/plan.ts";

/**
 * Where a model is computed: on the CPU natively, in WebAssembly, or on a GPU. "auto" is the GPU if it measures faster
 * than the CPU.
 *
 * ```ts
 * import { type BackendName, loadModel } from "compy";
 *
 * const backend: BackendName = "cpu";
 * await using model = await loadModel(undefined, { backend });
 * console.log(model.info.backend);
 * ```
 */
export type BackendName = "cpu" | "wasm" | "webgpu" | "auto";
/** All names of backends. */
export const BACKENDS: readonly BackendName[] = ["cpu", "wasm", "webgpu", "auto"];

/**
 * How a GPU computes matrix products. `f32`: everything in f32. `f16`: products and sums in f16 within a block of 32
 * columns, and f32 across blocks.
 *
 * ```ts
 * import { type Arithmetic } from "compy";
 *
 * const arithmetic: Arithmetic = "f16";
 * // await using model = await loadModel("qwen3-4b-q4_0.gguf", { backend: "webgpu", arithmetic });
 * console.log(arithmetic);
 * ```
 */
export type Arithmetic = "f32" | "f16";
/** All names of arithmetics. */
export const ARITHMETICS: readonly Arithmetic[] = ["f32", "f16"];

/**
 * Whether a model may run on a GPU in an arithmetic that misses the accuracy gates (docs/WEBGPU.md): `gated` refuses
 * it, `any` allows it.
 *
 * ```ts
 * import { type Accuracy } from "compy";
 *
 * const accuracy: Accuracy = "any";
 * // await using model = await loadModel("qwen3.5-0.8b-q8_0.gguf", { backend: "webgpu", arithmetic: "f16", accuracy });
 * console.log(accuracy);
 * ```
 */
export type Accuracy = "gated" | "any";
/** All settings of accuracy. */
export const ACCURACIES: readonly Accuracy[] = ["gated", "any"];

export interface BackendInfo {
  /** The backend's name: one of BACKENDS except "auto". */
  readonly name: string;
  /** The instruction set in use, e.g. "avx512-vnni". */
  readonly isa: string;
  readonly threads: number;
}

/** The rows of one sequence in a step: a prefill chunk, or the one token of a decode. */
export interface StepSequence {
  /** Index of the sequence's first row in `tokens`. */
  readonly start: number;
  /** Number of the sequence's rows in this step. */
  readonly length: number;
  /** Number of this sequence's tokens in the KV cache before the step: the position of its first row. */
  readonly cached: number;
  /** KV block ids of the first group of layers, for at least cached + length tokens. */
  readonly blockTable: Int32Array;
  /** Block tables of the layer groups after the first. */
  readonly windowTables?: readonly WindowTable[];
  /** Slots of the sequence's recurrent state; only for models with recurrent layers. */
  readonly state?: StepState;
  /** Adapters that its rows use, in ascending order of ids; only for plans with adapters. */
  readonly adapters?: readonly { readonly id: number; readonly scale: number }[];
  /** Where rotary tables see each row: time, height and width. By default all three are the row's position. */
  readonly places?: Uint32Array; // [length * AXES]
  /** Positions of images whose rows attend to each other in both directions. The spans are in order, and within the step's rows. */
  readonly spans?: readonly Span[];
}

/** Positions from `first` to before `end`. */
export interface Span {
  readonly first: number;
  readonly end: number;
}

/** Axes of a position in `StepSequence.places`. */
export const AXES = 3;

/** A row that a step brings, for plans with the op "given". */
export interface GivenRow {
  /** Row in `tokens`. */
  readonly row: number;
  readonly values: Float32Array;
}

/** Slots of recurrent state that a step reads and writes for a sequence. */
export interface StepState {
  /** Slot with the recurrent state before the rows; undefined at the start of a sequence. */
  readonly read: number | undefined;
  /** Slot that receives the recurrent state after the rows; may equal `read`. */
  readonly write: number;
  /** Slots that get a copy of the recurrent state after the first `after` rows, in ascending order. */
  readonly saves: readonly { readonly after: number; readonly slot: number }[];
}

/** A request for one row's logits. Penalties and bias are applied before the candidates are chosen. */
export interface LogitsRequest {
  /** Index of the row in `tokens`. */
  readonly row: number;
  /** Number of candidates to return, best first: 1 is the greedy choice. At most MAX_CANDIDATES. */
  readonly candidates: number;
  readonly repetitionPenalty: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  /**
   * Distinct tokens to penalize, and how often each was generated; equal lengths. A token that occurs only in the
   * prompt has count 0. Only the repetition penalty applies to it (logit > 0 ? logit / penalty : logit * penalty).
   * The others are logit - frequency * count - (count > 0 ? presence : 0).
   */
  readonly penaltyTokens: Int32Array;
  readonly penaltyCounts: Int32Array;
  readonly biasTokens: Int32Array;
  readonly biasValues: Float32Array;
  /**
   * One bit per token, set if the token is allowed (a grammar's mask); absent if all are. At least one bit is set. The
   * mask is computed while the step runs, because only its last op needs it. The promise is never rejected.
   */
  readonly mask?: Promise<Uint32Array>; // [ceil(vocabulary / 32)]
  /** Tokens whose raw logits are returned at any rank, to score a given text. */
  readonly probe: Int32Array;
  /**
   * Draws a token too, if set. Every backend can draw from the whole vocabulary; backends with `draws` can also draw
   * from the candidates.
   */
  readonly draw?: Draw;
}

/**
 * How a backend draws a token: like engine/sampling/sampler.ts, but with noise that depends only on the key and the
 * position (on a GPU also on the token). A text therefore does not depend on the number of steps per call.
 */
export interface Draw {
  /** Sampling temperature; 0 chooses the best token. */
  readonly temperature: number;
  readonly topP: number;
  readonly minP: number;
  /** Whether to draw from the whole vocabulary, without top-k, top-p and min-p. */
  readonly whole: boolean;
  /** Number of best candidates to draw from. Further candidates are only reported. */
  readonly topK: number;
  /** Whether top-p uses probabilities over the whole vocabulary, not over the candidates. */
  readonly massOfAll: boolean;
  readonly key: readonly [number, number]; // two u32 values
  /** Tokens that end the sequence. */
  readonly ends: Int32Array;
}
export const MAX_CANDIDATES = 256;

/**
 * Returns the cumulative probability at which the token after `position` is drawn, in units of 2^-32. For backends that
 * draw by cumulative probability.
 */
export function drawMark({ key }: Draw, position: number): number {
  return mix(mix(mix(key[0] ^ Math.imul(position, 0x9e3779b9)) ^ key[1])) >>> 0;
}

/** Returns the finalizer of MurmurHash3 applied to x. */
function mix(x: number): number {
  let h = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return h ^ (h >>> 16);
}

const NO_TOKENS = new Int32Array(0);

/** Returns a request for a row's most likely token, without penalties, bias and probe. */
export function greedyRequest(row: number): LogitsRequest {
  return {
    row,
    candidates: 1,
    repetitionPenalty: 1,
    presencePenalty: 0,
    frequencyPenalty: 0,
    penaltyTokens: NO_TOKENS,
    penaltyCounts: NO_TOKENS,
    biasTokens: NO_TOKENS,
    biasValues: new Float32Array(0),
    probe: NO_TOKENS,
  };
}

/** All input of a step. */
export interface StepInput {
  readonly tokens: Int32Array; // [rows]
  readonly sequences: readonly StepSequence[];
  readonly logits: readonly LogitsRequest[];
  /**
   * Indices of the sequences to pool; only for plans that pool. Pooling by mean or first row needs the whole sequence
   * in one step.
   */
  readonly pools?: readonly number[];
  /**
   * Makes the step a draft, for plans that can draft. Row i continues from row `drafts[i]` of the previous step; no row
   * is used twice. A draft uses no recurrent state and pools nothing. Its rows replace their predecessors.
   */
  readonly drafts?: Int32Array; // [rows]
  /** In ascending order of rows. CPU only. */
  readonly given?: readonly GivenRow[];
}

/** The candidates of one LogitsRequest. */
export interface Candidates {
  readonly ids: Int32Array; // [n], best first by `logits`; a drawn token beyond the candidates comes last
  /** Logits after penalties, bias and mask. */
  readonly logits: Float32Array; // [n]
  /** Logits as the model computed them. */
  readonly rawLogits: Float32Array; // [n]
  /** log(sum(exp(raw logits))) over the whole vocabulary: raw logit - this = log-probability. */
  readonly logSumExp: number;
  /** Standard deviation of the raw logits over the whole vocabulary. */
  readonly deviation: number;
  readonly probed: Float32Array; // [probe.length], raw logits
  /** Index of the drawn token in `ids`; undefined without a draw, and after the sequence's end. */
  readonly drawn?: number;
}

export interface StepOutput {
  /** Candidates of each request, in the order of `StepInput.logits`. */
  readonly rows: Candidates[];
  /** One pooled row per entry of `StepInput.pools`, in the same order; undefined without entries. */
  readonly pooled?: readonly Float32Array[];
  /** The sums of the plan's tallies, in the order of its ops. Not from drafts, and not from a GPU. */
  readonly tallies?: Float32Array;
}

/** Parts of a model's cache: KV blocks and slots of recurrent state. */
export interface CacheParts {
  readonly blocks: readonly CacheBlock[];
  readonly slots: readonly number[];
}

/** A KV block and the group of layers that it belongs to. */
export interface CacheBlock {
  readonly group: number;
  readonly block: number;
}

/** A backend that draws tokens itself, so it can run several steps per call. */
export interface DrawsTokens {
  /**
   * Runs `steps` steps, each with the tokens that the previous step drew. Every sequence has one row with a draw. The
   * block tables must cover the rows of all steps. Recurrent state is read and written in the same slot, and not saved
   * elsewhere. Output after a sequence's end is undefined.
   */
  decode(input: StepInput, steps: number): Promise<StepOutput[]>;
}

/** A backend that can copy its KV cache and recurrent states out and in, between steps. */
export interface CopiesCache {
  /** Returns the parts' bytes: first the blocks, then the slots. */
  readCache(parts: CacheParts): Promise<Uint8Array<ArrayBuffer>>;
  /**
   * Restores bytes that `readCache` returned for equally many parts of the same kinds. The bytes may be split anywhere.
   */
  writeCache(parts: CacheParts, bytes: readonly Uint8Array[]): Promise<void>;
  /** Returns the SHA-256 of the kernels, in hex. Copies are exchanged only between equal kernels. */
  kernelsDigest(): Promise<string>;
}

/** Optional abilities of a backend; a missing ability is undefined or false. */
export interface Abilities {
  readonly draws?: DrawsTokens;
  readonly copies?: CopiesCache;
  /** Whether `StepInput.pools` is supported. */
  readonly pools: boolean;
}

/** Runs plans, one step at a time: call `step` only after the previous call has returned. */
export interface Backend {
  readonly info: BackendInfo;
  readonly abilities: Abilities;
  /** Packs the plan's weights, tensor by tensor. `progress` receives the bytes done and the total bytes. */
  loadWeights(file: GgufFile, plan: Plan, progress?: (done: number, total: number) => void): Promise<void>;
  compile(plan: Plan, options: CompileOptions): Promise<void>;
  /** Runs one step. Throws StepStopped if `requestStop` ended it early. */
  step(input: StepInput): Promise<StepOutput>;
  /** The best number of rows for a prefill step, if below the maximum. The number changes with measured times. */
  readonly stepRows?: number;
  /**
   * Tile size in rows of matrix products: a multiple of it takes no longer than slightly fewer rows. Undefined if
   * unknown.
   */
  readonly wholeRows?: number;
  /**
   * Resolves when the device is lost, other than by `close`. Later steps throw DeviceLost. Only for backends with a
   * device.
   */
  readonly lost?: Promise<DeviceLost>;
  requestStop(): void;
  close(): void;
}

/** The compute device was lost with all its data. Another device can be opened. */
export class DeviceLost extends Error {
  override name = "DeviceLost";
}

/** A step that `requestStop` ended early. */
export class StepStopped extends Error {
  override name = "StepStopped";
}
