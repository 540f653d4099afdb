/**
 * Seeded models of dense decoders. Numbers differ where they can (heads, KV heads, head size), so that a mix-up shows.
 */
import { TINY } from "./model.ts";
import { QKV_BIASES } from "../../engine/architectures/decoders/qwen.ts";
import { decoder, type DecoderShape, published } from "./decoder.ts";
import type { SynthFile } from "./file.ts";

/** A model that extends its context beyond the original one. */
interface Stretched extends DecoderShape {
  readonly originalContext: number;
}

interface MiniCpmShape extends Stretched {
  readonly embeddingScale: number;
  /** Divisor of the embedding's width that gives the divisor of logits. */
  readonly baseWidth: number;
}

/** Writes LongRoPE's factors for a head, or for the rotated part of a head. */
export function writeLongRope(
  file: SynthFile,
  { rotated, headDim }: { readonly rotated?: number; readonly headDim: number },
): void {
  const pairs = (rotated ?? headDim) / 2;
  file.floats("rope_factors_long.weight", [pairs], (_, i) => 1 + 30 * i / pairs);
  file.floats("rope_factors_short.weight", [pairs], (_, i) => 1 + 2 * i / pairs);
}

const PHI3_TINY = { heads: 8, kvHeads: 4, headDim: 32, ropeBase: 1e4, untied: true };

