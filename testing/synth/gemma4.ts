import { expertCounts, type ExpertsShape, writeEnds, writeExperts, writeFeedForward } from "./decoder.ts";
import { type Dimensions, type SynthModel, TINY } from "./model.ts";
import type { SynthFile } from "./file.ts";

interface Kind {
  readonly kvHeads: number;
  readonly headDim: number;
  readonly ropeBase: number;
}

export interface Gemma4Shape extends Dimensions {
  readonly heads: number;
  /** Layers per period; the last one has no window. */
  readonly period: number;
  readonly full: Kind;
  readonly sliding: Kind;
  readonly window: number;
  /** Number of last layers that read the cache of earlier ones. Their feed-forward blocks are twice as wide. */
  readonly shared: number;
  /** Whether these layers have keys and values too, which the model does not read. Published files have them. */
  readonly unreadKeys?: boolean;
  /** Columns of each layer's own embedding; 0 is none. */
  readonly perLayer: number;
  /** Whether layers without a window use their keys as values. */
  readonly keysAsValues?: boolean;
  readonly softcap: number;
  /** Shape of experts in addition to the feed-forward block. */
  readonly experts?: ExpertsShape;
}

export const GEMMA4: SynthModel<Gemma4Shape> = {
  tiny: {
    ...TINY,
    feedForward: 512,
    layers: 6,
    heads: 4,
    period: 2,
    full: { kvHeads: 1, headDim: 128, ropeBase: 1e6 },
    sliding: { kvHeads: 2, headDim: 64, ropeBase: 1e4 },
    window: 24,
    shared: 2,
    perLayer: 256,
    keysAsValues: true,
    softcap: 30,
  },
  real: {
    "gemma4-e2b": {
      embedding: 1536,
      feedForward: 6144,
      layers: 35,
      vocabulary: 262_144,
      context: 131_072,
      heads: 8,
      period: 5,
      full: { kvHeads: 1, headDim: 512, ropeBase: 1e6 },
      sliding: { kvHeads: 1, headDim: 256, ropeBase: 1e4 },
      window: 512,
      shared: 20,
      perLayer: 256,
      softcap: 30,
    },
  },
  write: writeGemma4,
};

/** Model like Gemma 4's 26B: experts, no per-layer embeddings, and no layer that reads another layer's cache. */
export const GEMMA4_MOE: SynthModel<Gemma4Shape> = {
  architecture: "gemma4",
  tiny: {
    ...GEMMA4.tiny,
    feedForward: 256,
    shared: 0,
    perLayer: 0,
    // Many experts are chosen, so the last one has little weight. If rounding selects another expert in its place,
    // the result hardly changes.
    experts: { count: 12, used: 5, feedForward: 256 },
  },
  real: {
    "gemma4-26b-a4b": {
      embedding: 2816,
      feedForward: 2112,
      layers: 30,
      vocabulary: 262_144,
      context: 262_144,
      heads: 16,
      period: 6,
      full: { kvHeads: 2, headDim: 512, ropeBase: 1e6 },
      sliding: { kvHeads: 8, headDim: 256, ropeBase: 1e4 },
      window: 1024,
      shared: 0,
      perLayer: 0,
      keysAsValues: true,
      softcap: 30,
      experts: { count: 128, used: 8, feedForward: 704 },
    },
  },
  write: writeGemma4,
};

function writeGemma4(file: SynthFile, shape: Gemma4Shape): void {
  const isFull = (layer: number) => (layer + 1) % shape.period === 0;
  const layers = Array.from({ length: shape.layers }, (_, layer) => layer);
  writeKeys(file, shape, layers.map(isFull));
  writeEnds(file, { ...shape, ...shape.full });
  const pairs = shape.full.headDim / 2;
  // In layers without a window, a quarter of the pairs is rotated; the others practically not.
  file.floats("rope_freqs.weight", [pairs], (_, i) => i < pairs / 4 ? 1 : 1e30);
  if (shape.perLayer > 0) {
    file.matrix("per_layer_token_embd", shape.perLayer * shape.layers, shape.vocabulary);
    file.matrix("per_layer_model_proj", shape.embedding, shape.perLayer * shape.layers);
    file.vector("per_layer_proj_norm.weight", shape.perLayer);
  }
  for (const layer of layers) writeLayer(file, `blk.${layer}`, shape, layer, isFull(layer));
}

