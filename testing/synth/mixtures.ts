/** Seeded models of decoders with experts. */
import { QKV_BIASES } from "../../engine/architectures/decoders/qwen.ts";
import {
  decoder,
  type DecoderShape,
  expertCounts,
  type ExpertsShape,
  published,
  writeExperts,
  writeFeedForward,
  writeSharedExpert,
} from "./decoder.ts";
import type { SynthFile } from "./file.ts";
import { writeNextToken } from "./qwen35.ts";

/** Shape of the indexer, whose heads choose blocks of tokens. */
interface Indexer {
  readonly headDim: number;
  /** Number of blocks that a row attends to. */
  readonly blocks: number;
  /** Tokens per block. */
  readonly length: number;
}

export interface MixtureShape extends DecoderShape {
  readonly experts: ExpertsShape & {
    /** Number of shared experts, which every row uses. */
    readonly shared?: number;
    readonly scale?: number;
    /** Whether the weights of the chosen experts are divided by their sum. */
    readonly divided?: boolean;
  };
  /** Width of the shared experts together. */
  readonly sharedWidth?: number;
  /** Number of first layers without experts. */
  readonly leadingDense?: number;
  /** Number of extra layers that draft tokens. */
  readonly drafts?: number;
}

/** Returns the width of the shared experts together. */
export function sharedWidth({ experts, sharedWidth }: MixtureShape): number {
  return sharedWidth ?? (experts.shared ?? 0) * experts.feedForward;
}

/** Standard deviation of the bias on the choice of experts. */
export const CHOICE_BIAS = {
  usual: 0.1,
  /**
   * The bias is as large as the scores. Without it, rounding would often change the best groups of experts, because
   * sigmoids near 1 differ little. In models with a norm after the experts, another expert would then change the row
   * as much as everything else in the row.
   */
  large: 0.5,
};

/**
 * Returns a writer of feed-forward blocks. `bias` is the standard deviation of the bias on the choice, and `called` its
 * name.
 */
export function mixture(bias?: number, called = "exp_probs_b.bias") {
  return (file: SynthFile, block: string, shape: MixtureShape, layer: number): void => {
    if (layer < (shape.leadingDense ?? 0)) return writeFeedForward(file, block, shape);
    writeExperts(file, block, shape.embedding, shape.experts);
    if (bias) file.vector(`${block}.${called}`, shape.experts.count, 0, bias);
    if (sharedWidth(shape) > 0) writeSharedExpert(file, block, shape.embedding, sharedWidth(shape));
  };
}

/** GGUF's code of experts weighed by sigmoids. */
export const SIGMOID = 2;

/** Returns the counts of sigmoid-weighted experts after leading dense layers. */
export function sigmoidCounts(shape: MixtureShape): Record<string, number> {
  const { experts, leadingDense = 0, drafts = 0 } = shape;
  return {
    ...expertCounts(experts),
    expert_shared_count: experts.shared ?? 0,
    expert_gating_func: SIGMOID,
    leading_dense_block_count: leadingDense,
    ...drafts > 0 && { nextn_predict_layers: drafts },
  };
}

export function writeWeights(file: SynthFile, { experts }: MixtureShape): void {
  file.key("expert_weights_norm", "BOOL", true);
  file.key("expert_weights_scale", "FLOAT32", experts.scale!);
}

export const EXPERTS = { count: 12, used: 3, feedForward: 256 };

