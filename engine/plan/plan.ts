/**
 * The compiled form of a model: a flat list of fused ops over named buffers. No views, reshapes or transposes are
 * ever ops. What changes from step to step (rows of the step, rows that want logits, KV lengths) is no part of a plan.
 */
import { KV_BLOCK_TOKENS, type KvType, type WindowTable } from "../backend/backend.ts";
import type { TensorInfo } from "../gguf/types.ts";
import type { PlanOp } from "./ops/registry.ts";

export type { ActivationPrecision } from "../backend/backend.ts";

export type { PlanOp };

/** How many experts there are, and how many of them each row chooses. */
export interface Choice {
  readonly count: number;
  readonly used: number;
}

/** The experts that rows chose: a buffer of f32 rows, their numbers ascending, then their weights. */
export interface Chosen extends Choice {
  readonly buffer: BufferId;
}

/**
 * Rows of a buffer: one a token of the step, one a row whose logits are wanted, one a sequence that is pooled, or one for each
 * expert that a token of the step chose, those of an expert together.
 */
export type BufferRows = "step" | "logits" | "pools" | Choice;

/**
 * f32 rows; rows in 8-bit blocks of 32 under f32 scales; or such blocks in two planes, of which the second holds what the
 * first leaves.
 */
export type BufferForm = "float" | "quant" | "fine";

/** A matrix of activations. */
export interface PlanBuffer {
  readonly name: string;
  readonly form: BufferForm;
  readonly rows: BufferRows;
  readonly columns: number;
}

/** A weight that the plan reads: a matrix, packed at load, or a vector of f32. */
export interface PlanTensor {
  readonly info: TensorInfo;
  readonly kind: "matrix" | "vector";
  readonly columns: number;
  /** Of all experts together, where there are several. */
  readonly rows: number;
  /** Matrices in it, one an expert; absent where it is a single one. */
  readonly experts?: number;
  /** What the file multiplies its values by: one number, or one an expert. */
  readonly factors?: TensorInfo;
}

/** Indices into `Plan.buffers` and `Plan.tensors`. */
export type BufferId = number;
export type TensorId = number;

/**
 * What a feed-forward layer makes of its products, by the codes of the kernels: `gelu` is the approximation with tanh, and
 * `swiglu_oai` gpt-oss's of a gate g and what it gates, min(g, 7) * sigmoid(1.702 min(g, 7)) * (clamp(u, -7, 7) + 1).
 */
export const ACTIVATIONS = ["silu", "gelu", "gelu_erf", "squared_relu", "tanh", "swiglu_oai"] as const;
export type Activation = typeof ACTIVATIONS[number];

/** What units that are gated with these activations are called. */
export const GLU_NAMES: Readonly<Record<Activation, string>> = {
  silu: "swiglu",
  gelu: "geglu",
  gelu_erf: "geglu_erf",
  squared_relu: "squared_reglu",
  tanh: "tanh_glu",
  swiglu_oai: "swiglu_oai",
};

/** One matrix of activations in the forms that its readers need; at least one is there. */
export interface Forms {
  readonly float?: BufferId;
  readonly quant?: BufferId;
  readonly fine?: BufferId;
}

/** The forms that are there. */
export function formsOf({ float, quant, fine }: Forms): BufferId[] {
  return [float, quant, fine].filter((id) => id !== undefined);
}

/** What a layer keeps of each token: a key and a value a head. */
export interface KvLayer {
  readonly heads: number;
  readonly headDim: number;
  /** The group that the layer belongs to. */
  readonly group: number;
}

/**
 * The KV cache. Its blocks hold KV_BLOCK_TOKENS tokens of the layers of one group, and sequences have a block table for
 * each group.
 */
export interface KvShape {
  readonly type: KvType;
  /** The layers that have a cache; each has a shape of its own. */
  readonly layers: readonly KvLayer[];
  /**
   * Of each group the tokens that its layers' rows see, their own the last of them; 0 is all, and so it is in the first
   * group. There is a first group where there are no layers.
   */
  readonly windows: readonly number[];
}

export interface HeadShape {
  /** Index into `Plan.kv.layers`: the layer's own cache, or that of an earlier layer which it reads. */
  readonly layer: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** In the queries' rows each head is followed by a gate as wide, whose sigmoid weighs the head's result. */
  readonly gated: boolean;
}

/** Heads of a recurrent layer, all headDim wide: value head h reads query and key head h % keyHeads. */
export interface DeltaShape {
  /** Among the layers that have a recurrent state. */
  readonly layer: number;
  readonly keyHeads: number;
  readonly valueHeads: number;
  readonly headDim: number;
  /**
   * Value heads that read a key head stand side by side instead, and their numbers alpha and beta in one row: a group's betas, then
   * its alphas.
   */
  readonly inGroups?: boolean;
}

/** The channels of a short convolution, in heads of headDim: the first keyHeads become queries, the next as many keys. */
export interface ConvShape {
  /** Among the layers that have a recurrent state. */
  readonly layer: number;
  readonly heads: number;
  readonly headDim: number;
  readonly keyHeads: number;
}

/** Heads of Mamba2: head h is written and read by the vectors of group floor(h / (heads / groups)). */
export interface MambaShape {
  /** Among the layers that have a recurrent state. */
  readonly layer: number;
  readonly heads: number;
  readonly headDim: number;
  readonly groups: number;
  /** Numbers that each channel of a head keeps. */
  readonly stateSize: number;
}

