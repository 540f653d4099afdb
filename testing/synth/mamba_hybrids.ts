/** Hybrids of Mamba2 and attention: granitehybrid and nemotron_h, both dense and with experts, and falcon-h1. */
import {
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
  writeRouter,
  writeSharedExpert,
  writeUngatedExperts,
} from "./decoder.ts";
import { type Dimensions, type SynthModel, TINY } from "./model.ts";
import type { SynthFile } from "./file.ts";
import { type Multipliers, writeMultipliers } from "./granite.ts";
import { writeNextToken } from "./qwen35.ts";

export interface MambaShape {
  readonly heads: number;
  readonly headDim: number;
  readonly groups: number;
  readonly stateSize: number;
}

export interface MambaHybridShape extends DecoderShape {
  readonly mamba: MambaShape;
  /** Each layer's mixer, repeated: Mamba2 (M), attention (*), feed-forward (-) or experts (E). */
  readonly pattern: string;
  /** Extra layers that draft tokens, of attention and experts. */
  readonly drafts?: number;
}

export interface GraniteShape extends MambaHybridShape {
  /**
   * Factors on the embedding, on the output of attention and feed-forward blocks and on attention scores, and the
   * divisor of logits.
   */
  readonly multipliers: Multipliers;
  /** Whether attention has rotary positions. */
  readonly positions?: boolean;
  readonly experts?: ExpertsShape & { readonly shared: number };
}

/** Tiny shape of Granite's hybrid. llama.cpp requires twice as many channels as embedding columns. */
const GRANITE: GraniteShape = {
  ...TINY,
  layers: 6,
  heads: 4,
  kvHeads: 2,
  headDim: 64,
  ropeBase: 1e4,
  mamba: { heads: 16, headDim: 32, groups: 2, stateSize: 48 },
  pattern: "MM*",
  multipliers: { embedding: 2, residual: 0.8, attention: 0.2, logits: 1.25 },
};

const GRANITE_4 = {
  layers: 40,
  vocabulary: 100_352,
  context: 1 << 20,
  ropeBase: 1e4,
  pattern: "MMMMM*MMMM",
} as const;
const GRANITE_4_TINY: GraniteShape = {
  ...GRANITE_4,
  embedding: 1536,
  feedForward: 512,
  heads: 12,
  kvHeads: 4,
  headDim: 128,
  mamba: { heads: 48, headDim: 64, groups: 1, stateSize: 128 },
  multipliers: { embedding: 12, residual: 0.22, attention: 1 / 128, logits: 6 },
  experts: { count: 64, used: 6, feedForward: 512, shared: 1024 },
};

export const GRANITEHYBRID: SynthModel<GraniteShape> = {
  tiny: GRANITE,
  real: {
    "granite-4.0-h-1b": { ...GRANITE_4_TINY, feedForward: 4096, experts: undefined },
    "granite-4.0-h-micro": {
      ...GRANITE_4,
      embedding: 2048,
      feedForward: 8192,
      heads: 32,
      kvHeads: 8,
      headDim: 64,
      mamba: { heads: 64, headDim: 64, groups: 1, stateSize: 128 },
      multipliers: { embedding: 12, residual: 0.22, attention: 1 / 64, logits: 8 },
    },
  },
  write: writeGranite,
};

/** Granite's hybrid with experts and a shared expert; attention has positions. */
export const GRANITEHYBRID_MOE: SynthModel<GraniteShape> = {
  architecture: "granitehybrid",
  tiny: {
    ...GRANITE,
    positions: true,
    feedForward: 256,
    experts: { count: 10, used: 3, feedForward: 256, shared: 512 },
  },
  real: { "granite-4.0-h-tiny": GRANITE_4_TINY },
  write: writeGranite,
};

/** Model with Mamba2 in every layer, without attention and feed-forward blocks. */
export const MAMBA2: SynthModel<Dimensions & { readonly mamba: MambaShape }> = {
  tiny: { ...TINY, feedForward: 0, mamba: { heads: 16, headDim: 32, groups: 2, stateSize: 48 } },
  real: {
    "mamba2-130m": {
      embedding: 768,
      feedForward: 0,
      layers: 24,
      vocabulary: 50_288,
      context: 1 << 20,
      mamba: { heads: 24, headDim: 64, groups: 1, stateSize: 128 },
    },
  },
  write(file, { embedding, layers, vocabulary, context, mamba }) {
    file.counts({
      block_count: layers,
      context_length: context,
      embedding_length: embedding,
      feed_forward_length: 0,
      "attention.head_count": 0,
      vocab_size: vocabulary,
      ...mambaCounts(mamba),
    });
    file.key("attention.layer_norm_rms_epsilon", "FLOAT32", 1e-5);
    writeEnds(file, { embedding, vocabulary });
    for (let layer = 0; layer < layers; layer++) {
      file.vector(`blk.${layer}.attn_norm.weight`, embedding);
      writeMamba(file, `blk.${layer}`, embedding, mamba);
    }
  },
};

