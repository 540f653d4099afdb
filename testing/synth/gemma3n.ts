import { writeAttention, writeCounts, writeEnds, writeFeedForward, writeReals } from "./decoder.ts";
import type { DecoderShape } from "./decoder.ts";
import { type SynthModel, TINY } from "./model.ts";
import type { SynthFile } from "./file.ts";

export interface Gemma3nShape extends DecoderShape {
  /** Layers per period; the last one has no window. */
  readonly period: number;
  readonly window: number;
  /** Number of last layers that read the cache of earlier ones. */
  readonly shared: number;
  /** Columns of each layer's own embedding. */
  readonly perLayer: number;
  readonly softcap: number;
  /** Type of the matrices that quantizers do not quantize. */
  readonly unquantized: "F32" | "F16";
}

/** Values that llama.cpp hard-codes, as in published files: the number of sparse layers, and LAuReL's rank. */
const SPARSE = 10;
const RANK = 64;
const STREAMS = 4;
/**
 * Number of standard deviations above the mean below which 95 % of normally distributed numbers lie. llama.cpp
 * hard-codes this value too.
 */
const DEVIATIONS = 1.6448533535003662;
/**
 * Mean norm weight of residual additions. It is small, so that a rounding error does not grow over the many layers,
 * each of which divides the rows by sqrt(2).
 */
const ADDED = 0.3;

const E4B: Gemma3nShape = {
  embedding: 2048,
  feedForward: 16_384,
  layers: 35,
  vocabulary: 262_400,
  context: 32_768,
  heads: 8,
  kvHeads: 2,
  headDim: 256,
  ropeBase: 1e6,
  period: 5,
  window: 512,
  shared: 15,
  perLayer: 256,
  softcap: 30,
  unquantized: "F16",
};

export const GEMMA3N: SynthModel<Gemma3nShape> = {
  tiny: {
    ...TINY,
    feedForward: 512,
    // In llama.cpp, layers from the 21st on share caches.
    layers: 22,
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e6,
    period: 2,
    window: 24,
    shared: 2,
    perLayer: 256,
    softcap: 30,
    unquantized: "F32",
  },
  real: {
    "gemma3n-e2b": { ...E4B, feedForward: 8192, layers: 30, shared: 10 },
    "gemma3n-e4b": E4B,
  },
  write: writeGemma3n,
};

function writeGemma3n(file: SynthFile, shape: Gemma3nShape): void {
  const { embedding, perLayer, vocabulary } = shape;
  const layers = Array.from({ length: shape.layers }, (_, layer) => layer);
  writeKeys(file, shape, layers);
  writeEnds(file, shape);
  file.matrix("per_layer_token_embd", perLayer * shape.layers, vocabulary);
  file.plain("per_layer_model_proj", shape.unquantized, embedding, perLayer * shape.layers);
  file.vector("per_layer_proj_norm.weight", perLayer);
  for (const name of ["altup_proj", "altup_unembd_proj"]) {
    file.plain(name, shape.unquantized, embedding, embedding, STREAMS - 1);
  }
  for (const layer of layers) {
    const block = `blk.${layer}`;
    for (const norm of ["attn_norm", "ffn_norm"]) file.vector(`${block}.${norm}.weight`, embedding);
    for (const norm of ["post_attention_norm", "post_ffw_norm", "post_norm", "laurel_post_norm"]) {
      file.vector(`${block}.${norm}.weight`, embedding, ADDED, 0.1 * ADDED);
    }
    writeAttention(file, block, shape);
    // Attention does not scale queries, so small norm weights keep the scores small.
    for (const norm of ["attn_q_norm", "attn_k_norm"]) {
      file.vector(`${block}.${norm}.weight`, shape.headDim, 0.3, 0.03);
    }
    writeFeedForward(file, block, shape);
    file.matrix(`${block}.inp_gate`, embedding, perLayer);
    file.matrix(`${block}.proj`, perLayer, embedding);
    writeStreams(file, block, shape);
  }
}

function writeKeys(file: SynthFile, shape: Gemma3nShape, layers: readonly number[]): void {
  // With fewer layers, fewer share a cache, so that one layer of each kind still has its own.
  const shared = Math.max(0, Math.min(shape.shared, shape.layers - 2 * shape.period));
  writeCounts(file, shape, {
    embedding_length_per_layer_input: shape.perLayer,
    "altup.num_inputs": STREAMS,
    "altup.active_idx": 0,
    "attention.sliding_window": shape.window,
    "attention.shared_kv_layers": shared,
  });
  writeReals(file, shape);
  file.keys("attention.sliding_window_pattern", "BOOL", layers.map((i) => (i + 1) % shape.period !== 0));
  // llama.cpp divides the sum of squares by the number of gates minus 1. In a tiny model this matters, so the file's
  // deviations compensate for it.
  const deviations = DEVIATIONS * Math.sqrt(shape.feedForward / (shape.feedForward - 1));
  file.keys("activation_sparsity_scale", "FLOAT32", layers.map((i) => i < SPARSE ? deviations : -Infinity));
  file.key("final_logit_softcapping", "FLOAT32", shape.softcap);
}

/**
 * Writes AltUp's and LAuReL's tensors. Router rows are divided by the width, so larger weights spread the inputs of
 * tanh over some units.
 */
function writeStreams(file: SynthFile, block: string, { embedding, unquantized }: Gemma3nShape): void {
  const normal = (name: string, shape: readonly number[], spread: number) =>
    file.floats(`${block}.${name}.weight`, shape, (random) => spread * random.normal());
  file.vector(`${block}.altup_router_norm.weight`, embedding);
  normal("altup_router", [embedding, STREAMS], Math.sqrt(embedding));
  normal("altup_predict_coef", [STREAMS, STREAMS ** 2], 0.1);
  normal("altup_correct_coef", [STREAMS, STREAMS], 0.3);
  file.vector(`${block}.altup_correct_scale.weight`, embedding);
  file.plain(`${block}.laurel_l`, unquantized, embedding, RANK);
  file.plain(`${block}.laurel_r`, unquantized, RANK, embedding);
}
