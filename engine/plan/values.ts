/** The types that ops and plans share: buffers, tensors, layers and their shapes. */
import type { MakeBytes, TensorInfo } from "../gguf/types.ts";
import type { KvType } from "./choices.ts";

/** The number of experts, and how many of them each row chooses. */
export interface Choice {
  readonly count: number;
  readonly used: number;
}

/** A buffer of the chosen experts: per row their numbers as f32 in ascending order, then their weights. */
export interface Chosen extends Choice {
  readonly buffer: BufferId;
}

/** A buffer with the blocks of tokens that each row attends to, from `choose`: one list per row, or one per KV head. */
export interface ChosenBlocks {
  readonly buffer: BufferId;
  /** Number of blocks per list. */
  readonly count: number;
  /** Number of tokens per block. */
  readonly length: number;
}

/**
 * Rows of a buffer: one per token of the step, per row with logits, per pooled sequence, or per expert chosen
 * by a token. Rows of the same expert are contiguous.
 */
export type BufferRows = "step" | "logits" | "pools" | Choice;

/**
 * Form of a buffer. "float": f32 rows. "quant": 8-bit blocks of 32 with f32 scales. "fine": two planes of those blocks;
 * the second holds the rounding error of the first.
 */
export type BufferForm = "float" | "quant" | "fine";

/** A buffer for a matrix of activations. */
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
  /** Number of matrix rows; with several experts, of all experts together. */
  readonly rows: number;
  /** Number of matrices, one per expert; undefined for a single matrix. */
  readonly experts?: number;
  /** The file's factors on the values: one number, or one per expert. */
  readonly factors?: TensorInfo;
  /** Returns the bytes of a tensor that is not in the model's file. Throws GgufError. */
  readonly bytes?: MakeBytes;
}

/** Indices into `Plan.buffers` and `Plan.tensors`. */
export type BufferId = number;
export type TensorId = number;

/**
 * Activations of feed-forward blocks, in order of the kernels' codes. `gelu` is the tanh approximation.
 * `swiglu_oai` is gpt-oss's function of gate g and value u: min(g, 7) * sigmoid(1.702 min(g, 7)) * (clamp(u,
 * -7, 7) + 1).
 */
export const ACTIVATIONS = [
  "silu",
  "gelu",
  "gelu_erf",
  "squared_relu",
  "tanh",
  "swiglu_oai",
  "relu",
] as const;
export type Activation = typeof ACTIVATIONS[number];

/** Names of gated units by activation. */
export const GLU_NAMES: Readonly<Record<Activation, string>> = {
  silu: "swiglu",
  gelu: "geglu",
  gelu_erf: "geglu_erf",
  squared_relu: "squared_reglu",
  tanh: "tanh_glu",
  swiglu_oai: "swiglu_oai",
  relu: "reglu",
};

/** The buffers of a matrix of activations, in the forms that its readers need; at least one. */
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
  /** Number of the layer group to which the layer belongs. */
  readonly group: number;
}

/**
 * The KV cache. A block holds KV_BLOCK_TOKENS tokens for the layers of one group. A sequence has a block
 * table per group.
 */
export interface KvShape {
  readonly type: KvType;
  /** The layers with a KV cache; their shapes may differ. */
  readonly layers: readonly KvLayer[];
  /**
   * Window of each layer group in tokens, including the row itself; 0 means all. The first group's window is always 0,
   * and it exists even without layers.
   */
  readonly windows: readonly number[];
}

export interface HeadShape {
  /** Index into `Plan.kv.layers`: the layer's own cache, or the earlier layer's cache that the layer reads. */
  readonly layer: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /**
   * Whether each head in the query rows is followed by a gate of the same width. The gate's sigmoid scales the head's
   * output.
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
   * Whether value heads that share a key head are adjacent. Alpha and beta are then in one row: a group's betas, then
   * its alphas.
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
  /** Number of state values per channel of a head. */
  readonly stateSize: number;
}

/** A recurrent layer's state between tokens, in f32. */
export interface StateLayer {
  /** Shape of the last inputs of a short convolution. */
  readonly conv: { readonly inputs: number; readonly channels: number };
  /** Shape of the state's matrices, one per head. */
  readonly matrices?: { readonly heads: number; readonly rows: number; readonly columns: number };
}

export const NO_MATRICES = { heads: 0, rows: 0, columns: 0 };

/** Number of inputs of the short convolution: the token's own and those of the three tokens before. */
export const CONV_TAPS = 4;

/** Rotation angles of a rotary table. */
export interface RopeAngles {
  /** Angle per position, for each rotated pair. */
  readonly frequencies: Float64Array;
  /** Per pair the axis of the position that turns it: 0 is time, 1 height, 2 width. By default all turn by time. */
  readonly axes?: Uint8Array;
  /** Factor on cosine and sine. */
  readonly magnitude: number;
  /** Frequencies that replace `frequencies` if sequences may have more than `beyond` tokens. */
  readonly long?: { readonly beyond: number; readonly frequencies: Float64Array };
}
