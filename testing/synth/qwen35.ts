import {
  type DecoderShape,
  writeAttention,
  writeCounts,
  writeEnds,
  writeFeedForward,
  writeReals,
} from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";

/** Three layers of four are Gated DeltaNet, and attention has output gates. */
export interface DeltaShape extends DecoderShape {
  /** Layers behind the others that draft tokens; by default none. */
  readonly drafts?: number;
  readonly delta: DeltaHeads;
}

interface DeltaHeads {
  readonly keyHeads: number;
  readonly valueHeads: number;
  readonly headDim: number;
  /** Value heads of a key head stand side by side, and so do their betas and alphas, in one matrix. */
  readonly inGroups?: boolean;
}

export const QWEN35: Family<DeltaShape> = {
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
    "qwen3.5-0.8b": {
      embedding: 1024,
      feedForward: 3584,
      layers: 24,
      vocabulary: 248_320,
      context: 262_144,
      heads: 8,
      kvHeads: 2,
      headDim: 256,
      ropeBase: 1e7,
      headNorms: true,
      rotated: 64,
      delta: { keyHeads: 16, valueHeads: 16, headDim: 128 },
      drafts: 1,
    },
  },
  write(file, shape) {
    writeHybrid(file, shape, {}, (block) => writeFeedForward(file, block, shape));
  },
};

/** The hybrid's keys and tensors; `feedForward` writes the second half of each layer. */
export function writeHybrid(
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

/** What a layer that drafts has beside another's tensors. */
export function writeNextToken(file: SynthFile, block: string, embedding: number): void {
  file.matrix(`${block}.nextn.eh_proj`, 2 * embedding, embedding);
  for (const norm of ["enorm", "hnorm"]) file.vector(`${block}.nextn.${norm}.weight`, embedding);
  // Spreads the logits, as the output's norm does.
  file.vector(`${block}.nextn.shared_head_norm.weight`, embedding, 6);
}

/** Thirds of the rotated pairs; the last of the four takes none. */
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