export const LLAMAS = {
  llama: decoder("llama", {
    tiny: { heads: 8, kvHeads: 4, headDim: 32, ropeBase: 5e5, untied: true, ropeFactors: true },
  }),
  qwen2: decoder("qwen2", { tiny: { heads: 8, kvHeads: 2, headDim: 32, ropeBase: 1e6 } }),
  qwen3: decoder("qwen3", {
    checkpoint: {},
    tiny: { heads: 8, kvHeads: 4, headDim: 64, ropeBase: 1e6 },
    real: { "qwen3-0.6b": published([1024, 3072, 28, 151_936, 40_960], [16, 8, 128], 1e6) },
  }),
  smollm3: decoder("smollm3", {
    checkpoint: { no_rope_layer_interval: 4 },
    tiny: { layers: 5, heads: 8, kvHeads: 2, headDim: 32, ropeBase: 5e6 },
    real: { "smollm3-3b": published([2048, 11_008, 36, 128_256, 65_536], [16, 4, 128], 5e6) },
  }),
  "hunyuan-dense": decoder("hunyuan-dense", {
    tiny: { heads: 8, kvHeads: 2, headDim: 64, ropeBase: 1e6 },
    real: { "hunyuan-1.8b": published([2048, 6144, 32, 120_818, 262_144], [16, 4, 128], 1.1158840e7) },
  }),
  maincoder: decoder("maincoder", {
    tiny: { heads: 8, kvHeads: 2, headDim: 96, ropeBase: 1e6 },
    real: { "maincoder-1b": published([1536, 4096, 32, 151_936, 2048], [16, 4, 96], 1e6) },
  }),
  // All heads together are wider than the embedding.
  gemma: decoder("gemma", {
    tiny: { heads: 8, kvHeads: 1, headDim: 64, ropeBase: 1e4 },
    real: { "gemma-2b": published([2048, 16_384, 18, 256_000, 8192], [8, 1, 256], 1e4) },
  }),
  // All heads together are wider than the embedding.
  seed_oss: decoder("seed_oss", {
    tiny: { heads: 12, kvHeads: 2, headDim: 64, ropeBase: 1e7, untied: true },
    real: {
      "seed-oss-36b": published([5120, 27_648, 64, 155_136, 524_288], [80, 8, 128], 1e7, { untied: true }),
    },
  }),
  // All heads together are wider than the embedding.
  arcee: decoder<Stretched>("arcee", {
    tiny: { heads: 8, kvHeads: 2, headDim: 64, ropeBase: 1e4, untied: true, originalContext: 64 },
    real: {
      "afm-4.5b": published([2560, 18_432, 36, 128_005, 65_536], [20, 4, 128], 1e4, {
        untied: true,
        originalContext: 4096,
      }),
    },
    before(file) {
      file.key("rope.scaling.type", "STRING", "yarn");
      file.key("rope.scaling.factor", "FLOAT32", 20);
    },
    counts: (shape) => ({ "rope.scaling.original_context_length": shape.originalContext }),
  }),
  chatglm: decoder("chatglm", {
    checkpoint: { attention_bias: true },
    tiny: { heads: 8, kvHeads: 2, headDim: 32, rotated: 16, ropeBase: 5e6, untied: true },
    real: {
      "glm-4-9b-chat": published([4096, 13_696, 40, 151_552, 131_072], [32, 2, 128], 5e6, {
        rotated: 64,
        untied: true,
      }),
    },
  }),
  // Layers weigh more beside the embedding than in published models. Tests run in long contexts.
  minicpm: decoder<MiniCpmShape>("minicpm", {
    tiny: {
      heads: 8,
      kvHeads: 2,
      headDim: 32,
      ropeBase: 1e4,
      originalContext: 64,
      embeddingScale: 3,
      baseWidth: 192,
    },
    real: {
      "minicpm4-0.5b": published([1024, 4096, 24, 73_448, 32_768], [16, 2, 64], 1e4, {
        originalContext: 32_768,
        embeddingScale: 12,
        baseWidth: 256,
      }),
    },
    before(file, shape) {
      file.key("embedding_scale", "FLOAT32", shape.embeddingScale);
      file.key("residual_scale", "FLOAT32", 1.4 / Math.sqrt(shape.layers));
      file.key("logit_scale", "FLOAT32", shape.embedding / shape.baseWidth);
      file.key("rope.scaling.type", "STRING", "longrope");
      file.counts({ "rope.scaling.original_context_length": shape.originalContext });
      writeLongRope(file, shape);
    },
  }),
  // YaRN applies beyond 64 tokens, from where queries grow.
  mistral3: decoder("mistral3", {
    tiny: { heads: 8, kvHeads: 2, headDim: 32, ropeBase: 1e6, untied: true },
    real: { "ministral3-3b": published([3072, 9216, 26, 131_072, 262_144], [32, 8, 128], 1e6) },
    before(file) {
      file.key("rope.scaling.type", "STRING", "yarn");
      file.key("rope.scaling.factor", "FLOAT32", 16);
      file.key("rope.scaling.original_context_length", "UINT32", 64);
      file.key("rope.scaling.yarn_beta_fast", "FLOAT32", 32);
      file.key("rope.scaling.yarn_beta_slow", "FLOAT32", 1);
      file.key("rope.scaling.yarn_log_multiplier", "FLOAT32", 1);
      file.key("attention.temperature_scale", "FLOAT32", 0.1);
    },
  }),
  nanbeige: decoder<DecoderShape & { readonly passes: number }>("nanbeige", {
    tiny: { layers: 3, heads: 8, kvHeads: 2, headDim: 64, ropeBase: 5e4, untied: true, passes: 3 },
    real: {
      "nanbeige4.2-3b": published([3072, 10_752, 22, 166_144, 262_144], [48, 8, 128], 7e7, {
        untied: true,
        passes: 2,
      }),
    },
    before(file, shape) {
      file.key("num_loops", "UINT32", shape.passes);
      file.key("skip_loop_final_norm", "BOOL", false);
    },
  }),
  // Tests run in contexts up to the original one.
  phi3: phi3({ ...PHI3_TINY, rotated: 24, originalContext: 2000 }, {
    "phi3-mini": published([3072, 8192, 32, 32_064, 4096], [32, 32, 96], 1e4, { untied: true }),
  }),
  // Tests run in contexts beyond the original one.
  "phi3-long": phi3({ ...PHI3_TINY, originalContext: 64 }),
  deci: decoder("deci", {
    tiny: {
      layers: 6,
      heads: 8,
      kvHeads: 4,
      headDim: 32,
      ropeBase: 5e5,
      untied: true,
      ropeFactors: true,
    },
    widths({ layers }) {
      const widths = [[8, 4, 768], [8, 0, 256], [0, 0, 512], [8, 2, 512], [0, 0, 0], [8, 4, 768]];
      return Array.from({ length: layers }, (_, i) => {
        const [heads, kvHeads, feedForward] = widths[i % widths.length];
        return { heads, kvHeads, feedForward };
      });
    },
  }),
};

