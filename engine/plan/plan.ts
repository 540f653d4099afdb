/**
 * The compiled form of a model: a flat list of fused ops over named buffers. Views, reshapes and transposes
 * are never ops. Values that change per step (rows, rows with logits, KV lengths) are not part of a plan.
 */
import { KV_BLOCK_TOKENS, type KvType, type WindowTable } from "./choices.ts";
import type { TensorInfo } from "../gguf/types.ts";
import type { PlanOp } from "./ops/registry.ts";

export type { ActivationPrecision } from "./choices.ts";

export type { PlanOp };

/** The number of experts, and how many of them each row chooses. */
export interface Choice {
  readonly count: number;
  readonly used: number;
}

/** A buffer of the chosen experts: per row their numbers in ascending order as f32, then their weights. */
export interface Chosen extends Choice {
  readonly buffer: BufferId;
}

/**
 * Rows of a buffer: one per token of the step, per row with logits, per pooled sequence, or per expert chosen
 * by a token. Rows of the same expert are contiguous.
 */
export type BufferRows = "step" | "logits" | "pools" | Choice;

/**
 * "float": f32 rows. "quant": 8-bit blocks of 32 with f32 scales. "fine": those blocks in two planes; the
 * second holds the rounding error of the first.
 */
export type BufferForm = "float" | "quant" | "fine";

/** A matrix of activations. */
export interface PlanBuffer {
  readonly name: string;
  readonly form: BufferForm;
  readonly rows: BufferRows;
  readonly columns: number;
}

/** A weight that the plan reads: a matrix, packed at load, or an f32 vector. */
export interface PlanTensor {
  readonly info: TensorInfo;
  readonly kind: "matrix" | "vector";
  readonly columns: number;
  /** Rows of all experts together, where there are several. */
  readonly rows: number;
  /** Number of matrices, one per expert; absent for a single matrix. */
  readonly experts?: number;
  /** The file's factor on the values: one number, or one per expert. */
  readonly factors?: TensorInfo;
}

/** Indices into `Plan.buffers` and `Plan.tensors`. */
export type BufferId = number;
export type TensorId = number;

/**
 * Activations of feed-forward blocks, in order of the kernels' codes. `gelu` is the tanh approximation.
 * `swiglu_oai` is gpt-oss's function of gate g and value u: min(g, 7) * sigmoid(1.702 min(g, 7)) * (clamp(u,
 * -7, 7) + 1).
 */
export const ACTIVATIONS = ["silu", "gelu", "gelu_erf", "squared_relu", "tanh", "swiglu_oai"] as const;
export type Activation = typeof ACTIVATIONS[number];

/** Names of the gated units with these activations. */
export const GLU_NAMES: Readonly<Record<Activation, string>> = {
  silu: "swiglu",
  gelu: "geglu",
  gelu_erf: "geglu_erf",
  squared_relu: "squared_reglu",
  tanh: "tanh_glu",
  swiglu_oai: "swiglu_oai",
};

/** One matrix of activations in the forms that its readers need, at least one. */
export interface Forms {
  readonly float?: BufferId;
  readonly quant?: BufferId;
  readonly fine?: BufferId;
}

/** Returns the buffers of the forms that exist. */
export function formsOf({ float, quant, fine }: Forms): BufferId[] {
  return [float, quant, fine].filter((id) => id !== undefined);
}

/** A layer of the KV cache: a key and a value per head and token. */
export interface KvLayer {
  readonly heads: number;
  readonly headDim: number;
  /** The group that the layer belongs to. */
  readonly group: number;
}

/**
 * The KV cache. A block holds KV_BLOCK_TOKENS tokens for the layers of one group. A sequence has a block
 * table per group.
 */
export interface KvShape {
  readonly type: KvType;
  /** The layers with a cache, each with its own shape. */
  readonly layers: readonly KvLayer[];
  /**
   * Per group, the tokens that its layers' rows attend to, themselves included; 0 is all. The first group's
   * window is always 0, and it exists even without layers.
   */
  readonly windows: readonly number[];
}

export interface HeadShape {
  /** Index into `Plan.kv.layers`: the layer's own cache, or the earlier layer's cache that it reads. */
  readonly layer: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /**
   * In query rows, each head is followed by a gate of the same width. Its sigmoid scales the head's output.
   */
  readonly gated: boolean;
}

/** Heads of a recurrent layer, each headDim wide. Value head h reads query and key head h % keyHeads. */
export interface DeltaShape {
  /** Index into the layers with a recurrent state. */
  readonly layer: number;
  readonly keyHeads: number;
  readonly valueHeads: number;
  readonly headDim: number;
  /**
   * Value heads that share a key head are adjacent instead. Alpha and beta are then in one row: a group's
   * betas, then its alphas.
   */
  readonly inGroups?: boolean;
}

/**
 * Channels of a short convolution, in heads of headDim: the first keyHeads become queries, the next keyHeads
 * become keys.
 */
export interface ConvShape {
  /** Index into the layers with a recurrent state. */
  readonly layer: number;
  readonly heads: number;
  readonly headDim: number;
  readonly keyHeads: number;
}

/** Heads of Mamba2. Head h uses the write and read vectors of group floor(h / (heads / groups)). */
export interface MambaShape {
  /** Index into the layers with a recurrent state. */
  readonly layer: number;
  readonly heads: number;
  readonly headDim: number;
  readonly groups: number;
  /** State values per channel of a head. */
  readonly stateSize: number;
}

