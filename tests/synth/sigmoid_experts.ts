import {
  type DecoderShape,
  expertCounts,
  type ExpertsShape,
  writeAttention,
  writeCounts,
  writeEnds,
  writeExperts,
  writeFeedForward,
  writeReals,
  writeSharedExpert,
} from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";
import { writeNextToken } from "./qwen35.ts";

/** Experts behind the first layers, weighed by sigmoids, and beside them some that all rows go through. */
interface SigmoidExpertsShape extends DecoderShape {
  readonly experts: ExpertsShape & { readonly shared: number; readonly scale: number };
  readonly leadingDense: number;
  /** Layers behind the others that draft tokens; by default none. */
  readonly drafts?: number;
}

/** The 355B's kind of heads, which are normed. */
export const GLM4MOE: Family<SigmoidExpertsShape> = {
  tiny: {
    ...TINY,
    heads: 8,
    kvHeads: 2,
    headDim: 64,
    rotated: 32,
    ropeBase: 1e6,
    untied: true,
    biases: true,
    headNorms: true,
    experts: { count: 12, used: 3, feedForward: 256, shared: 2, scale: 2.5 },
    leadingDense: 1,
  },
  real: {
    "glm-4.5-air": {
      embedding: 4096,
      feedForward: 10_944,
      layers: 46,
      vocabulary: 151_552,
      context: 131_072,
      heads: 96,
      kvHeads: 8,
      headDim: 128,
      rotated: 64,
      ropeBase: 1e6,
      untied: true,
      biases: true,
      experts: { count: 128, used: 8, feedForward: 1408, shared: 1, scale: 1 },
      leadingDense: 1,
      drafts: 1,
    },
  },
  write(file, shape) {
    const { embedding } = shape;
    writeKeys(file, shape, {});
    for (let layer = 0; layer < shape.layers + (shape.drafts ?? 0); layer++) {
      const block = `blk.${layer}`;
      file.vector(`${block}.attn_norm.weight`, embedding);
      writeAttention(file, block, shape);
      file.vector(`${block}.post_attention_norm.weight`, embedding);
      writeHalf(file, layer, shape, shape.experts.feedForward);
      if (layer >= shape.layers) writeNextToken(file, block, embedding);
    }
  },
};

function writeKeys(
  file: SynthFile,
  shape: SigmoidExpertsShape,
  more: Readonly<Record<string, number>>,
): void {
  const { experts, layers, leadingDense, drafts = 0 } = shape;
  writeCounts(file, { ...shape, layers: layers + drafts }, {
    ...expertCounts(experts),
    expert_shared_count: experts.shared,
    expert_gating_func: 2,
    leading_dense_block_count: leadingDense,
    ...drafts > 0 && { nextn_predict_layers: drafts },
    ...more,
  });
  file.key("expert_weights_norm", "BOOL", true);
  file.key("expert_weights_scale", "FLOAT32", experts.scale);
  writeReals(file, shape);
  writeEnds(file, shape);
}

/** A layer's feed-forward half; each shared expert is `sharedWidth` wide. */
function writeHalf(file: SynthFile, layer: number, shape: SigmoidExpertsShape, sharedWidth: number): void {
  const { embedding, experts, leadingDense } = shape;
  const block = `blk.${layer}`;
  if (layer < leadingDense) return writeFeedForward(file, block, shape);
  writeExperts(file, block, embedding, experts);
  file.vector(`${block}.exp_probs_b.bias`, experts.count, 0, 0.1);
  writeSharedExpert(file, block, embedding, experts.shared * sharedWidth);
}
