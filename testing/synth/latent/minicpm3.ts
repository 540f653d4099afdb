/** Seeded models like MiniCPM3. */
import { writeEnds, writeFeedForward, writeReals } from "../decoder.ts";
import { writeLongRope } from "../dense.ts";
import { type Dimensions, type SynthModel, TINY } from "../model.ts";
import type { SynthFile } from "../file.ts";
import { type LatentDimensions, writeLatentRows } from "./latent.ts";

/** Mean weight of the queries' norm. Attention adds little to the scaled embedding, so its scores must differ much. */
const QUERY_NORM = 6;

interface MiniCpm3Shape extends Dimensions, LatentDimensions {
  readonly originalContext?: number;
}

/**
 * As in converters' files, no key states the width of value heads: together they have the embedding's width. Tests run
 * in long contexts.
 */
export const MINICPM3: SynthModel<MiniCpm3Shape> = {
  tiny: {
    ...TINY,
    embedding: 512,
    heads: 8,
    rank: 256,
    queryRank: 512,
    plain: 96,
    rotated: 32,
    valueLength: 64,
    originalContext: 64,
  },
  real: {
    "minicpm3-4b": {
      embedding: 2560,
      feedForward: 6400,
      layers: 62,
      vocabulary: 73_448,
      context: 32_768,
      heads: 40,
      rank: 256,
      queryRank: 768,
      plain: 64,
      rotated: 32,
      valueLength: 64,
    },
  },
  write,
};

function write(file: SynthFile, shape: MiniCpm3Shape): void {
  const { embedding, heads, rank, plain, rotated, valueLength, originalContext } = shape;
  file.counts({
    block_count: shape.layers,
    context_length: shape.context,
    embedding_length: embedding,
    feed_forward_length: shape.feedForward,
    vocab_size: shape.vocabulary,
    "attention.head_count": heads,
    "attention.head_count_kv": heads,
    "attention.key_length": plain + rotated,
    "attention.kv_lora_rank": rank,
    "attention.q_lora_rank": shape.queryRank!,
    "rope.dimension_count": rotated,
    ...originalContext && { "rope.scaling.original_context_length": originalContext },
  });
  writeReals(file, { ropeBase: 1e4 });
  writeEnds(file, shape);
  writeLongRope(file, { headDim: rotated });
  for (let layer = 0; layer < shape.layers; layer++) {
    const block = `blk.${layer}`;
    file.vector(`${block}.attn_norm.weight`, embedding);
    writeLatentRows(file, block, shape, QUERY_NORM);
    file.matrix(`${block}.attn_kv_b`, rank, heads * (plain + valueLength));
    file.matrix(`${block}.attn_output`, heads * valueLength, embedding);
    file.vector(`${block}.ffn_norm.weight`, embedding);
    writeFeedForward(file, block, shape);
  }
}
