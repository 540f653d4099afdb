/** Seeded decoders: keys and tensors that follow from a family's description. */
import type { LayerWidths } from "../../engine/architectures/checkpoint.ts";
import { FAMILIES } from "../../engine/architectures/families.ts";
import { type LayerTensor, layerTensors, type Traits } from "../../engine/architectures/traits.ts";
import { type Dimensions, type SynthModel, TINY } from "./model.ts";
import type { SynthFile } from "./file.ts";

export interface DecoderShape extends Dimensions {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Dimensions of a value head; by default headDim. */
  readonly valueDim?: number;
  readonly ropeBase: number;
  /** Rotated dimensions of a head; by default all. */
  readonly rotated?: number;
  /** Whether the model has an output matrix besides the embedding. */
  readonly untied?: boolean;
  readonly biases?: boolean;
  readonly headNorms?: boolean;
  /** Number of tokens that a row attends to in layers with a window. */
  readonly window?: number;
  /** Whether the model has Llama 3's factors on the rotary frequencies. */
  readonly ropeFactors?: boolean;
  /** Traits in which this model differs from its family. */
  readonly traits?: Traits;
}

type Size = [embedding: number, feedForward: number, layers: number, vocabulary: number, context: number];
type Heads = [heads: number, kvHeads: number, headDim: number];

/** Returns the shape of a published model. */
export function published<Rest = unknown>(
  [embedding, feedForward, layers, vocabulary, context]: Size,
  [heads, kvHeads, headDim]: Heads,
  ropeBase: number,
  rest?: Rest,
): DecoderShape & Rest {
  const shape = { embedding, feedForward, layers, vocabulary, context, heads, kvHeads, headDim, ropeBase };
  return { ...shape, ...rest! };
}

/** A seeded model of a described family. */
interface Description<S extends DecoderShape> {
  /** The tiny shape's differences from `TINY`. */
  readonly tiny: Omit<S, keyof Dimensions> & Partial<Dimensions>;
  readonly real?: Readonly<Record<string, NoInfer<S>>>;
  readonly checkpoint?: SynthModel["checkpoint"];
  /** Writes keys before the counts, and tensors before the embedding. */
  readonly before?: (file: SynthFile, shape: S) => void;
  /** Returns further counts of the shape. */
  readonly counts?: (shape: S) => Readonly<Record<string, number>>;
  /** Writes keys after the counts. */
  readonly afterCounts?: (file: SynthFile, shape: S) => void;
  /** Epsilon of the norms; by default 1e-5 of LayerNorms and 1e-6 of RMSNorms. */
  readonly epsilon?: number;
  /** Writes keys after the common ones, and tensors before the layers. */
  readonly after?: (file: SynthFile, shape: S) => void;
  /** Writes keys and tensors after all others. */
  readonly last?: (file: SynthFile, shape: S) => void;
  /** Returns each layer's shape, if layers differ. */
  readonly widths?: (shape: S) => readonly LayerWidths[];
  /** Writes a layer's feed-forward block, if it is not dense. */
  readonly feedForward?: (file: SynthFile, block: string, shape: S, layer: number) => void;
  /** Writes the additional tensors of the drafting layers, which follow the other layers. */
  readonly draft?: (file: SynthFile, block: string, shape: S) => void;
}

/** Returns a seeded model with the layers that the architecture's family describes. */
export function decoder<S extends DecoderShape = DecoderShape>(
  architecture: string,
  description: Description<S>,
): SynthModel<S> {
  const { traits, allows } = FAMILIES.get(architecture)!;
  return {
    architecture,
    encoder: allows?.bothDirections,
    traits: { ...traits, ...description.tiny.traits },
    tiny: { ...TINY, ...description.tiny } as S,
    real: description.real,
    checkpoint: description.checkpoint,
    write: (file, shape) => writeDecoder(file, shape, { ...traits, ...shape.traits }, description),
  };
}

function writeDecoder<S extends DecoderShape>(
  file: SynthFile,
  shape: S,
  traits: Traits,
  { before, counts, afterCounts, epsilon, after, last, widths, feedForward, draft }: Description<S>,
): void {
  const { embedding, vocabulary, window } = shape;
  before?.(file, shape);
  const drafts = draft ? (shape as { drafts?: number }).drafts ?? 0 : 0;
  const layers = shape.layers + drafts;
  const perLayer = widths?.(shape);
  writeCounts(file, { ...shape, layers }, {
    ...window && { "attention.sliding_window": window },
    ...counts?.(shape),
  }, perLayer);
  afterCounts?.(file, shape);
  writeReals(file, shape, traits.layerNorms, epsilon);
  writeEnds(file, shape);
  after?.(file, shape);
  if (traits.biases?.includes("output_norm")) file.vector("output_norm.bias", embedding, 0);
  if (traits.biases?.includes("output")) file.vector("output.bias", vocabulary, 0, 1);
  writeRopeFactors(file, shape);
  for (let layer = 0; layer < layers; layer++) {
    const block = `blk.${layer}`;
    layerTensors(traits, { ...shape, ...perLayer?.[layer] }, (tensor) => writeTensor(file, block, tensor), {
      feedForward: feedForward && (() => feedForward(file, block, shape, layer)),
    });
    if (layer >= shape.layers) draft!(file, block, shape);
  }
  last?.(file, shape);
}

function writeTensor(file: SynthFile, block: string, { name, kind, shape }: LayerTensor): void {
  const whole = `${block}.${name}`;
  switch (kind) {
    case "matrix":
      return file.matrix(whole, ...shape);
    case "norm":
      return file.vector(`${whole}.weight`, shape[0]);
    case "bias":
      return file.vector(`${whole}.bias`, shape[0], 0);
    case "head norms":
      return file.floats(`${whole}.weight`, shape, (random) => 1 + 0.1 * random.normal());
    case "sinks":
      return file.vector(`${whole}.weight`, shape[0], 0, 2);
  }
}