/** A recurrent layer's state between tokens, in f32. */
export interface StateLayer {
  /** The last inputs of a short convolution. */
  readonly conv: { readonly inputs: number; readonly channels: number };
  /** One matrix per head. */
  readonly matrices?: { readonly heads: number; readonly rows: number; readonly columns: number };
}

export const NO_MATRICES = { heads: 0, rows: 0, columns: 0 };

/** Inputs of the short convolution: the token's own and those of the three tokens before it. */
export const CONV_TAPS = 4;

/** Rotation angles of a rotary table. */
export interface RopeAngles {
  /** Angle per position, for each pair. */
  readonly frequencies: Float64Array;
  /** Factor on cosine and sine. */
  readonly magnitude: number;
  /** Replaces `frequencies` where sequences may have more than `beyond` tokens. */
  readonly long?: { readonly beyond: number; readonly frequencies: Float64Array };
}

export interface Plan {
  readonly architecture: string;
  readonly vocabSize: number;
  readonly contextLength: number;
  readonly tensors: readonly PlanTensor[];
  readonly buffers: readonly PlanBuffer[];
  readonly ops: readonly PlanOp[];
  /** Rotary tables. */
  readonly rope: readonly RopeAngles[];
  readonly kv: KvShape;
  /** State of each recurrent layer. */
  readonly states: readonly StateLayer[];
}

/** Returns the plan with another KV cache type. */
export function withKvType(plan: Plan, type: KvType): Plan {
  return { ...plan, kv: { ...plan.kv, type } };
}

/** Returns the plan for sequences of up to `contextLength` tokens. */
export function withContext(plan: Plan, contextLength: number): Plan {
  const rope = plan.rope.map((angles) => {
    const { long, magnitude } = angles;
    return long && contextLength > long.beyond ? { frequencies: long.frequencies, magnitude } : angles;
  });
  return { ...plan, rope };
}

/** Values of a head that share a scale in an 8-bit cache; a head's last group may be smaller. */
const KV_SCALED = 32;

/**
 * Returns the bytes of a token's keys and values in one layer of the KV cache. The CPU stores a scale with
 * each head; the GPU has none in f16, which saves 1 %.
 */
export function kvBytesPerLayer(
  type: KvType,
  { heads, headDim }: Pick<KvLayer, "heads" | "headDim">,
): number {
  const head = type === "f16" ? 2 * headDim + 2 : headDim + 2 * Math.ceil(headDim / KV_SCALED);
  return 2 * heads * head;
}

/** Returns the bytes of a token in the KV cache, over all layers. */
export function kvBytesPerToken({ kv: { type, layers } }: Plan): number {
  return layers.reduce((sum, layer) => sum + kvBytesPerLayer(type, layer), 0);
}

/**
 * Returns the bytes of a KV block: keys and values of KV_BLOCK_TOKENS tokens in all layers of the largest
 * group.
 */
export function kvBlockBytes(plan: Plan): number {
  return Math.max(...kvGroupBytes(plan));
}

/** Returns per group the bytes of keys and values of KV_BLOCK_TOKENS tokens in its layers. */
export function kvGroupBytes({ kv: { type, layers, windows } }: Plan): number[] {
  const groups = windows.map(() => 0);
  for (const layer of layers) groups[layer.group] += KV_BLOCK_TOKENS * kvBytesPerLayer(type, layer);
  return groups;
}

/**
 * Returns the block tables of a sequence that never frees blocks. The cache must have enough blocks for every
 * group: block b of `blocks` stands for blocks b x groups, b x groups + 1 and so on, one per group.
 */
export function wholeTables(
  { kv: { windows } }: Plan,
  blocks: Int32Array,
): { blockTable: Int32Array; windowTables: WindowTable[] } {
  const [blockTable, ...others] = windows.map((_, group) => blocks.map((b) => b * windows.length + group));
  return { blockTable, windowTables: others.map((blocks) => ({ first: 0, blocks })) };
}

/** Whether the plan returns only rows of whole texts, and no tokens. */
export function isEncoder(plan: Plan): boolean {
  return !plan.ops.some((op) => op.op === "candidates");
}

/** Returns the columns of a pooled row; 0 where the plan does not pool. */
export function pooledColumns(plan: Plan): number {
  const op = plan.ops.find((op) => op.op === "return_pooled");
  return op ? plan.buffers[op.x].columns : 0;
}

/**
 * Returns the state of a Gated DeltaNet layer: inputs of queries, keys and values, and a square matrix per
 * value head.
 */
export function deltaState({ keyHeads, valueHeads, headDim }: Omit<DeltaShape, "layer">): StateLayer {
  return {
    conv: { inputs: CONV_TAPS - 1, channels: (2 * keyHeads + valueHeads) * headDim },
    matrices: { heads: valueHeads, rows: headDim, columns: headDim },
  };
}

/**
 * Returns the state of a Mamba2 layer: convolution inputs, and a matrix [headDim, stateSize] per head. One
 * extra column begins with a factor on the whole matrix.
 */
export function mambaState({ heads, headDim, groups, stateSize }: Omit<MambaShape, "layer">): StateLayer {
  return {
    conv: { inputs: CONV_TAPS - 1, channels: heads * headDim + 2 * groups * stateSize },
    matrices: { heads, rows: headDim, columns: stateSize + 1 },
  };
}

/** Returns the bytes of one sequence's recurrent state, over all layers. */
export function stateBytes({ states }: Plan): number {
  return states.reduce((sum, { conv, matrices }) => {
    const { heads, rows, columns } = matrices ?? NO_MATRICES;
    return sum + 4 * (conv.inputs * conv.channels + heads * rows * columns);
  }, 0);
}
