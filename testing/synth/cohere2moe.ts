/** Cohere's mixtures of experts. */
import {
  type DecoderShape,
  expertCounts,
  type ExpertsShape,
  writeAttention,
  writeCounts,
  writeEnds,
  writeExperts,
  writeFeedForward,
  writeSharedExpert,
} from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";
import { writeNextToken } from "./qwen35.ts";

interface Cohere2MoeShape extends DecoderShape {
  /** `shared` are those that all rows go through. */
  readonly experts: ExpertsShape & { readonly shared: number; readonly divided: boolean };
  readonly leadingDense: number;
  /** Norms are about the mean, and not RMSNorm. */
  readonly layerNorm?: boolean;
  readonly logitScale: number;
  /** Tokens that a row sees, but for the first and then every fourth layer's. */
  readonly window: number;
  /** Layers behind the others that draft tokens; by default none. */
  readonly drafts?: number;
}

/** North Mini: RMSNorm, and no experts that all rows go through. */
export const COHERE2MOE: Family<Cohere2MoeShape> = {
  tiny: {
    ...TINY,
    layers: 6,
    heads: 8,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 5e4,
    // North's own are not divided: a rounding that turns a near tie then moves seeded answers more than all else, here and in llama.cpp.
    experts: { count: 12, used: 3, feedForward: 256, shared: 0, divided: true },
    leadingDense: 1,
    logitScale: 0.75,
    window: 40,
  },
  real: {
    "north-mini-30b-a3b": {
      embedding: 2048,
      feedForward: 3072,
      layers: 49,
      vocabulary: 262_144,
      context: 500_000,
      heads: 32,
      kvHeads: 4,
      headDim: 128,
      ropeBase: 5e4,
      experts: { count: 128, used: 8, feedForward: 768, shared: 0, divided: false },
      leadingDense: 1,
      logitScale: 1,
      window: 4096,
    },
  },
  write,
};

/** Command A+'s kind: LayerNorm, and experts that all rows go through. */
export const COHERE2MOE_SHARED: Family<Cohere2MoeShape> = {
  architecture: "cohere2moe",
  tiny: {
    ...COHERE2MOE.tiny,
    layers: 5,
    headDim: 32,
    layerNorm: true,
    experts: { count: 12, used: 3, feedForward: 256, shared: 2, divided: true },
    leadingDense: 2,
  },
  write,
};

function write(file: SynthFile, shape: Cohere2MoeShape): void {
  const { embedding, layers, experts, drafts = 0 } = shape;
  writeKeys(file, shape);
  writeEnds(file, shape);
  for (let layer = 0; layer < layers + drafts; layer++) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, embedding);
    writeAttention(file, block, shape);
    if (layer >= layers) writeNextToken(file, block, embedding);
    if (layer < shape.leadingDense) {
      writeFeedForward(file, block, shape);
      continue;
    }
    writeExperts(file, block, embedding, experts);
    if (experts.shared > 0) writeSharedExpert(file, block, embedding, experts.shared * experts.feedForward);
  }
}

function writeKeys(file: SynthFile, shape: Cohere2MoeShape): void {
  const { experts, layers, drafts = 0 } = shape;
  writeCounts(file, { ...shape, layers: layers + drafts }, {
    ...expertCounts(experts),
    ...experts.shared > 0 && {
      expert_shared_count: experts.shared,
      expert_shared_feed_forward_length: experts.shared * experts.feedForward,
    },
    expert_gating_func: 2,
    leading_dense_block_count: shape.leadingDense,
    "attention.sliding_window": shape.window,
    ...drafts > 0 && { nextn_predict_layers: drafts },
  });
  file.keys(
    "attention.sliding_window_pattern",
    "BOOL",
    Array.from({ length: layers }, (_, i) => i % 4 !== 0),
  );
  file.key("expert_weights_norm", "BOOL", experts.divided);
  file.key("rope.freq_base", "FLOAT32", shape.ropeBase);
  file.key(`attention.layer_norm_${shape.layerNorm ? "" : "rms_"}epsilon`, "FLOAT32", 1e-5);
  file.key("logit_scale", "FLOAT32", shape.logitScale);
}
