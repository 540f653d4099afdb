import type { GgufFile } from "../gguf/types.ts";
export { POOLING_KINDS, type PoolingKind } from "../gguf/hparams/pooling.ts";
export {
  ACTIVATION_PRECISIONS,
  type ActivationPrecision,
  type CompileOptions,
  KV_BLOCK_TOKENS,
  KV_TYPES,
  KV_WORDS,
  type KvType,
  type WindowTable,
} from "../plan/choices.ts";
import type { CompileOptions, WindowTable } from "../plan/choices.ts";
import type { Plan } from "../plan/plan.ts";

/**
 * Where a model can be computed: natively, in WebAssembly or on a GPU; "auto" is the GPU if it measures faster.
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
/** All of them. */
export const BACKENDS: readonly BackendName[] = ["cpu", "wasm", "webgpu", "auto"];

/**
 * How a GPU computes matrix products. `f32`: everything in f32. `f16`: products and sums in f16 within a block of 32 columns, and f32
 * across blocks.
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
/** All of them. */
export const ARITHMETICS: readonly Arithmetic[] = ["f32", "f16"];

/**
 * Whether a model may be computed on a GPU in an arithmetic in which it leaves the gates of accuracy (docs/WEBGPU.md): `gated` refuses
 * that, `any` allows it.
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
/** All of them. */
export const ACCURACIES: readonly Accuracy[] = ["gated", "any"];

export interface BackendInfo {
  /** One of BACKENDS, but "auto". */
  readonly name: string;
  /** The instruction set in use, e.g. "avx512-vnni". */
  readonly isa: string;
  readonly threads: number;
}

/** The rows of one sequence in a step: a prefill chunk, or the one token of a decode. */
export interface StepSequence {
  /** Index of its first row in `tokens`. */
  readonly start: number;
  /** Rows in this step. */
  readonly length: number;
  /** Tokens of this sequence that are in the KV cache before the step; the first row's position. */
  readonly cached: number;
  /** KV block ids of the first group of layers; covers at least cached + length tokens. */
  readonly blockTable: Int32Array;
  /** One for each group of layers after the first. */
  readonly windowTables?: readonly WindowTable[];
  /** Where its recurrent state is kept; only of models that have one. */
  readonly state?: StepState;
}

/** Slots of recurrent state that a sequence's rows go through. */
export interface StepState {
  /** Holds the state before the rows; undefined before a sequence's first. */
  readonly read: number | undefined;
  /** Gets the state after the rows; may be the same. */
  readonly write: number;
  /** Slots that get a copy of the state after the first `after` rows; in ascending order. */
  readonly saves: readonly { readonly after: number; readonly slot: number }[];
}

/** What is wanted of one row's logits. Penalties and bias are applied before the candidates are chosen. */
export interface LogitsRequest {
  /** Row in `tokens`. */
  readonly row: number;
  /** How many candidates to return, best first: 1 is the greedy choice. At most MAX_CANDIDATES. */
  readonly candidates: number;
  readonly repetitionPenalty: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  /**
   * Distinct tokens that the penalties look at, and how often each was generated; equal lengths. A prompt's token has
   * count 0: the repetition penalty (logit > 0 ? logit / penalty : logit * penalty) sees it, the others (logit -
   * frequency * count - (count > 0 ? presence : 0)) do not.
   */
  readonly penaltyTokens: Int32Array;
  readonly penaltyCounts: Int32Array;
  readonly biasTokens: Int32Array;
  readonly biasValues: Float32Array;
  /**
   * One bit a token, set where the token is allowed (a grammar's mask); absent when all are. At least one bit is set. It is
   * computed while the step runs, which needs it for its last op only; the promise is never rejected.
   */
  readonly mask?: Promise<Uint32Array>; // [ceil(vocabulary / 32)]
  /** Tokens whose raw logits are wanted whatever their rank (scoring of a given text). */
  readonly probe: Int32Array;
  /** Draws a token besides: every backend from the whole vocabulary, those with `draws` from the candidates too. */
  readonly draw?: Draw;
}

/**
 * How a backend draws a token: as engine/sampling/sampler.ts does, but with noise that depends on nothing but the key and the
 * position (on a GPU the token too). So a text does not depend on how many steps were taken at once.
 */
export interface Draw {
  /** 0 takes the best. */
  readonly temperature: number;
  readonly topP: number;
  readonly minP: number;
  /** Draws from the whole vocabulary, without top-k, top-p and min-p. */
  readonly whole: boolean;
  /** Draws from so many of the best candidates, at most: there may be more that are only reported. */
  readonly topK: number;
  /** Top-p counts the candidates' probabilities by all tokens', not by each other's. */
  readonly massOfAll: boolean;
  readonly key: readonly [number, number]; // u32 each
  /** Tokens that end the sequence. */
  readonly ends: Int32Array;
}
export const MAX_CANDIDATES = 256;

/** Where in the distribution the token after `position` is drawn, in steps of 2^-32, for backends that sum it up. */
export function drawMark({ key }: Draw, position: number): number {
  return mix(mix(mix(key[0] ^ Math.imul(position, 0x9e3779b9)) ^ key[1])) >>> 0;
}

