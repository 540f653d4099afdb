/** Seeded hybrids of Kimi Delta Attention and latent attention. */
import type { SynthFile } from "../file.ts";
import { CHOICE_BIAS } from "../mixtures.ts";
import { type LatentShape, writeLatent, writeLatentAttention } from "./latent.ts";
import { type SynthModel, TINY } from "../model.ts";

interface KimiShape extends LatentShape {
  /** Head size of Kimi Delta Attention. */
  readonly deltaDim: number;
  /** Layers per period. The last layer of a period has latent attention. */
  readonly period: number;
  /** Lower bound of decays' logarithms. Such models have a gate per head, and make decays and gates in one step. */
  readonly bound?: number;
}

const KIMI_TINY = {
  ...TINY,
  layers: 3,
  heads: 4,
  rank: 256,
  plain: 256,
  rotated: 32,
  valueLength: 64,
  ropeBase: 1e4,
  untied: true,
  experts: { count: 12, used: 3, feedForward: 256, shared: 1, scale: 1.5 },
  sigmoid: true,
  leadingDense: 1,
  deltaDim: 64,
  period: 2,
};

export const KIMI_LINEAR: SynthModel<KimiShape> = {
  tiny: KIMI_TINY,
  real: {
    "kimi-linear-48b-a3b": {
      embedding: 2304,
      feedForward: 9216,
      layers: 27,
      vocabulary: 163_840,
      context: 1_048_576,
      heads: 32,
      rank: 512,
      plain: 128,
      rotated: 64,
      valueLength: 128,
      ropeBase: 1e4,
      untied: true,
      experts: { count: 256, used: 8, feedForward: 1024, shared: 1, scale: 2.446 },
      sigmoid: true,
      leadingDense: 1,
      deltaDim: 128,
      period: 4,
    },
  },
  write,
};

/** Model like Ling 3.0. */
export const BAILINGMOE3: SynthModel<KimiShape> = {
  // The bias keeps rounding from choosing other experts.
  tiny: { ...KIMI_TINY, choiceBias: CHOICE_BIAS.large, bound: -5 },
  real: {
    "ling-3.0-flash": {
      embedding: 2560,
      feedForward: 6144,
      layers: 42,
      vocabulary: 157_184,
      context: 262_144,
      heads: 32,
      rank: 512,
      plain: 128,
      rotated: 64,
      valueLength: 128,
      ropeBase: 6e6,
      untied: true,
      experts: { count: 512, used: 8, feedForward: 768, shared: 1, scale: 2.5 },
      sigmoid: true,
      leadingDense: 2,
      deltaDim: 128,
      period: 6,
      bound: -5,
    },
  },
  write,
};

function write(file: SynthFile, shape: KimiShape): void {
  const { embedding, heads, bound, deltaDim } = shape;
  const isLatent = (layer: number) => (layer + 1) % shape.period === 0;
  writeLatent(file, shape, {
    kvHeads: Array.from({ length: shape.layers }, (_, layer) => Number(isLatent(layer))),
    keys(file) {
      file.counts({ "ssm.conv_kernel": 4, "kda.head_dim": deltaDim });
      if (bound === undefined) return;
      file.key("kda.safe_gate", "BOOL", true);
      file.key("kda.gate_lower_bound", "FLOAT32", bound);
    },
    attention(file, block, layer) {
      if (!isLatent(layer)) return writeDeltaAttention(file, block, shape);
      writeLatentAttention(file, block, shape);
      if (bound !== undefined) file.matrix(`${block}.attn_gate`, embedding, heads);
    },
  });
}

function writeDeltaAttention(
  file: SynthFile,
  block: string,
  { embedding, heads, deltaDim, bound }: KimiShape,
): void {
  const inner = heads * deltaDim;
  for (const part of ["q", "k", "v"]) {
    file.matrix(`${block}.attn_${part}`, embedding, inner);
    const taps = `${block}.ssm_conv1d_${part}.weight`;
    file.floats(taps, [4, 1, inner, 1], (random) => 0.4 * random.normal(), `${block}.conv_${part}`);
  }
  for (const part of ["f", "g"]) {
    if (bound !== undefined) file.matrix(`${block}.ssm_${part}_a`, embedding, inner);
    else {
      file.matrix(`${block}.ssm_${part}_a`, embedding, deltaDim);
      // Blocks of weights have 256 columns, and this matrix has fewer.
      const widening = `${block}.ssm_${part}_b`;
      file.floats(`${widening}.weight`, [deltaDim, inner], (random) => random.normal() / 8, widening);
    }
  }
  file.matrix(`${block}.ssm_beta`, embedding, heads);
  // Without a bound, the file has minus the rate of the decay, and with one the rate.
  const rate = bound === undefined ? -1 : 1;
  file.floats(`${block}.ssm_a`, [1, heads], (random) => rate * (1 + 0.3 * random.normal()));
  file.vector(`${block}.ssm_dt.bias`, inner, 0, 0.5);
  file.vector(`${block}.ssm_norm.weight`, deltaDim);
  file.matrix(`${block}.attn_output`, inner, embedding);
}
