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
  writeSharedExpert,
} from "./decoder.ts";
import { type SynthModel, TINY } from "./model.ts";
import type { SynthFile } from "./file.ts";

/** Shape of a hybrid: three of four layers are Gated DeltaNet, and attention has output gates. */
export interface DeltaShape extends DecoderShape {
  /** Number of extra layers that draft tokens. */
  readonly drafts?: number;
  readonly delta: DeltaHeads;
}

interface DeltaHeads {
  readonly keyHeads: number;
  readonly valueHeads: number;
  readonly headDim: number;
  /** Whether value heads that share a key head are adjacent, with their betas and alphas in one matrix. */
  readonly inGroups?: boolean;
}

export const QWEN35: SynthModel<DeltaShape> = {
  tiny: {
    ...TINY,
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 1e7,
    headNorms: true,
    rotated: 16,
    delta: { keyHeads: 2, valueHeads: 8, headDim: 32 },
    layers: 8,
  },
  real: {
    "qwen3.5-0.8b": published([1024, 3584, 24, 248_320, 262_144], [8, 2, 256], 1e7, {
      headNorms: true,
      rotated: 64,
      delta: { keyHeads: 16, valueHeads: 16, headDim: 128 },
      drafts: 1,
    }),
    "qwen3.5-4b": published([2560, 9216, 32, 248_320, 262_144], [16, 4, 256], 1e7, {
      headNorms: true,
      rotated: 64,
      delta: { keyHeads: 16, valueHeads: 32, headDim: 128 },
      drafts: 1,
    }),
  },
  write(file, shape) {
    writeHybrid(file, shape, {}, (block) => writeFeedForward(file, block, shape));
  },
};

/** Writes the hybrid's keys and tensors. `feedForward` writes each layer's feed-forward block. */
function writeHybrid(
  file: SynthFile,
  shape: DeltaShape,
  more: Readonly<Record<string, number>>,
  feedForward: (block: string) => void,
): void {
  const { layers, drafts = 0 } = shape;
  writeCounts(file, { ...shape, layers: layers + drafts }, {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": shape.delta.valueHeads * shape.delta.headDim,
    "ssm.state_size": shape.delta.headDim,
    "ssm.time_step_rank": shape.delta.valueHeads,
    "ssm.group_count": shape.delta.keyHeads,
    full_attention_interval: 4,
    ...drafts > 0 && { nextn_predict_layers: drafts },
    ...more,
  });
  if (!shape.delta.inGroups) {
    file.keys("rope.dimension_sections", "INT32", sections((shape.rotated ?? shape.headDim) / 2));
  }
  writeReals(file, shape);
  writeEnds(file, shape);
  for (let layer = 0; layer < layers + drafts; layer++) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, shape.embedding);
    if (layer >= layers || (layer + 1) % 4 === 0) writeAttention(file, block, shape, 2 * shape.heads);
    else writeDeltaNet(file, block, shape);
    file.vector(`${block}.post_attention_norm.weight`, shape.embedding);
    feedForward(block);
    if (layer >= layers) writeNextToken(file, block, shape.embedding);
  }
}

/** Writes the additional tensors of a drafting layer. `norm` is the one before the output matrix. */
export function writeNextToken(
  file: SynthFile,
  block: string,
  embedding: number,
  norm = "nextn.shared_head_norm",
): void {
  file.matrix(`${block}.nextn.eh_proj`, 2 * embedding, embedding);
  for (const norm of ["enorm", "hnorm"]) file.vector(`${block}.nextn.${norm}.weight`, embedding);
  // Spreads the logits, like the output norm.
  file.vector(`${block}.${norm}.weight`, embedding, 6);
}

/** Returns the sections of rotated pairs: thirds, and none for the fourth. */
function sections(pairs: number): number[] {
  return [0, 1, 2].map((i) => Math.ceil((pairs - i) / 3)).concat(0);
}

function writeDeltaNet(file: SynthFile, block: string, { embedding, delta }: DeltaShape): void {
  const { keyHeads, valueHeads, headDim, inGroups } = delta;
  const channels = (2 * keyHeads + valueHeads) * headDim;
  file.matrix(`${block}.attn_qkv`, embedding, channels);
  file.matrix(`${block}.attn_gate`, embedding, valueHeads * headDim);
  const taps = `${block}.ssm_conv1d.weight`;
  file.floats(taps, [4, channels], (random) => 0.4 * random.normal(), `${block}.conv`);
  file.vector(`${block}.ssm_dt.bias`, valueHeads, 0, 0.5);
  file.vector(`${block}.ssm_a`, valueHeads, -1, 0.3);
  if (inGroups) file.matrix(`${block}.ssm_ba`, embedding, 2 * valueHeads);
  else for (const name of ["ssm_alpha", "ssm_beta"]) file.matrix(`${block}.${name}`, embedding, valueHeads);
  file.vector(`${block}.ssm_norm.weight`, headDim);
  file.matrix(`${block}.ssm_out`, valueHeads * headDim, embedding);
}

export interface HybridMixtureShape extends DeltaShape {
  readonly experts: ExpertsShape;
  /** Width of the shared expert in a mixture. */
  readonly shared: number;
}

export const QWEN35MOE: SynthModel<HybridMixtureShape> = {
  tiny: { ...QWEN35.tiny, experts: { count: 12, used: 3, feedForward: 256 }, shared: 512 },
  real: {
    "qwen35moe-35b-a3b": published([2048, 0, 40, 248_320, 262_144], [16, 2, 256], 1e7, {
      headNorms: true,
      rotated: 64,
      untied: true,
      delta: { keyHeads: 16, valueHeads: 32, headDim: 128 },
      experts: { count: 256, used: 8, feedForward: 512 },
      shared: 512,
    }),
  },
  write: writeHybridMixture,
};

export const QWEN3NEXT: SynthModel<HybridMixtureShape> = {
  tiny: { ...QWEN35MOE.tiny, delta: { ...QWEN35MOE.tiny.delta, inGroups: true } },
  real: {
    "qwen3-next-80b-a3b": published([2048, 5120, 48, 151_936, 262_144], [16, 2, 256], 1e7, {
      headNorms: true,
      rotated: 64,
      untied: true,
      delta: { keyHeads: 16, valueHeads: 32, headDim: 128, inGroups: true },
      experts: { count: 512, used: 10, feedForward: 512 },
      shared: 512,
    }),
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
