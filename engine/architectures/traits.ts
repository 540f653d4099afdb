/**
 * Facts about a family's layers; by default Qwen2's decoder. They are plain data, shared by the decoder, the converter,
 * the synthetic test model and the exact pass.
 */
export interface Traits {
  /** Whether rotated pairs are (2i, 2i + 1) instead of (i, i + half). */
  readonly interleavedRope?: boolean;
  /** Whether each position has a row that is added to its token's embedding; heads are then not rotated. */
  readonly learnedPositions?: boolean;
  /** Layers per period; the last layer of a period has no positions. By default all layers have positions. */
  readonly positionlessEvery?: number;
  /** Whether each query and key head has an RMSNorm, before rotation or, with normsLast, after it. */
  readonly headNorms?: boolean;
  readonly normsLast?: boolean;
  /** Whether an RMSNorm covers all query heads together and another all key heads, before rotation. */
  readonly rowNorms?: boolean;
  /** Whether each query and key head has a LayerNorm with its own weights, before rotation. */
  readonly headLayerNorms?: boolean;
  /** Whether norms of rows are LayerNorms instead of RMSNorms. */
  readonly layerNorms?: boolean;
  /** Whether attention and feed-forward norm their input (the default), their output, or both. */
  readonly norms?: "before" | "after" | "both";
  /** The norm before the feed-forward block; by default `ffn_norm`. */
  readonly feedForwardNorm?: string;
  /**
   * Attention and feed-forward read the layer's input in parallel: through one norm, or "normed apart"
   * through separate ones.
   */
  readonly parallel?: boolean | "normed apart";
  /** Each head has a sink: a score that takes attention weight but has no value. */
  readonly sinks?: boolean;
  /** Gates that scale the attention output, computed from the input rows: one per column, or one per head. */
  readonly outputGate?: { readonly activation: "sigmoid" | "softplus"; readonly perHead?: boolean };
  /** Whether q, k and v are one tensor. */
  readonly fusedHeads?: boolean;
  /** Whether gate and up are one tensor, named like up. */
  readonly fusedGate?: boolean;
  /** Activation of the feed-forward block; by default SiLU. */
  readonly activation?: "silu" | "gelu" | "squared_relu";
  /** Whether the feed-forward block has no gate. */
  readonly ungated?: boolean;
  /** Tensors that have biases. The decoder adds every bias that a file has. */
  readonly biases?: readonly string[];
}

/** A tensor of a layer. Its name is GGUF's without the layer and `.weight` or `.bias`. */
export interface LayerTensor {
  readonly name: string;
  readonly kind: "matrix" | "norm" | "bias" | "head norms" | "sinks";
  /** The tensor's shape in ggml's order: columns first. */
  readonly shape: readonly number[];
  /** Whether the matrix's rows are heads that attention rotates. */
  readonly rotated?: boolean;
}

/** Sizes of one layer. */
export interface LayerSizes {
  readonly embedding: number;
  readonly feedForward: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Dimensions of a value head; by default headDim. */
  readonly valueDim?: number;
}

/** Biases that follow a layer's other tensors in the file. The biases of q, k and v follow their matrices. */
const LAST_BIASES = ["ffn_up", "attn_output", "ffn_down"];

/** Lists a block's special tensors instead of the usual ones. */
export interface OwnTensors {
  readonly attention?: () => void;
  readonly feedForward?: () => void;
}

/**
 * Calls `put` with each tensor of a layer, in the order of the file. A layer without heads has no attention,
 * one without KV heads only its output matrix, and one of width 0 no feed-forward block.
 */
export function layerTensors(
  traits: Traits,
  sizes: LayerSizes,
  put: (tensor: LayerTensor) => void,
  own: OwnTensors = {},
): void {
  const { norms = "before", feedForwardNorm = "ffn_norm", parallel, layerNorms, biases = [] } = traits;
  const [before, after] = [norms !== "after", norms !== "before"];
  const norm = (name: string) => {
    put({ name, kind: "norm", shape: [sizes.embedding] });
    if (layerNorms && biases.includes(name)) put({ name, kind: "bias", shape: [sizes.embedding] });
  };
  const parts: (string | (() => void))[] = []; // names of norms, and blocks to list
  if (sizes.heads > 0) {
    if (before) parts.push("attn_norm");
    parts.push(own.attention ?? (() => attentionTensors(traits, sizes, put)));
    if (after) parts.push("post_attention_norm");
  }
  if (sizes.feedForward > 0 || own.feedForward) {
    if (before && parallel !== true) parts.push(feedForwardNorm);
    parts.push(own.feedForward ?? (() => feedForwardTensors(traits, sizes, put)));
    if (after) parts.push("post_ffw_norm");
  }
  // Files of these families have all norms first.
  const isBlock = (part: typeof parts[number]) => Number(typeof part !== "string");
  if (norms === "both" || layerNorms) parts.sort((a, b) => isBlock(a) - isBlock(b));
  for (const part of parts) typeof part === "string" ? norm(part) : part();
  for (const name of LAST_BIASES.filter((name) => biases.includes(name))) {
    put({ name, kind: "bias", shape: [name === "ffn_up" ? sizes.feedForward : sizes.embedding] });
  }
}

function attentionTensors(
  traits: Traits,
  { embedding, heads, kvHeads, headDim, valueDim = headDim }: LayerSizes,
  put: (tensor: LayerTensor) => void,
): void {
  const matrix = (name: string, rows: number, rotated = false) => {
    put({ name, kind: "matrix", shape: [embedding, rows], rotated });
    if (traits.biases?.includes(name)) put({ name, kind: "bias", shape: [rows] });
  };
  const [queries, keys, values] = [heads * headDim, kvHeads * headDim, kvHeads * valueDim];
  if (kvHeads === 0) {
    return put({ name: "attn_output", kind: "matrix", shape: [embedding, embedding] });
  }
  if (traits.fusedHeads) matrix("attn_qkv", queries + keys + values);
  else {
    matrix("attn_q", queries, true);
    matrix("attn_k", keys, true);
    matrix("attn_v", values);
  }
  put({ name: "attn_output", kind: "matrix", shape: [heads * valueDim, embedding] });
  for (const [name, count] of [["attn_q_norm", heads], ["attn_k_norm", kvHeads]] as const) {
    if (traits.headLayerNorms) put({ name, kind: "head norms", shape: [headDim, count] });
    else if (traits.rowNorms) put({ name, kind: "norm", shape: [count * headDim] });
    else if (traits.headNorms) put({ name, kind: "norm", shape: [headDim] });
  }
  if (traits.outputGate) {
    put({
      name: "attn_gate",
      kind: "matrix",
      shape: [embedding, heads * (traits.outputGate.perHead ? 1 : valueDim)],
    });
  }
  if (traits.sinks) put({ name: "attn_sinks", kind: "sinks", shape: [heads] });
}

/** Lists the matrices of a dense feed-forward block. */
export function feedForwardTensors(
  { ungated, fusedGate }: Traits,
  { embedding, feedForward }: LayerSizes,
  put: (tensor: LayerTensor) => void,
): void {
  const rows = { ...!ungated && !fusedGate && { ffn_gate: 1 }, ffn_up: fusedGate ? 2 : 1 };
  for (const [name, times] of Object.entries(rows)) {
    put({ name, kind: "matrix", shape: [embedding, times * feedForward] });
  }
  put({ name: "ffn_down", kind: "matrix", shape: [feedForward, embedding] });
}
