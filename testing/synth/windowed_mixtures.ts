/** Seeded models of decoders with experts and with windows in most layers. */
import {
  decoder,
  type DecoderShape,
  expertCounts,
  type ExpertsShape,
  published,
  writeAttention,
  writeCounts,
  writeEnds,
  writeExperts,
  writeFeedForward,
  writeReals,
} from "./decoder.ts";
import {
  CHOICE_BIAS,
  EXPERTS,
  mixture,
  type MixtureShape,
  sharedWidth,
  SIGMOID,
  sigmoidCounts,
  writeWeights,
} from "./mixtures.ts";
import { type SynthModel, TINY } from "./model.ts";
import type { SynthFile } from "./file.ts";
import { writeNextToken } from "./qwen35.ts";

interface AfmoeShape extends DecoderShape {
  readonly experts: ExpertsShape & { readonly shared: number; readonly scale: number };
  readonly leadingDense: number;
  readonly window: number;
}

/** Mean and spread of the norms after attention and feed-forward. Training starts them at 1 / sqrt(layers). */
const POST_NORM = [0.15, 0.03] as const;

/** Arcee's Trinity: attention has gates, and three of four layers have a window. */
const AFMOE: SynthModel<AfmoeShape> = {
  tiny: {
    ...TINY,
    layers: 5,
    heads: 8,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e4,
    untied: true,
    headNorms: true,
    window: 40,
    experts: { count: 12, used: 3, feedForward: 256, shared: 2, scale: 2.5 },
    leadingDense: 2,
  },
  real: {
    "trinity-nano": published([1024, 3072, 56, 200_192, 131_072], [8, 2, 128], 1e4, {
      untied: true,
      headNorms: true,
      window: 2048,
      experts: { count: 128, used: 8, feedForward: 256, shared: 1, scale: 2.826 },
      leadingDense: 2,
    }),
    "trinity-mini": published([2048, 6144, 32, 200_192, 131_072], [32, 4, 128], 1e4, {
      untied: true,
      headNorms: true,
      window: 2048,
      experts: { count: 128, used: 8, feedForward: 1024, shared: 1, scale: 2.826 },
      leadingDense: 2,
    }),
  },
  write(file, shape) {
    const { embedding, heads, headDim } = shape;
    writeCounts(file, shape, { ...sigmoidCounts(shape), "attention.sliding_window": shape.window });
    writeWeights(file, shape);
    writeReals(file, shape);
    writeEnds(file, shape);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      file.vector(`${block}.attn_norm.weight`, embedding);
      writeAttention(file, block, shape);
      file.matrix(`${block}.attn_gate`, embedding, heads * headDim);
      file.vector(`${block}.post_attention_norm.weight`, embedding, ...POST_NORM);
      file.vector(`${block}.ffn_norm.weight`, embedding);
      mixture(CHOICE_BIAS.large)(file, block, shape, layer);
      file.vector(`${block}.post_ffw_norm.weight`, embedding, ...POST_NORM);
    }
  },
};

interface Cohere2MoeShape extends MixtureShape {
  readonly logitScale: number;
  /** Number of tokens that a row attends to. The first layer of a period of four has no window. */
  readonly windowLength: number;
}

const NORTH = {
  layers: 6,
  heads: 8,
  kvHeads: 2,
  headDim: 64,
  ropeBase: 5e4,
  leadingDense: 1,
  logitScale: 0.75,
  windowLength: 40,
  // The published North does not divide the weights. Here they are divided, because otherwise near ties would dominate
  // the distances, also in llama.cpp.
  experts: { ...EXPERTS, shared: 0, divided: true },
};

const cohere2moe = (
  tiny: Omit<Partial<Cohere2MoeShape>, never>,
  real?: Readonly<Record<string, Cohere2MoeShape>>,
) =>
  decoder<Cohere2MoeShape>("cohere2moe", {
    tiny: { ...NORTH, ...tiny },
    real,
    counts: ({ experts, leadingDense = 0, windowLength, drafts = 0, ...rest }) => ({
      ...expertCounts(experts),
      ...experts.shared! > 0 && {
        expert_shared_count: experts.shared!,
        expert_shared_feed_forward_length: sharedWidth({ experts, ...rest }),
      },
      expert_gating_func: SIGMOID,
      leading_dense_block_count: leadingDense,
      "attention.sliding_window": windowLength,
      ...drafts > 0 && { nextn_predict_layers: drafts },
    }),
    afterCounts(file, { layers, experts }) {
      const pattern = Array.from({ length: layers }, (_, i) => i % 4 !== 0);
      file.keys("attention.sliding_window_pattern", "BOOL", pattern);
      file.key("expert_weights_norm", "BOOL", experts.divided!);
    },
    epsilon: 1e-5,
    after: (file, shape) => file.key("logit_scale", "FLOAT32", shape.logitScale),
    feedForward(file, block, shape, layer) {
      if (layer >= shape.layers) writeNextToken(file, block, shape.embedding);
      mixture()(file, block, shape, layer);
    },
    draft() {},
  });