/** The finalizer of MurmurHash3. */
function mix(x: number): number {
  let h = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return h ^ (h >>> 16);
}

const NO_TOKENS = new Int32Array(0);

/** The likeliest token of a row, as its logits are: no penalties, no bias, no probe. */
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

/** All that changes from step to step. */
export interface StepInput {
  readonly tokens: Int32Array; // [rows]
  readonly sequences: readonly StepSequence[];
  readonly logits: readonly LogitsRequest[];
  /**
   * Indices of the sequences whose pooled row is wanted; only of plans that pool. By mean or by the first row, a
   * sequence must begin in the step that pools it.
   */
  readonly pools?: readonly number[];
  /**
   * Only of plans that can draft: makes the step a draft, each of whose rows continues from that row of the step before, no two from the
   * same. It reads and writes no recurrent state and pools nothing, and leaves its own rows where theirs were.
   */
  readonly drafts?: Int32Array; // [rows]
}

/** The candidates of one LogitsRequest. */
export interface Candidates {
  readonly ids: Int32Array; // [n], best first by `logits`; a token that was drawn from beyond them is the last
  /** After penalties, bias and mask. */
  readonly logits: Float32Array; // [n]
  /** As the model gave them. */
  readonly rawLogits: Float32Array; // [n]
  /** log(sum(exp(raw logits))) over the whole vocabulary: raw logit - this = log-probability. */
  readonly logSumExp: number;
  /** The standard deviation of the raw logits of the whole vocabulary. */
  readonly deviation: number;
  readonly probed: Float32Array; // [probe.length], raw logits
  /** Index of the token that was drawn; undefined without a draw, and after the sequence's end. */
  readonly drawn?: number;
}

export interface StepOutput {
  /** In the order of `StepInput.logits`. */
  readonly rows: Candidates[];
  /** In the order of `StepInput.pools`: a row each; undefined where none was wanted. */
  readonly pooled?: readonly Float32Array[];
}

/** Parts of what a model keeps from step to step: blocks of the KV cache and slots of recurrent state. */
export interface CacheParts {
  readonly blocks: readonly CacheBlock[];
  readonly slots: readonly number[];
}

/** A block of the KV cache, and the group of layers whose tokens it holds. */
export interface CacheBlock {
  readonly group: number;
  readonly block: number;
}

/** A backend that draws tokens itself, so it can run several steps per call. */
export interface DrawsTokens {
  /**
   * Runs `steps` steps, each with the tokens that the step before it drew. Every sequence has one row, and that row has a
   * draw. The block tables cover the rows of all steps. Recurrent state is read where it is written, and not saved. Output
   * after a sequence's end is void.
   */
  decode(input: StepInput, steps: number): Promise<StepOutput[]>;
}

/** A backend whose KV cache and recurrent states can be copied out and in, but not during a step. */
export interface CopiesCache {
  /** Returns the parts' bytes: first the blocks, then the slots. */
  readCache(parts: CacheParts): Promise<Uint8Array<ArrayBuffer>>;
  /** Restores bytes that `readCache` returned for as many parts of the same kinds; they may be cut into pieces anywhere. */
  writeCache(parts: CacheParts, bytes: readonly Uint8Array[]): Promise<void>;
  /** Returns the SHA-256 of the kernels, in hex. Copies are exchanged only between equal kernels. */
  kernelsDigest(): Promise<string>;
}

/** What a backend can do besides `step`. An ability that it lacks is undefined or false. */
export interface Abilities {
  readonly draws?: DrawsTokens;
  readonly copies?: CopiesCache;
  /** Whether `StepInput.pools` is supported. */
  readonly pools: boolean;
}

/** Where plans run. One step at a time: `step` must not be called again before it has returned. */
export interface Backend {
  readonly info: BackendInfo;
  readonly abilities: Abilities;
  /** Packs the plan's weights, tensor by tensor; `progress` gets bytes done and bytes in all. */
  loadWeights(file: GgufFile, plan: Plan, progress?: (done: number, total: number) => void): Promise<void>;
  compile(plan: Plan, options: CompileOptions): Promise<void>;
  /** Runs one step. Throws StepStopped when `requestStop` came first: the step's output is void then. */
  step(input: StepInput): Promise<StepOutput>;
  /** Rows that steps are best filled with, where that is not as many as they may have: it changes with what is measured. */
  readonly stepRows?: number;
  /** Rows of which its products take a multiple as fast as some fewer, where that is known. */
  readonly wholeRows?: number;
  /** Resolves when the device is lost, but not by `close`; steps throw DeviceLost then. Only of backends that have one. */
  readonly lost?: Promise<DeviceLost>;
  requestStop(): void;
  close(): void;
}

/** The device that computed is gone, and with it all that it held. Another can be opened. */
export class DeviceLost extends Error {
  override name = "DeviceLost";
}

/** A step that `requestStop` ended early. */
export class StepStopped extends Error {
  override name = "StepStopped";
}