/** Model with Mamba2 and attention in every layer. Mamba2's output is not normed. */
export const FALCON_H1: SynthModel<DecoderShape & { readonly mamba: MambaShape }> = {
  tiny: {
    ...TINY,
    heads: 8,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e11,
    untied: true,
    mamba: { heads: 12, headDim: 64, groups: 2, stateSize: 48 },
  },
  real: {
    "falcon-h1-0.5b": published([1024, 2048, 36, 32_784, 16_384], [8, 2, 64], 1e11, {
      untied: true,
      mamba: { heads: 24, headDim: 64, groups: 1, stateSize: 128 },
    }),
    "falcon-h1-7b": published([3072, 12_288, 44, 130_049, 1 << 18], [12, 2, 128], 1e11, {
      untied: true,
      mamba: { heads: 24, headDim: 128, groups: 1, stateSize: 256 },
    }),
  },
  write(file, shape) {
    writeCounts(file, shape, mambaCounts(shape.mamba));
    writeReals(file, shape);
    writeEnds(file, shape);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      file.vector(`${block}.attn_norm.weight`, shape.embedding);
      writeAttention(file, block, shape);
      writeMamba(file, block, shape.embedding, shape.mamba, false);
      file.vector(`${block}.ffn_norm`, shape.embedding);
      writeFeedForward(file, block, shape);
    }
  },
};

export const NEMOTRON_H: SynthModel<MambaHybridShape> = {
  tiny: {
    ...TINY,
    layers: 6,
    heads: 16,
    kvHeads: 4,
    headDim: 48,
    ropeBase: 1e4,
    mamba: { heads: 16, headDim: 48, groups: 4, stateSize: 32 },
    pattern: "M-M*-M",
  },
  real: {
    "nemotron-nano-9b-v2": published([4480, 15_680, 56, 131_072, 131_072], [40, 8, 128], 1e4, {
      mamba: { heads: 128, headDim: 80, groups: 8, stateSize: 128 },
      pattern: "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
      untied: true,
    }),
  },
  write: writeNemotron,
};

interface NemotronMoeShape extends MambaHybridShape {
  readonly experts: ExpertsShape & {
    readonly shared: number;
    readonly scale: number;
    /** Width of the routed experts' input and output, if it differs from the embedding's width. */
    readonly latent?: number;
  };
}

export const NEMOTRON_H_MOE: SynthModel<NemotronMoeShape> = {
  tiny: {
    ...TINY,
    layers: 6,
    feedForward: 256,
    heads: 16,
    kvHeads: 4,
    headDim: 48,
    ropeBase: 1e4,
    mamba: { heads: 16, headDim: 48, groups: 4, stateSize: 32 },
    pattern: "MEM*EE",
    experts: { count: 12, used: 3, feedForward: 256, shared: 512, scale: 2.5, latent: 512 },
  },
  real: {
    "nemotron-3-nano-30b-a3b": published([2688, 1856, 52, 131_072, 1 << 18], [32, 2, 128], 1e4, {
      mamba: { heads: 64, headDim: 64, groups: 8, stateSize: 128 },
      pattern: "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
      untied: true,
      experts: { count: 128, used: 6, feedForward: 1856, shared: 3712, scale: 2.5 },
    }),
  },
  write(file, shape) {
    const { experts } = shape;
    file.counts({
      ...expertCounts(experts),
      expert_shared_feed_forward_length: experts.shared,
      expert_shared_count: 1,
      expert_group_count: 1,
      ...experts.latent && { moe_latent_size: experts.latent },
    });
    file.key("expert_weights_norm", "BOOL", true);
    file.key("expert_weights_scale", "FLOAT32", experts.scale);
    writeNemotron(file, shape);
  },
};

function writeNemotron(file: SynthFile, shape: MambaHybridShape & Partial<NemotronMoeShape>): void {
  const mixers = writeKeys(file, shape);
  const widths = mixers.map((mixer) => ["-", "E", DRAFT].includes(mixer) ? shape.feedForward : 0);
  file.keys("feed_forward_length", "UINT32", widths);
  // llama.cpp requires this key too, for its drafting layers.
  file.key("attention.layer_norm_epsilon", "FLOAT32", 1e-6);
  writeEnds(file, shape);
  for (const [layer, mixer] of mixers.entries()) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, shape.embedding);
    if (mixer === "-") writeUngated(file, block, shape.embedding, shape.feedForward);
    else if (mixer === "E") writeNemotronExperts(file, block, shape.embedding, shape.experts!);
    else writeMixer(file, block, shape, mixer);
    if (mixer !== DRAFT) continue;
    file.vector(`${block}.post_attention_norm.weight`, shape.embedding);
    writeNemotronExperts(file, block, shape.embedding, shape.experts!);
    writeNextToken(file, block, shape.embedding);
  }
}