/** For OLMoE, Qwen2 and DeepSeek, llama.cpp supports only heads that together are as wide as the embedding. */
const QWEN_MIXTURES = {
  qwen3moe: decoder<MixtureShape>("qwen3moe", {
    tiny: { heads: 4, kvHeads: 2, headDim: 64, ropeBase: 1e6, experts: EXPERTS },
    real: {
      "qwen3moe-30b-a3b": published([2048, 6144, 48, 151_936, 40_960], [32, 4, 128], 1e6, {
        untied: true,
        experts: { count: 128, used: 8, feedForward: 768 },
      }),
    },
    counts: ({ experts }) => expertCounts(experts),
    feedForward: mixture(),
  }),
  // The feed-forward key gives the experts' width.
  olmoe: decoder<MixtureShape>("olmoe", {
    tiny: {
      feedForward: 256,
      heads: 8,
      kvHeads: 8,
      headDim: 32,
      ropeBase: 1e4,
      untied: true,
      experts: EXPERTS,
    },
    real: {
      "olmoe-1b-7b": published([2048, 1024, 16, 50_304, 4096], [16, 16, 128], 1e4, {
        untied: true,
        experts: { count: 64, used: 8, feedForward: 1024 },
      }),
    },
    counts: ({ experts: { count, used } }) => ({ expert_count: count, expert_used_count: used }),
    feedForward: mixture(),
  }),
  qwen2moe: decoder<MixtureShape>("qwen2moe", {
    tiny: {
      heads: 8,
      kvHeads: 4,
      headDim: 32,
      ropeBase: 1e6,
      untied: true,
      experts: EXPERTS,
      sharedWidth: 512,
    },
    real: {
      "qwen1.5-moe-a2.7b": published([2048, 5632, 24, 151_936, 8192], [16, 16, 128], 1e6, {
        untied: true,
        experts: { count: 60, used: 4, feedForward: 1408 },
        sharedWidth: 5632,
      }),
      "qwen2-57b-a14b": published([3584, 18_944, 28, 151_936, 32_768], [28, 4, 128], 1e6, {
        untied: true,
        experts: { count: 64, used: 8, feedForward: 2560 },
        sharedWidth: 20_480,
      }),
    },
    counts: (shape) => ({
      ...expertCounts(shape.experts),
      expert_shared_feed_forward_length: sharedWidth(shape),
    }),
    feedForward(file, block, shape, layer) {
      mixture()(file, block, shape, layer);
      const gate = `${block}.ffn_gate_inp_shexp.weight`;
      file.floats(gate, [shape.embedding, 1], (random) => 0.1 * random.normal());
    },
  }),
  // llama.cpp reads the experts' width from the feed-forward's key.
  "hunyuan-moe": decoder<MixtureShape>("hunyuan-moe", {
    tiny: {
      feedForward: 256,
      heads: 8,
      kvHeads: 2,
      headDim: 64,
      ropeBase: 1e6,
      experts: EXPERTS,
      sharedWidth: 512,
    },
    real: {
      "hunyuan-a13b": published([4096, 3072, 32, 128_167, 262_144], [32, 8, 128], 1.1158840e7, {
        experts: { count: 64, used: 8, feedForward: 3072 },
        sharedWidth: 3072,
      }),
    },
    counts: (shape) => ({
      ...expertCounts(shape.experts),
      expert_shared_count: 1,
      expert_shared_feed_forward_length: sharedWidth(shape),
    }),
    feedForward: mixture(),
  }),
};

const deepseek = (
  architecture: string,
  tiny: Parameters<typeof decoder<MixtureShape>>[1]["tiny"],
  real: Readonly<Record<string, MixtureShape>>,
) =>
  decoder<MixtureShape>(architecture, {
    tiny,
    real,
    counts: ({ experts, leadingDense = 0 }) => ({
      ...expertCounts(experts),
      expert_shared_count: experts.shared!,
      leading_dense_block_count: leadingDense,
    }),
    afterCounts(file, { experts }) {
      file.key("expert_weights_scale", "FLOAT32", experts.scale!);
      if (experts.divided) file.key("expert_weights_norm", "BOOL", true);
    },
    feedForward: mixture(),
  });

