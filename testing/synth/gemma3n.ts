import { writeAttention, writeCounts, writeEnds, writeFeedForward, writeReals } from "./decoder.ts";
import type { DecoderShape } from "./decoder.ts";
import { type SynthModel, TINY } from "./model.ts";
import type { SynthFile } from "./file.ts";

export interface Gemma3nShape extends DecoderShape {
  /** One layer in so many has no window, the last of them. */
  readonly period: number;
  readonly window: number;
  /** Layers at the end that read what earlier ones keep. */
  readonly shared: number;
  /** Columns of the embedding that each layer gets of its own. */
  readonly perLayer: number;
  readonly softcap: number;
  /** Of matrices that quantisers leave alone. */
  readonly unquantized: "F32" | "F16";
}

/** What llama.cpp takes for granted, as published files have it: which layers are sparse, and LAuReL's rank. */
const SPARSE = 10;
const RANK = 64;
const STREAMS = 4;
/** 95 % of numbers that are spread normally lie below so many deviations, which llama.cpp takes for granted too. */
const DEVIATIONS = 1.6448533535003662;
/**
 * Size of what is added to rows: so small beside them that a rounding does not grow from layer to layer, of which there are many and
 * each divides the rows before it by sqrt(2).
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
    // llama.cpp's layers share from the 21st on.
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
    // Queries are not scaled: their norms keep the scores small.
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
  // Of a shape that is cut, so many fewer that a layer of each kind keeps what the others read.
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
  // llama.cpp divides the squares by one gate less: in a tiny model that is felt, and this makes both compute the same.
  const deviations = DEVIATIONS * Math.sqrt(shape.feedForward / (shape.feedForward - 1));
  file.keys("activation_sparsity_scale", "FLOAT32", layers.map((i) => i < SPARSE ? deviations : -Infinity));
  file.key("final_logit_softcapping", "FLOAT32", shape.softcap);
}

/** AltUp and LAuReL. Routers' rows are divided by the width: their weights spread what tanh gets over some units. */
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