/** Writes Llama 3's rotary factors, if the shape has them. */
export function writeRopeFactors(file: SynthFile, { ropeFactors, headDim }: DecoderShape): void {
  if (!ropeFactors) return;
  const length = headDim / 2;
  file.floats("rope_freqs.weight", [length], (_, i) => 1 + 7 * i / (length - 1));
}

/** Writes the counts that all decoders have, and `more`. `widths` replaces those that differ between layers. */
export function writeCounts(
  file: SynthFile,
  shape: DecoderShape,
  more: Readonly<Record<string, number>> = {},
  widths?: readonly LayerWidths[],
) {
  file.counts({
    block_count: shape.layers,
    context_length: shape.context,
    embedding_length: shape.embedding,
    ...shape.feedForward > 0 && !widths && { feed_forward_length: shape.feedForward },
    ...!widths && { "attention.head_count": shape.heads, "attention.head_count_kv": shape.kvHeads },
    "attention.key_length": shape.headDim,
    "attention.value_length": shape.valueDim ?? shape.headDim,
    "rope.dimension_count": shape.rotated ?? shape.headDim,
    vocab_size: shape.vocabulary,
    ...more,
  });
  if (!widths) return;
  file.keys("attention.head_count", "INT32", widths.map(({ heads }) => heads));
  file.keys("attention.head_count_kv", "INT32", widths.map(({ kvHeads }) => kvHeads));
  file.keys("feed_forward_length", "INT32", widths.map(({ feedForward }) => feedForward));
}

/** Writes the rotary base and the epsilon of norms. */
export function writeReals(
  file: SynthFile,
  { ropeBase }: Pick<DecoderShape, "ropeBase">,
  layerNorms = false,
  epsilon = layerNorms ? 1e-5 : 1e-6,
): void {
  file.key("rope.freq_base", "FLOAT32", ropeBase);
  file.key(`attention.layer_norm_${layerNorms ? "" : "rms_"}epsilon`, "FLOAT32", epsilon);
}

/** Writes the embedding, the output matrix if there is one, and the norm before it. */
export function writeEnds(
  file: SynthFile,
  { embedding, vocabulary, untied }: Pick<DecoderShape, "embedding" | "vocabulary" | "untied">,
): void {
  file.matrix("token_embd", embedding, vocabulary);
  if (untied) file.matrix("output", embedding, vocabulary);
  // A large mean spreads the logits, so that most greedy choices are clear.
  file.vector("output_norm.weight", embedding, 6);
}

/** Writes q, k, v and the output matrix. `queries` is the number of heads in q's rows. */
export function writeAttention(
  file: SynthFile,
  block: string,
  shape: DecoderShape,
  queries: number = shape.heads,
): void {
  const { embedding, heads, kvHeads, headDim } = shape;
  const parts = { attn_q: queries, attn_k: kvHeads, attn_v: kvHeads };
  for (const [part, heads] of Object.entries(parts)) {
    file.matrix(`${block}.${part}`, embedding, heads * headDim);
    if (shape.biases) file.vector(`${block}.${part}.bias`, heads * headDim, 0);
  }
  file.matrix(`${block}.attn_output`, heads * headDim, embedding);
  if (shape.headNorms) {
    for (const norm of ["attn_q_norm", "attn_k_norm"]) file.vector(`${block}.${norm}.weight`, headDim);
  }
}

export function writeFeedForward(
  file: SynthFile,
  block: string,
  { embedding, feedForward }: Pick<DecoderShape, "embedding" | "feedForward">,
): void {
  file.matrix(`${block}.ffn_gate`, embedding, feedForward);
  file.matrix(`${block}.ffn_up`, embedding, feedForward);
  file.matrix(`${block}.ffn_down`, feedForward, embedding);
}

/**
 * Standard deviation of routers. It spreads their logits like a trained router's, so that rounding seldom changes a
 * choice.
 */
const ROUTER_SIGMA = 0.3;

export interface ExpertsShape {
  readonly count: number;
  readonly used: number;
  readonly feedForward: number;
}

export function expertCounts({ count, used, feedForward }: ExpertsShape): Record<string, number> {
  return { expert_count: count, expert_used_count: used, expert_feed_forward_length: feedForward };
}

/** Writes a router and its experts. */
export function writeExperts(
  file: SynthFile,
  block: string,
  embedding: number,
  { count, feedForward }: ExpertsShape,
): void {
  writeRouter(file, block, embedding, count);
  file.matrix(`${block}.ffn_gate_exps`, embedding, feedForward, count);
  writeUngatedExperts(file, block, embedding, { count, feedForward });
}

/** Writes the shared expert. */
export function writeSharedExpert(file: SynthFile, block: string, embedding: number, width: number): void {
  for (const name of ["ffn_gate_shexp", "ffn_up_shexp"]) file.matrix(`${block}.${name}`, embedding, width);
  file.matrix(`${block}.ffn_down_shexp`, width, embedding);
}

export function writeRouter(file: SynthFile, block: string, embedding: number, count: number): void {
  const router = `${block}.ffn_gate_inp`;
  file.floats(`${router}.weight`, [embedding, count], (random) => ROUTER_SIGMA * random.normal(), router);
}

/** Writes ungated experts that read and return rows of the given width. */
export function writeUngatedExperts(
  file: SynthFile,
  block: string,
  width: number,
  { count, feedForward }: Omit<ExpertsShape, "used">,
): void {
  file.matrix(`${block}.ffn_up_exps`, width, feedForward, count);
  file.matrix(`${block}.ffn_down_exps`, feedForward, width, count);
}