const LEADING_DENSE = {
  "ernie4_5-moe": decoder<MixtureShape>("ernie4_5-moe", {
    tiny: {
      heads: 10,
      kvHeads: 2,
      headDim: 128,
      ropeBase: 5e5,
      experts: { ...EXPERTS, shared: 2 },
      leadingDense: 1,
    },
    real: {
      "ernie-4.5-21b-a3b": published([2560, 12_288, 28, 103_424, 131_072], [20, 4, 128], 5e5, {
        experts: { count: 64, used: 6, feedForward: 1536, shared: 2 },
        leadingDense: 1,
      }),
    },
    counts: (shape) => ({
      ...expertCounts(shape.experts),
      expert_shared_count: shape.experts.shared!,
      expert_shared_feed_forward_length: sharedWidth(shape),
      interleave_moe_layer_step: 1,
      leading_dense_block_count: shape.leadingDense!,
    }),
    feedForward: mixture(CHOICE_BIAS.usual),
  }),
  deepseek: deepseek("deepseek", {
    heads: 8,
    kvHeads: 4,
    headDim: 32,
    ropeBase: 1e4,
    untied: true,
    experts: { ...EXPERTS, shared: 2, scale: 1.5 },
    leadingDense: 1,
  }, {
    "deepseek-moe-16b": published([2048, 10_944, 28, 102_400, 4096], [16, 16, 128], 1e4, {
      untied: true,
      experts: { count: 64, used: 6, feedForward: 1408, shared: 2, scale: 1 },
      leadingDense: 1,
    }),
  }),
  // Ling Lite: experts in every layer.
  bailingmoe: deepseek("bailingmoe", {
    heads: 8,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 6e5,
    untied: true,
    experts: { ...EXPERTS, shared: 2, scale: 1, divided: true },
    leadingDense: 0,
  }, {
    "ling-lite": published([2048, 5632, 28, 126_464, 16_384], [16, 4, 128], 6e5, {
      untied: true,
      experts: { count: 64, used: 6, feedForward: 1408, shared: 2, scale: 1, divided: true },
      leadingDense: 0,
    }),
  }),
};

const GLM4MOE_HEADS = { traits: { headNorms: true, biases: QKV_BIASES } };