function writeUngated(file: SynthFile, block: string, embedding: number, width: number, suffix = ""): void {
  file.matrix(`${block}.ffn_up${suffix}`, embedding, width);
  file.matrix(`${block}.ffn_down${suffix}`, width, embedding);
}

function writeNemotronExperts(
  file: SynthFile,
  block: string,
  embedding: number,
  experts: NemotronMoeShape["experts"],
): void {
  const { count, latent, shared } = experts;
  writeRouter(file, block, embedding, count);
  file.vector(`${block}.exp_probs_b.bias`, count, 0, 0.2);
  if (latent) {
    file.matrix(`${block}.ffn_latent_down`, embedding, latent);
    file.matrix(`${block}.ffn_latent_up`, latent, embedding);
  }
  writeUngatedExperts(file, block, latent ?? embedding, experts);
  writeUngated(file, block, embedding, shared, "_shexp");
}

function writeGranite(file: SynthFile, shape: GraniteShape): void {
  const mixers = writeKeys(file, shape);
  const { experts, multipliers } = shape;
  file.counts({ feed_forward_length: shape.feedForward });
  if (experts) {
    const { expert_count, expert_used_count } = expertCounts(experts);
    file.counts({ expert_count, expert_used_count, expert_shared_feed_forward_length: experts.shared });
  }
  writeMultipliers(file, multipliers);
  file.key("rope.scaling.finetuned", "BOOL", shape.positions ?? false);
  writeEnds(file, shape);
  for (const [layer, mixer] of mixers.entries()) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, shape.embedding);
    writeMixer(file, block, shape, mixer);
    file.vector(`${block}.ffn_norm.weight`, shape.embedding);
    if (!experts) {
      writeFeedForward(file, block, shape);
      continue;
    }
    writeExperts(file, block, shape.embedding, experts);
    writeSharedExpert(file, block, shape.embedding, experts.shared);
  }
}

/** Mixers of a layer that drafts. */
const DRAFT = "*E";

/** Writes the keys of both families. Returns each layer's mixer. */
function writeKeys(file: SynthFile, shape: MambaHybridShape): string[] {
  const { mamba, pattern, drafts = 0 } = shape;
  const mixers = Array.from({ length: shape.layers }, (_, i) => pattern[i % pattern.length]);
  mixers.push(...Array<string>(drafts).fill(DRAFT));
  file.counts({
    block_count: mixers.length,
    context_length: shape.context,
    embedding_length: shape.embedding,
    "attention.head_count": shape.heads,
    "attention.key_length": shape.headDim,
    "attention.value_length": shape.headDim,
    "rope.dimension_count": shape.headDim,
    vocab_size: shape.vocabulary,
    ...mambaCounts(mamba),
    ...drafts > 0 && { nextn_predict_layers: drafts },
  });
  const kvHeads = mixers.map((mixer) => mixer.startsWith("*") ? shape.kvHeads : 0);
  file.keys("attention.head_count_kv", "UINT32", kvHeads);
  writeReals(file, shape);
  return mixers;
}

function mambaCounts({ heads, headDim, groups, stateSize }: MambaShape): Record<string, number> {
  return {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": heads * headDim,
    "ssm.state_size": stateSize,
    "ssm.time_step_rank": heads,
    "ssm.group_count": groups,
  };
}

function writeMixer(file: SynthFile, block: string, shape: MambaHybridShape, mixer: string): void {
  if (mixer.startsWith("*")) writeAttention(file, block, shape);
  else writeMamba(file, block, shape.embedding, shape.mamba);
}

function writeMamba(
  file: SynthFile,
  block: string,
  embedding: number,
  { heads, headDim, groups, stateSize }: MambaShape,
  normed = true,
): void {
  const inner = heads * headDim;
  const channels = inner + 2 * groups * stateSize;
  file.matrix(`${block}.ssm_in`, embedding, inner + channels + heads);
  file.floats(`${block}.ssm_conv1d.weight`, [4, channels], (random) => 0.4 * random.normal());
  file.vector(`${block}.ssm_conv1d.bias`, channels, 0, 0.2);
  // With these biases, some heads keep their state for long, and others forget it within a few tokens.
  file.vector(`${block}.ssm_dt.bias`, heads, -1, 0.7);
  file.floats(`${block}.ssm_a`, [1, heads], (random) => -Math.exp(0.8 * random.normal()));
  file.floats(`${block}.ssm_d`, [1, heads], (random) => 1 + 0.3 * random.normal());
  if (normed) {
    file.floats(`${block}.ssm_norm.weight`, [inner / groups, groups], (random) => 1 + 0.1 * random.normal());
  }
  file.matrix(`${block}.ssm_out`, inner, embedding);
}