function phi3(tiny: typeof PHI3_TINY & Partial<Stretched>, real?: Readonly<Record<string, DecoderShape>>) {
  return decoder<DecoderShape & { readonly originalContext?: number }>("phi3", {
    tiny,
    real,
    counts: ({ originalContext }) => ({
      "attention.sliding_window": 2047,
      ...originalContext && { "rope.scaling.original_context_length": originalContext },
    }),
    after(file, shape) {
      if (!shape.originalContext) return;
      file.key("rope.scaling.attn_factor", "FLOAT32", 1.19);
      writeLongRope(file, shape);
    },
  });
}

interface CohereShape extends DecoderShape {
  readonly logitScale: number;
}

const cohere = (
  architecture: string,
  tiny: Parameters<typeof decoder<CohereShape>>[1]["tiny"],
  real: Readonly<Record<string, CohereShape>>,
) =>
  decoder<CohereShape>(architecture, {
    tiny,
    real,
    after: (file, shape) => file.key("logit_scale", "FLOAT32", shape.logitScale),
  });

const COMMAND_R = { heads: 4, kvHeads: 2, headDim: 64, ropeBase: 1e4, logitScale: 1.25 };
const HEAD_NORMS = { traits: { headLayerNorms: true } };

interface ParallelShape extends DecoderShape {
  /** Value of the key for parallel blocks. */
  readonly parallel?: boolean;
}

const writeParallel = (file: SynthFile, { parallel }: ParallelShape) => {
  if (parallel !== undefined) file.key("use_parallel_residual", "BOOL", parallel);
};

const NEOX = { ropeBase: 1e4, untied: true };
const NORM_BIASES = ["attn_norm", "ffn_norm", "output_norm"];
const STABLE_BIASES = { traits: { biases: [...NORM_BIASES, ...QKV_BIASES] } };
const STABLE_12B = { parallel: true, untied: true, traits: { parallel: true, headLayerNorms: true } };

/**
 * In some families all heads together are as wide as the embedding, because llama.cpp supports no other width there.
 */