const SIGMOIDS = {
  // Heads have norms, as in the 355B.
  glm4moe: decoder<MixtureShape>("glm4moe", {
    tiny: {
      ...GLM4MOE_HEADS,
      heads: 8,
      kvHeads: 2,
      headDim: 64,
      rotated: 32,
      ropeBase: 1e6,
      untied: true,
      experts: { ...EXPERTS, shared: 2, scale: 2.5 },
      leadingDense: 1,
    },
    real: {
      "glm-4.5-air": published([4096, 10_944, 46, 151_552, 131_072], [96, 8, 128], 1e6, {
        traits: { biases: QKV_BIASES },
        rotated: 64,
        untied: true,
        experts: { count: 128, used: 8, feedForward: 1408, shared: 1, scale: 1 },
        leadingDense: 1,
        drafts: 1,
      }),
    },
    counts: sigmoidCounts,
    afterCounts: writeWeights,
    feedForward: mixture(CHOICE_BIAS.usual),
    draft: (file, block, { embedding }) => writeNextToken(file, block, embedding),
  }),
  dots1: decoder<MixtureShape>("dots1", {
    tiny: {
      heads: 4,
      kvHeads: 4,
      headDim: 64,
      ropeBase: 1e7,
      untied: true,
      experts: { ...EXPERTS, shared: 2, scale: 2.5 },
      leadingDense: 1,
    },
    real: {
      "dots.llm1": published([4096, 10_944, 62, 152_064, 32_768], [32, 32, 128], 1e7, {
        untied: true,
        experts: { count: 128, used: 6, feedForward: 1408, shared: 2, scale: 2.5 },
        leadingDense: 1,
      }),
    },
    counts: sigmoidCounts,
    afterCounts: writeWeights,
    feedForward: mixture(CHOICE_BIAS.usual),
  }),
  // Hy3. llama.cpp knows the dense layers by their tensors, and the bias of the choice by its bare name.
  hy_v3: decoder<MixtureShape>("hy_v3", {
    tiny: {
      heads: 8,
      kvHeads: 2,
      headDim: 64,
      ropeBase: 1.115884e7,
      untied: true,
      experts: { ...EXPERTS, shared: 2, scale: 2.826 },
      leadingDense: 1,
    },
    real: {
      "hy3": published([4096, 13_312, 80, 120_832, 131_072], [64, 8, 128], 1.115884e7, {
        untied: true,
        experts: { count: 192, used: 8, feedForward: 1536, shared: 1, scale: 2.826 },
        leadingDense: 1,
        drafts: 1,
      }),
    },
    counts: (shape) => ({
      ...expertCounts(shape.experts),
      expert_shared_feed_forward_length: sharedWidth(shape),
      expert_gating_func: SIGMOID,
      ...shape.drafts && { nextn_predict_layers: shape.drafts },
    }),
    afterCounts: writeWeights,
    feedForward: mixture(CHOICE_BIAS.usual, "exp_probs_b"),
    draft: (file, block, { embedding }) => writeNextToken(file, block, embedding),
  }),
  // llama.cpp reads the experts' width from the feed-forward's key.
  "minimax-m2": decoder<MixtureShape>("minimax-m2", {
    tiny: {
      feedForward: 256,
      heads: 8,
      kvHeads: 2,
      headDim: 64,
      rotated: 32,
      ropeBase: 5e6,
      untied: true,
      experts: EXPERTS,
    },
    real: {
      "minimax-m2": published([3072, 1536, 62, 200_064, 196_608], [48, 8, 128], 5e6, {
        rotated: 64,
        untied: true,
        experts: { count: 256, used: 8, feedForward: 1536 },
      }),
    },
    counts: ({ experts }) => ({ ...expertCounts(experts), expert_gating_func: SIGMOID }),
    feedForward: mixture(CHOICE_BIAS.usual),
  }),
  "minimax-m3": decoder<MixtureShape & { readonly indexer: Indexer }>("minimax-m3", {
    tiny: {
      heads: 8,
      kvHeads: 2,
      headDim: 64,
      rotated: 32,
      ropeBase: 5e6,
      untied: true,
      // With more experts, near ties between them would dominate the distances, also in llama.cpp.
      experts: { count: 8, used: 2, feedForward: 256, shared: 1, scale: 1.25 },
      leadingDense: 1,
      // More layers have more choices of blocks and experts. If rounding changes one choice, all later results differ.
      layers: 2,
      indexer: { headDim: 64, blocks: 2, length: 32 },
    },
    real: {
      // The number of dense layers is assumed.
      "minimax-m3": published([6144, 12_288, 60, 200_064, 524_288], [64, 4, 128], 5e6, {
        rotated: 64,
        untied: true,
        experts: { count: 128, used: 4, feedForward: 3072, shared: 1, scale: 2 },
        leadingDense: 3,
        indexer: { headDim: 128, blocks: 16, length: 128 },
      }),
    },
    counts: ({ kvHeads, indexer, ...shape }) => ({
      ...sigmoidCounts({ kvHeads, ...shape }),
      "attention.indexer.head_count": kvHeads,
      "attention.indexer.key_length": indexer.headDim,
      "attention.indexer.top_k": indexer.blocks,
      "attention.indexer.block_size": indexer.length,
      "attention.indexer.local_blocks": 1,
    }),
    afterCounts: writeWeights,
    feedForward(file, block, shape, layer) {
      mixture(CHOICE_BIAS.large)(file, block, shape, layer);
      if (layer < shape.leadingDense!) return;
      const { embedding, kvHeads, indexer: { headDim } } = shape;
      file.matrix(`${block}.indexer.q_proj`, embedding, kvHeads * headDim);
      file.matrix(`${block}.indexer.k_proj`, embedding, headDim);
      for (const norm of ["q_norm", "k_norm"]) file.vector(`${block}.indexer.${norm}.weight`, headDim);
    },
  }),
  bailingmoe2: decoder<
    MixtureShape & { readonly groups: { readonly count: number; readonly used: number } }
  >("bailingmoe2", {
    tiny: {
      heads: 4,
      kvHeads: 2,
      headDim: 64,
      rotated: 32,
      ropeBase: 6e5,
      untied: true,
      experts: { count: 16, used: 5, feedForward: 256, shared: 1, scale: 2.5 },
      sharedWidth: 512,
      groups: { count: 4, used: 3 },
      leadingDense: 1,
    },
    real: {
      "ling-mini-2.0": published([2048, 5120, 20, 157_184, 32_768], [16, 4, 128], 6e5, {
        rotated: 64,
        untied: true,
        experts: { count: 256, used: 8, feedForward: 512, shared: 1, scale: 2.5 },
        sharedWidth: 512,
        groups: { count: 8, used: 4 },
        leadingDense: 1,
      }),
    },
    counts: (shape) => ({
      ...sigmoidCounts(shape),
      expert_shared_feed_forward_length: sharedWidth(shape),
      expert_group_count: shape.groups.count,
      expert_group_used_count: shape.groups.used,
    }),
    afterCounts: writeWeights,
    feedForward: mixture(CHOICE_BIAS.large),
    draft: (file, block, { embedding }) => writeNextToken(file, block, embedding, "layer_output_norm"),
  }),
};

export const MIXTURES = { ...QWEN_MIXTURES, ...LEADING_DENSE, ...SIGMOIDS };