/** What a recurrent layer carries from token to token, in f32. */
export interface StateLayer {
  /** The last inputs of a short convolution. */
  readonly conv: { readonly inputs: number; readonly channels: number };
  /** A matrix a head. */
  readonly matrices?: { readonly heads: number; readonly rows: number; readonly columns: number };
}

export const NO_MATRICES = { heads: 0, rows: 0, columns: 0 };

/** Inputs that the short convolution reads: the token's own and those of the three before it. */
export const CONV_TAPS = 4;

/** How much positions turn pairs of dimensions. */
export interface RopeAngles {
  /** Angle a position, of each pair. */
  readonly frequencies: Float64Array;
  /** What cosine and sine are multiplied by. */
  readonly magnitude: number;
  /** Takes the place of `frequencies` where sequences may have more tokens than that. */
  readonly long?: { readonly beyond: number; readonly frequencies: Float64Array };
}

export interface Plan {
  readonly architecture: string;
  readonly vocabSize: number;
  readonly contextLength: number;
  readonly tensors: readonly PlanTensor[];
  readonly buffers: readonly PlanBuffer[];
  readonly ops: readonly PlanOp[];
  /** Tables of angles. */
  readonly rope: readonly RopeAngles[];
  readonly kv: KvShape;
  /** Of each layer that has a recurrent state what it carries. */
  readonly states: readonly StateLayer[];
}

/** The same model with its KV cache kept as another type. */
export function withKvType(plan: Plan, type: KvType): Plan {
  return { ...plan, kv: { ...plan.kv, type } };
}

/** The same model for sequences of up to that many tokens. */
export function withContext(plan: Plan, contextLength: number): Plan {
  const rope = plan.rope.map((angles) => {
    const { long, magnitude } = angles;
    return long && contextLength > long.beyond ? { frequencies: long.frequencies, magnitude } : angles;
  });
  return { ...plan, rope };
}

/** Values of a head that share a scale in a cache of 8-bit blocks; the last ones may be fewer. */
const KV_SCALED = 32;

/**
 * Bytes that one token takes in the KV cache of one layer: keys and values, with the scale that the CPU keeps with each head's (the
 * GPU has none in f16, which is 1 % less).
 */
export function kvBytesPerLayer(
  type: KvType,
  { heads, headDim }: Pick<KvLayer, "heads" | "headDim">,
): number {
  const head = type === "f16" ? 2 * headDim + 2 : headDim + 2 * Math.ceil(headDim / KV_SCALED);
  return 2 * heads * head;
}

/** Bytes that one token takes in the KV cache, over all layers. */
export function kvBytesPerToken({ kv: { type, layers } }: Plan): number {
  return layers.reduce((sum, layer) => sum + kvBytesPerLayer(type, layer), 0);
}

/** Bytes of a KV block: keys and values of KV_BLOCK_TOKENS tokens, in all layers of the largest group. */
export function kvBlockBytes(plan: Plan): number {
  return Math.max(...kvGroupBytes(plan));
}

/** Of each group the bytes of keys and values of KV_BLOCK_TOKENS tokens in its layers. */
export function kvGroupBytes({ kv: { type, layers, windows } }: Plan): number[] {
  const groups = windows.map(() => 0);
  for (const layer of layers) groups[layer.group] += KV_BLOCK_TOKENS * kvBytesPerLayer(type, layer);
  return groups;
}

/**
 * Block tables of a sequence that gives nothing back, in a cache of as many blocks for each group of layers: its block b in
 * the first group stands for blocks b x groups, b x groups + 1 and so on, one a group.
 */
export function wholeTables(
  { kv: { windows } }: Plan,
  blocks: Int32Array,
): { blockTable: Int32Array; windowTables: WindowTable[] } {
  const [blockTable, ...others] = windows.map((_, group) => blocks.map((b) => b * windows.length + group));
  return { blockTable, windowTables: others.map((blocks) => ({ first: 0, blocks })) };
}

/** Whether the plan gives rows of whole texts only, and no tokens. */
export function isEncoder(plan: Plan): boolean {
  return !plan.ops.some((op) => op.op === "candidates");
}

/** Floats of a pooled row; 0 where the plan pools nothing. */
export function pooledColumns(plan: Plan): number {
  const op = plan.ops.find((op) => op.op === "return_pooled");
  return op ? plan.buffers[op.x].columns : 0;
}

/** What a layer of Gated DeltaNet carries: inputs of queries, keys and values, and a square matrix for each value head. */
export function deltaState({ keyHeads, valueHeads, headDim }: Omit<DeltaShape, "layer">): StateLayer {
  return {
    conv: { inputs: CONV_TAPS - 1, channels: (2 * keyHeads + valueHeads) * headDim },
    matrices: { heads: valueHeads, rows: headDim, columns: headDim },
  };
}

/**
 * What a layer of Mamba2 carries: inputs of its channels and of what they are written and read by, and a matrix [headDim, stateSize]
 * for each head, with a column more, which begins with a factor of the whole matrix.
 */
export function mambaState({ heads, headDim, groups, stateSize }: Omit<MambaShape, "layer">): StateLayer {
  return {
    conv: { inputs: CONV_TAPS - 1, channels: heads * headDim + 2 * groups * stateSize },
    matrices: { heads, rows: headDim, columns: stateSize + 1 },
  };
}

/** Bytes of the recurrent state of one sequence, over all layers. */
export function stateBytes({ states }: Plan): number {
  return states.reduce((sum, { conv, matrices }) => {
    const { heads, rows, columns } = matrices ?? NO_MATRICES;
    return sum + 4 * (conv.inputs * conv.channels + heads * rows * columns);
  }, 0);
}
