import { expertCounts, type ExpertsShape, writeExperts, writeSharedExpert } from "./decoder.ts";
import type { Family } from "./family.ts";
import type { SynthFile } from "./file.ts";
import { type DeltaShape, QWEN35, writeHybrid } from "./qwen35.ts";

export interface HybridMixtureShape extends DeltaShape {
  readonly experts: ExpertsShape;
  /** Width of the expert that all rows go through. */
  readonly shared: number;
}

export const QWEN35MOE: Family<HybridMixtureShape> = {
  tiny: { ...QWEN35.tiny, experts: { count: 12, used: 3, feedForward: 256 }, shared: 512 },
  real: {
    "qwen35moe-35b-a3b": {
      embedding: 2048,
      feedForward: 0,
      layers: 40,
      vocabulary: 248_320,
      context: 262_144,
      heads: 16,
      kvHeads: 2,
      headDim: 256,
      ropeBase: 1e7,
      headNorms: true,
      rotated: 64,
      untied: true,
      delta: { keyHeads: 16, valueHeads: 32, headDim: 128 },
      experts: { count: 256, used: 8, feedForward: 512 },
      shared: 512,
    },
  },
  write: writeHybridMixture,
};

export const QWEN3NEXT: Family<HybridMixtureShape> = {
  tiny: { ...QWEN35MOE.tiny, delta: { ...QWEN35MOE.tiny.delta, inGroups: true } },
  real: {
    "qwen3-next-80b-a3b": {
      embedding: 2048,
      feedForward: 5120,
      layers: 48,
      vocabulary: 151_936,
      context: 262_144,
      heads: 16,
      kvHeads: 2,
      headDim: 256,
      ropeBase: 1e7,
      headNorms: true,
      rotated: 64,
      untied: true,
      delta: { keyHeads: 16, valueHeads: 32, headDim: 128, inGroups: true },
      experts: { count: 512, used: 10, feedForward: 512 },
      shared: 512,
    },
  },
  write: writeHybridMixture,
};

function writeHybridMixture(file: SynthFile, shape: HybridMixtureShape): void {
  const { embedding, experts, shared } = shape;
  const counts = { ...expertCounts(experts), expert_shared_feed_forward_length: shared };
  writeHybrid(file, shape, counts, (block) => {
    writeExperts(file, block, embedding, experts);
    const gate = `${block}.ffn_gate_inp_shexp.weight`;
    file.floats(gate, [embedding], (random) => 0.1 * random.normal());
    writeSharedExpert(file, block, embedding, shared);
  });
}