/**
 * Returns the number of layers that share a cache. With fewer layers, fewer share, so that one of each kind still has
 * its own.
 */
const sharedOf = ({ shared, layers, period }: Gemma4Shape) =>
  Math.max(0, Math.min(shared, layers - 2 * period));
const isShared = (shape: Gemma4Shape, layer: number) => layer >= shape.layers - sharedOf(shape);
const widthOf = (shape: Gemma4Shape, layer: number) => shape.feedForward * (isShared(shape, layer) ? 2 : 1);

function writeKeys(file: SynthFile, shape: Gemma4Shape, full: readonly boolean[]): void {
  file.counts({
    block_count: shape.layers,
    context_length: shape.context,
    embedding_length: shape.embedding,
    embedding_length_per_layer_input: shape.perLayer,
    "attention.head_count": shape.heads,
    "attention.key_length": shape.full.headDim,
    "attention.value_length": shape.full.headDim,
    "attention.key_length_swa": shape.sliding.headDim,
    "attention.value_length_swa": shape.sliding.headDim,
    "attention.sliding_window": shape.window,
    "attention.shared_kv_layers": sharedOf(shape),
    "rope.dimension_count": shape.full.headDim,
    "rope.dimension_count_swa": shape.sliding.headDim,
    ...shape.experts && expertCounts(shape.experts),
    vocab_size: shape.vocabulary,
  });
  file.keys("feed_forward_length", "INT32", full.map((_, layer) => widthOf(shape, layer)));
  const kvHeads = full.map((isFull) => isFull ? shape.full.kvHeads : shape.sliding.kvHeads);
  file.keys("attention.head_count_kv", "INT32", kvHeads);
  file.keys("attention.sliding_window_pattern", "BOOL", full.map((isFull) => !isFull));
  file.key("rope.freq_base", "FLOAT32", shape.full.ropeBase);
  file.key("rope.freq_base_swa", "FLOAT32", shape.sliding.ropeBase);
  file.key("attention.layer_norm_rms_epsilon", "FLOAT32", 1e-6);
  file.key("final_logit_softcapping", "FLOAT32", shape.softcap);
}

function writeLayer(file: SynthFile, block: string, shape: Gemma4Shape, layer: number, full: boolean): void {
  const { embedding, heads, perLayer } = shape;
  const { kvHeads, headDim } = full ? shape.full : shape.sliding;
  for (const norm of ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"]) {
    file.vector(`${block}.${norm}.weight`, embedding);
  }
  file.matrix(`${block}.attn_q`, embedding, heads * headDim);
  // Attention does not scale queries, so small norm weights keep the scores small.
  file.vector(`${block}.attn_q_norm.weight`, headDim, 0.3, 0.03);
  if (shape.unreadKeys || !isShared(shape, layer)) {
    file.matrix(`${block}.attn_k`, embedding, kvHeads * headDim);
    file.vector(`${block}.attn_k_norm.weight`, headDim, 0.3, 0.03);
    if (!(full && shape.keysAsValues)) file.matrix(`${block}.attn_v`, embedding, kvHeads * headDim);
  }
  file.matrix(`${block}.attn_output`, heads * headDim, embedding);
  writeFeedForward(file, block, { embedding, feedForward: widthOf(shape, layer) });
  if (shape.experts) writeMixture(file, block, embedding, shape.experts);
  if (perLayer > 0) {
    file.matrix(`${block}.inp_gate`, embedding, perLayer);
    file.matrix(`${block}.proj`, perLayer, embedding);
    file.vector(`${block}.post_norm.weight`, embedding);
  }
  file.vector(`${block}.layer_output_scale.weight`, 1, 0.9);
}

function writeMixture(file: SynthFile, block: string, embedding: number, experts: ExpertsShape): void {
  for (const norm of ["post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"]) {
    file.vector(`${block}.${norm}.weight`, embedding);
  }
  writeExperts(file, block, embedding, experts);
  // The router's input rows have length 1, so this scale spreads the logits.
  const length = Math.sqrt(embedding);
  file.vector(`${block}.ffn_gate_inp.scale`, embedding, length, 0.1 * length);
  file.vector(`${block}.ffn_down_exps.scale`, experts.count, 1, 0.2);
}
