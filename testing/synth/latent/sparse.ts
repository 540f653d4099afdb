/** Seeded models of latent attention to tokens that an indexer chooses. */
import { type LatentShape, writeLatent, writeLatentAttention } from "./latent.ts";
import { CHOICE_BIAS } from "../mixtures.ts";
import { type SynthModel, TINY } from "../model.ts";
import type { SynthFile } from "../file.ts";

interface SparseShape extends LatentShape {
  readonly queryRank: number;
  readonly indexer: { readonly heads: number; readonly headDim: number; readonly choices: number };
  /** Layers that choose tokens; the others use the choices of the layer before. By default all. */
  readonly full?: readonly boolean[];
}

const SPARSE_TINY = {
  ...TINY,
  layers: 2,
  heads: 4,
  rank: 256,
  queryRank: 256,
  plain: 256,
  rotated: 32,
  valueLength: 64,
  ropeBase: 1e4,
  untied: true,
  experts: { count: 12, used: 3, feedForward: 256, shared: 1, scale: 1.5 },
  sigmoid: true,
  leadingDense: 1,
  indexer: { heads: 16, headDim: 64, choices: 56 },
};

const GLM5 = {
  embedding: 6144,
  feedForward: 12_288,
  layers: 78,
  vocabulary: 154_880,
  context: 202_752,
  heads: 64,
  rank: 512,
  queryRank: 2048,
  plain: 192,
  rotated: 64,
  valueLength: 256,
  ropeBase: 1e6,
  untied: true,
  experts: { count: 256, used: 8, feedForward: 2048, shared: 1, scale: 2.5 },
  sigmoid: true,
  leadingDense: 3,
  indexer: { heads: 32, headDim: 128, choices: 2048 },
};

/** Model like DeepSeek V3.2, with YaRN. */
export const DEEPSEEK32: SynthModel<SparseShape> = {
  tiny: { ...SPARSE_TINY, factor: 4, multiplier: 0.1 },
  real: {
    "deepseek-v3.2": {
      ...GLM5,
      embedding: 7168,
      feedForward: 18_432,
      layers: 61,
      vocabulary: 129_280,
      context: 163_840,
      heads: 128,
      queryRank: 1536,
      plain: 128,
      valueLength: 128,
      ropeBase: 1e4,
      factor: 40,
      multiplier: 0.1,
      indexer: { heads: 64, headDim: 128, choices: 2048 },
    },
  },
  write,
};

/** Model like GLM-5.2: some layers use the choices of the layer before. */
export const GLM_DSA: SynthModel<SparseShape> = {
  tiny: {
    ...SPARSE_TINY,
    // Every further choice of tokens or experts that rounding turns changes all answers after it.
    choiceBias: CHOICE_BIAS.large,
    full: [true, false],
    indexer: { ...SPARSE_TINY.indexer, choices: 48 },
  },
  real: { "glm-5": GLM5 },
  write,
};

function write(file: SynthFile, shape: SparseShape): void {
  const { indexer, full, embedding, layers, queryRank } = shape;
  const isFull = (layer: number) => full?.[layer] ?? true;
  writeLatent(file, shape, {
    keys(file) {
      file.counts({
        "attention.indexer.head_count": indexer.heads,
        "attention.indexer.key_length": indexer.headDim,
        "attention.indexer.top_k": indexer.choices,
      });
      if (!full) return;
      file.keys(
        "attention.indexer.types",
        "BOOL",
        Array.from({ length: layers }, (_, layer) => isFull(layer)),
      );
    },
    attention(file, block, layer) {
      writeLatentAttention(file, block, shape);
      if (!isFull(layer)) return;
      file.vector(`${block}.indexer.k_norm.weight`, indexer.headDim);
      file.vector(`${block}.indexer.k_norm.bias`, indexer.headDim, 0);
      file.matrix(`${block}.indexer.proj`, embedding, indexer.heads);
      file.matrix(`${block}.indexer.attn_k`, embedding, indexer.headDim);
      file.matrix(`${block}.indexer.attn_q_b`, queryRank, indexer.heads * indexer.headDim);
    },
  });
}
