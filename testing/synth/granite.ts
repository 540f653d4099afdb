/** Seeded models of Granite's decoders. */
import {
  decoder,
  type DecoderShape,
  type ExpertsShape,
  published,
  writeExperts,
  writeFeedForward,
  writeRouter,
  writeSharedExpert,
} from "./decoder.ts";
import type { SynthFile } from "./file.ts";

type Experts = ExpertsShape & { readonly shared: number };

interface WindowedShape extends DecoderShape {
  readonly experts?: Experts;
}

/** Returns Granite's model with windows. The first layer of a period of four has none, and no positions. */
function withWindows(tiny: Partial<WindowedShape>, real?: Readonly<Record<string, WindowedShape>>) {
  return decoder<WindowedShape>("granite_swa", {
    tiny: { heads: 8, kvHeads: 2, headDim: 32, ropeBase: 1e4, window: 40, ...tiny },
    real,
    // The multipliers differ from the published ones, with which seeded heads would attend to all tokens almost
    // equally.
    before: (file) => writeMultipliers(file, { embedding: 3, residual: 0.7, attention: 0.5, logits: 0.8 }),
    counts: ({ experts }): Record<string, number> =>
      experts ? { ...graniteCounts(experts), expert_shared_feed_forward_length: experts.shared } : {},
    afterCounts(file, { layers }) {
      const slides = Array.from({ length: layers }, (_, i) => i % 4 !== 0);
      file.keys("attention.sliding_window_pattern", "BOOL", slides);
      file.keys("attention.rope_pattern", "BOOL", slides);
    },
    feedForward(file, block, shape) {
      if (shape.experts) writeFusedExperts(file, block, shape.embedding, shape.experts);
      else writeFeedForward(file, block, shape);
    },
  });
}

function graniteCounts({ count, used }: Experts): Record<string, number> {
  return { expert_count: count, expert_used_count: used };
}

export const GRANITES = {
  granite: decoder("granite", {
    checkpoint: {
      embedding_multiplier: 12,
      residual_multiplier: 0.22,
      attention_multiplier: 1 / 32,
      logits_scaling: 8,
    },
    tiny: { heads: 8, kvHeads: 2, headDim: 32, ropeBase: 1e7 },
    real: { "granite-3.3-2b": published([2048, 8192, 40, 49_159, 131_072], [32, 8, 64], 1e7) },
    before: (file, shape) => writeMultipliers(file, multipliers(shape)),
  }),
  // The feed-forward key gives the experts' width.
  granitemoe: decoder<DecoderShape & { readonly experts: Experts }>("granitemoe", {
    tiny: {
      feedForward: 256,
      heads: 8,
      kvHeads: 2,
      headDim: 32,
      ropeBase: 1e4,
      experts: { count: 10, used: 3, feedForward: 256, shared: 512 },
    },
    real: {
      "granite-3.1-3b-a800m": published([1536, 512, 32, 49_155, 131_072], [24, 8, 64], 1e7, {
        experts: { count: 40, used: 8, feedForward: 512, shared: 0 },
      }),
    },
    before: (file, shape) => writeMultipliers(file, multipliers(shape)),
    counts: ({ experts }) => ({
      ...graniteCounts(experts),
      ...experts.shared > 0 && { expert_shared_feed_forward_length: experts.shared },
    }),
    feedForward(file, block, { embedding, experts }) {
      writeExperts(file, block, embedding, experts);
      if (experts.shared > 0) writeSharedExpert(file, block, embedding, experts.shared);
    },
  }),
  granite_swa: withWindows({ layers: 6 }, {
    "granite-swash-2b": published([2560, 8192, 24, 100_352, 8192], [20, 4, 128], 1e4, { window: 128 }),
  }),
  granite_swa_moe: withWindows({
    feedForward: 256,
    layers: 5,
    experts: { count: 10, used: 3, feedForward: 256, shared: 512 },
  }),
};

/** Writes experts whose gate and up are one tensor, and a shared expert like them. */
function writeFusedExperts(
  file: SynthFile,
  block: string,
  embedding: number,
  { count, feedForward, shared }: ExpertsShape & { readonly shared: number },
): void {
  writeRouter(file, block, embedding, count);
  file.matrix(`${block}.ffn_gate_up_exps`, embedding, 2 * feedForward, count);
  file.matrix(`${block}.ffn_down_exps`, feedForward, embedding, count);
  file.matrix(`${block}.ffn_up_shexp`, embedding, 2 * shared);
  file.matrix(`${block}.ffn_down_shexp`, shared, embedding);
}

/** Factors on the embedding, on residual additions and on attention scores, and the divisor of logits. */
export interface Multipliers {
  readonly embedding: number;
  readonly residual: number;
  readonly attention: number;
  readonly logits: number;
}

/** Returns the published multipliers for the given head size. */
const multipliers = ({ headDim }: DecoderShape): Multipliers => {
  return { embedding: 12, residual: 0.22, attention: 1 / headDim, logits: 8 };
};

export function writeMultipliers(file: SynthFile, m: Multipliers): void {
  file.key("embedding_scale", "FLOAT32", m.embedding);
  file.key("residual_scale", "FLOAT32", m.residual);
  file.key("attention.scale", "FLOAT32", m.attention);
  file.key("logit_scale", "FLOAT32", m.logits);
}