export const LAYER_NORMED = {
  // The last layer has a window too.
  cohere2: cohere(
    "cohere2",
    { layers: 5, heads: 8, kvHeads: 2, headDim: 32, ropeBase: 1e4, window: 40, logitScale: 0.75 },
    {
      "command-r7b": published([4096, 14_336, 32, 256_000, 132_096], [32, 8, 128], 5e4, {
        window: 4096,
        logitScale: 0.25,
      }),
    },
  ),
  "command-r": cohere("command-r", COMMAND_R, {
    "aya-expanse-8b": published([4096, 14_336, 32, 256_000, 8192], [32, 8, 128], 1e4, { logitScale: 0.125 }),
  }),
  // llama.cpp recognises norms of heads by the layer count.
  "command-r-plus": cohere(
    "command-r",
    { ...COMMAND_R, ...HEAD_NORMS, feedForward: 256, layers: 64, heads: 8, headDim: 32 },
    {
      "command-r-plus": published([12_288, 33_792, 64, 256_000, 131_072], [96, 8, 128], 7.5e7, {
        ...HEAD_NORMS,
        logitScale: 0.8333333333333334,
      }),
    },
  ),
  gpt2: decoder("gpt2", {
    checkpoint: {
      n_embd: TINY.embedding,
      n_head: 4,
      n_inner: TINY.feedForward,
      n_layer: TINY.layers,
      n_positions: 640,
      activation_function: "gelu_new",
      layer_norm_epsilon: 1e-5,
    },
    tiny: { context: 640, heads: 4, kvHeads: 4, headDim: 64, ropeBase: 1e4 },
    real: { "gpt2": published([768, 3072, 12, 50_257, 1024], [12, 12, 64], 1e4) },
    after: (file, { embedding, context }) => file.plain("position_embd", "F32", embedding, context),
  }),
  starcoder: decoder("starcoder", {
    checkpoint: {
      n_embd: TINY.embedding,
      n_head: 8,
      n_inner: TINY.feedForward,
      n_layer: TINY.layers,
      n_positions: 640,
      activation_function: "gelu_pytorch_tanh",
      layer_norm_epsilon: 1e-5,
    },
    tiny: { context: 640, heads: 8, kvHeads: 1, headDim: 32, ropeBase: 1e4 },
    after: (file, { embedding, context }) => file.plain("position_embd", "F32", embedding, context),
  }),
  jais2: decoder("jais2", {
    checkpoint: { hidden_act: "relu2", attention_bias: true, mlp_bias: true },
    tiny: { heads: 4, kvHeads: 2, headDim: 64, ropeBase: 5e5, untied: true },
  }),
  starcoder2: decoder("starcoder2", {
    tiny: { heads: 8, kvHeads: 2, headDim: 32, ropeBase: 1e5 },
    real: { "starcoder2-3b": published([3072, 12_288, 30, 49_152, 16_384], [24, 2, 128], 1e6) },
  }),
  nemotron: decoder("nemotron", {
    tiny: { heads: 4, kvHeads: 2, headDim: 64, rotated: 32, ropeBase: 1e4, untied: true },
    real: {
      "nemotron-mini-4b": published([3072, 9216, 32, 256_000, 4096], [24, 8, 128], 1e4, {
        rotated: 64,
        untied: true,
      }),
    },
  }),
  gptneox: decoder<ParallelShape>("gptneox", {
    checkpoint: { hidden_act: "gelu", use_parallel_residual: true },
    tiny: { ...NEOX, heads: 4, kvHeads: 4, headDim: 64, rotated: 16, parallel: true },
    real: {
      "pythia-1.4b": published([2048, 8192, 24, 50_304, 2048], [16, 16, 128], 1e4, {
        untied: true,
        rotated: 32,
        parallel: true,
      }),
    },
    after: writeParallel,
  }),
  phi2: decoder("phi2", {
    tiny: { ...NEOX, heads: 4, kvHeads: 4, headDim: 64, rotated: 24 },
    real: {
      "phi-2": published([2560, 10_240, 32, 51_200, 2048], [32, 32, 80], 1e4, { untied: true, rotated: 32 }),
    },
  }),
  // Files of the 3B claim parallel blocks, which they do not have.
  stablelm: decoder<ParallelShape>("stablelm", {
    tiny: { ...NEOX, ...STABLE_BIASES, parallel: true, heads: 8, kvHeads: 4, headDim: 32, rotated: 8 },
    real: {
      "stablelm2-1.6b": published([2048, 5632, 24, 100_352, 4096], [32, 32, 64], 1e4, {
        ...STABLE_BIASES,
        untied: true,
        parallel: false,
        rotated: 16,
      }),
    },
    after: writeParallel,
  }),
  "stablelm-12b": decoder<ParallelShape>("stablelm", {
    tiny: { ...STABLE_12B, heads: 4, kvHeads: 2, headDim: 64, ropeBase: 1e4, rotated: 20 },
    real: {
      "stablelm2-12b": published([5120, 13_824, 40, 100_352, 4096], [32, 8, 160], 1e4, {
        ...STABLE_12B,
        rotated: 40,
      }),
    },
    after: writeParallel,
  }),
};