interface GptOssShape extends DecoderShape {
  readonly experts: ExpertsShape;
  /** Number of tokens that a row attends to in every second layer. */
  readonly window: number;
  /** YaRN's scaling factor. */
  readonly factor: number;
}

const GPT_OSS: SynthModel<GptOssShape> = {
  tiny: {
    ...TINY,
    heads: 8,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 150_000,
    biases: true,
    untied: true,
    experts: { count: 10, used: 3, feedForward: 256 },
    window: 40,
    factor: 8,
  },
  real: {
    "gpt-oss-20b": published([2880, 2880, 24, 201_088, 131_072], [64, 8, 64], 150_000, {
      biases: true,
      untied: true,
      experts: { count: 32, used: 4, feedForward: 2880 },
      window: 128,
      factor: 32,
    }),
  },
  write(file, shape) {
    writeCounts(file, shape, { ...expertCounts(shape.experts), "attention.sliding_window": shape.window });
    writeReals(file, shape);
    file.key("rope.scaling.type", "STRING", "yarn");
    file.key("rope.scaling.factor", "FLOAT32", shape.factor);
    file.key("rope.scaling.original_context_length", "UINT32", shape.context / shape.factor);
    writeEnds(file, shape);
    for (let layer = 0; layer < shape.layers; layer++) writeLayer(file, `blk.${layer}`, shape);
  },
};

function writeLayer(file: SynthFile, block: string, shape: GptOssShape): void {
  const { embedding, experts: { count, feedForward } } = shape;
  file.vector(`${block}.attn_norm.weight`, embedding);
  writeAttention(file, block, shape);
  file.vector(`${block}.attn_output.bias`, embedding, 0);
  file.vector(`${block}.attn_sinks.weight`, shape.heads, 0, 2);
  file.vector(`${block}.post_attention_norm.weight`, embedding);
  writeExperts(file, block, embedding, shape.experts);
  file.vector(`${block}.ffn_gate_inp.bias`, count, 0, 1);
  const bias = (part: string, rows: number, spread: number) =>
    file.floats(`${block}.ffn_${part}_exps.bias`, [rows, count], (random) => spread * random.normal());
  // With these biases, some gates and gated values reach their clamps.
  bias("gate", feedForward, 4);
  bias("up", feedForward, 4);
  bias("down", embedding, 0.1);
}

/** Writes YaRN's keys. */
export function writeYarn(file: SynthFile, context: number, factor: number): void {
  file.key("rope.scaling.type", "STRING", "yarn");
  file.key("rope.scaling.factor", "FLOAT32", factor);
  file.key("rope.scaling.original_context_length", "UINT32", context / factor);
}
/** Whether a layer of MiMo V2 has a window, as 0 or 1: all layers but the first of each period of 4. */
const hasWindow = (_: unknown, layer: number) => Number(layer % 4 !== 0);

export const WINDOWED_MIXTURES = {
  "gpt-oss": GPT_OSS,
  afmoe: AFMOE,
  // The last layer has a window too. Tests run beyond YaRN's original context.
  mellum: decoder<MixtureShape & { readonly windowLength: number; readonly factor: number }>("mellum", {
    tiny: {
      layers: 5,
      heads: 4,
      kvHeads: 1,
      headDim: 64,
      ropeBase: 5e5,
      untied: true,
      experts: EXPERTS,
      windowLength: 40,
      factor: 8,
    },
    real: {
      "mellum2-12b-a2.5b": published([2304, 7168, 28, 98_304, 131_072], [32, 4, 128], 5e5, {
        untied: true,
        experts: { count: 64, used: 8, feedForward: 896 },
        windowLength: 1024,
        factor: 16,
      }),
    },
    before(file, { layers, windowLength, factor, context }) {
      file.key("attention.sliding_window", "UINT32", windowLength);
      const pattern = Array.from({ length: layers }, (_, i) => i % 4 !== 3);
      file.keys("attention.sliding_window_pattern", "BOOL", pattern);
      writeYarn(file, context, factor);
    },
    counts: ({ experts }) => expertCounts(experts),
    feedForward: mixture(),
  }),

  // K-EXAONE. The last layer has a window too.
  "exaone-moe": decoder<MixtureShape & { readonly window: number }>("exaone-moe", {
    tiny: {
      layers: 5,
      heads: 8,
      kvHeads: 2,
      headDim: 64,
      ropeBase: 1e6,
      untied: true,
      window: 40,
      experts: { count: 8, used: 2, feedForward: 256, shared: 2, scale: 1.25 },
      leadingDense: 1,
    },
    real: {
      "k-exaone-236b-a23b": published([6144, 18_432, 48, 153_600, 262_144], [64, 8, 128], 1e6, {
        untied: true,
        window: 128,
        experts: { count: 128, used: 8, feedForward: 2048, shared: 1, scale: 2.5 },
        leadingDense: 1,
        drafts: 1,
      }),
    },
    counts: (shape) => ({
      ...sigmoidCounts(shape),
      expert_shared_feed_forward_length: sharedWidth(shape),
    }),
    afterCounts(file, shape) {
      const pattern = Array.from({ length: shape.layers }, (_, i) => i % 4 !== 3);
      file.keys("attention.sliding_window_pattern", "BOOL", pattern);
      writeWeights(file, shape);
    },
    feedForward: mixture(CHOICE_BIAS.large),
    draft: (file, block, { embedding }) => writeNextToken(file, block, embedding),
  }),

  // The window's layers come after the first of each period. llama.cpp fixes the window at this length.
  smallthinker: decoder<MixtureShape & { readonly window: number }>("smallthinker", {
    tiny: {
      feedForward: 256,
      layers: 5,
      heads: 8,
      kvHeads: 2,
      headDim: 32,
      ropeBase: 1.5e6,
      window: 4096,
      experts: EXPERTS,
    },
    real: {
      "smallthinker-21b-a3b": published([2560, 768, 52, 151_936, 16_384], [28, 4, 128], 1.5e6, {
        window: 4096,
        experts: { count: 64, used: 6, feedForward: 768 },
      }),
    },
    counts: ({ experts }) => ({ ...expertCounts(experts), expert_gating_func: SIGMOID }),
    feedForward: mixture(),
  }),
  // Every second layer has experts. Chunks and the temperature of queries begin beyond the test's prompts, because
  // llama.cpp fixes their length.
  llama4: decoder<MixtureShape & { readonly interval: number }>("llama4", {
    tiny: {
      layers: 5,
      heads: 8,
      kvHeads: 2,
      headDim: 64,
      ropeBase: 5e5,
      ropeFactors: true,
      untied: true,
      interval: 2,
      experts: { count: 12, used: 1, feedForward: 256, shared: 1 },
    },
    real: {
      "llama-4-scout": published([5120, 16_384, 48, 202_048, 10_485_760], [40, 8, 128], 5e5, {
        ropeFactors: true,
        untied: true,
        interval: 1,
        experts: { count: 16, used: 1, feedForward: 8192, shared: 1 },
      }),
      "llama-4-maverick": published([5120, 16_384, 48, 202_048, 1_048_576], [40, 8, 128], 5e5, {
        untied: true,
        interval: 2,
        experts: { count: 128, used: 1, feedForward: 8192, shared: 1 },
      }),
    },
    counts: ({ experts, interval }) => ({ ...expertCounts(experts), interleave_moe_layer_step: interval }),
    feedForward(file, block, shape, layer) {
      const isDense = (layer + 1) % shape.interval !== 0;
      isDense ? writeFeedForward(file, block, shape) : mixture()(file, block, shape, layer);
    },
  }),
  // Layers with a window have more KV heads, and only they have sinks. The last layer has a window too.
  mimo2: decoder<MixtureShape & { readonly near: { kvHeads: number; ropeBase: number; valueScale: number } }>(
    "mimo2",
    {
      tiny: {
        layers: 5,
        heads: 8,
        kvHeads: 2,
        headDim: 96,
        valueDim: 64,
        rotated: 32,
        ropeBase: 5e6,
        untied: true,
        window: 40,
        near: { kvHeads: 4, ropeBase: 1e4, valueScale: 0.707 },
        experts: { count: 12, used: 3, feedForward: 256 },
        leadingDense: 1,
      },
      real: {
        "mimo-v2-flash": published([4096, 16_384, 48, 152_576, 262_144], [64, 4, 192], 5e6, {
          valueDim: 128,
          rotated: 64,
          untied: true,
          window: 128,
          near: { kvHeads: 8, ropeBase: 1e4, valueScale: 0.707 },
          experts: { count: 256, used: 8, feedForward: 2048 },
          leadingDense: 1,
        }),
      },
      counts: ({ experts }) => ({ ...expertCounts(experts), expert_gating_func: SIGMOID }),
      afterCounts(file, { layers, near }) {
        file.keys("attention.sliding_window_pattern", "INT32", Array.from({ length: layers }, hasWindow));
        file.key("rope.freq_base_swa", "FLOAT32", near.ropeBase);
        file.key("attention.value_scale", "FLOAT32", near.valueScale);
      },
      widths: ({ layers, heads, kvHeads, feedForward, near }) =>
        Array.from({ length: layers }, (_, layer) => {
          return { heads, kvHeads: hasWindow(_, layer) ? near.kvHeads : kvHeads, feedForward };
        }),
      feedForward(file, block, shape, layer) {
        if (hasWindow(undefined, layer)) file.vector(`${block}.attn_sinks.weight`, shape.heads, 0, 2);
        mixture(CHOICE_BIAS.large)(file, block, shape, layer);
      },
    },
  ),

  // Model like North Mini.
  cohere2moe: cohere2moe({}, {
    "north-mini-30b-a3b": published([2048, 3072, 49, 262_144, 500_000], [32, 4, 128], 5e4, {
      experts: { count: 128, used: 8, feedForward: 768, shared: 0, divided: false },
      leadingDense: 1,
      logitScale: 1,
      windowLength: 4096,
    }),
  }),
  // Model like Command A+.
  "cohere2moe-shared": cohere2moe({
    traits: { layerNorms: true },
    layers: 5,
    headDim: 32,
    experts: { ...EXPERTS, shared: 2, divided: true },
    leadingDense: 2,
  }),
};
