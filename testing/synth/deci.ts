import { type DecoderShape, writeAttention, writeEnds, writeFeedForward, writeReals } from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";
import { type LlamaShape, writeRopeFactors } from "./llama.ts";

/** What a layer has left: no heads is no attention, heads without KV heads are a matrix, no width is no feed-forward half. */
interface Left {
  readonly heads: number;
  readonly kvHeads: number;
  readonly feedForward: number;
}

export interface DeciShape extends LlamaShape {
  /** Of the layers in turn. */
  readonly left: readonly Left[];
}

const [HEADS, KV_HEADS] = [8, 4];

export const DECI: Family<DeciShape> = {
  tiny: {
    ...TINY,
    layers: 6,
    heads: HEADS,
    kvHeads: KV_HEADS,
    headDim: 32,
    ropeBase: 5e5,
    untied: true,
    ropeFactors: true,
    left: [
      { heads: HEADS, kvHeads: KV_HEADS, feedForward: 768 },
      { heads: HEADS, kvHeads: 0, feedForward: 256 },
      { heads: 0, kvHeads: 0, feedForward: 512 },
      { heads: HEADS, kvHeads: 2, feedForward: 512 },
      { heads: 0, kvHeads: 0, feedForward: 0 },
      { heads: HEADS, kvHeads: KV_HEADS, feedForward: 768 },
    ],
  },
  write(file, shape) {
    const layers = Array.from({ length: shape.layers }, (_, i) => shape.left[i % shape.left.length]);
    file.counts({
      block_count: shape.layers,
      context_length: shape.context,
      embedding_length: shape.embedding,
      "attention.key_length": shape.headDim,
      "attention.value_length": shape.headDim,
      "rope.dimension_count": shape.headDim,
      vocab_size: shape.vocabulary,
    });
    file.keys("attention.head_count", "INT32", layers.map(({ heads }) => heads));
    file.keys("attention.head_count_kv", "INT32", layers.map(({ kvHeads }) => kvHeads));
    file.keys("feed_forward_length", "INT32", layers.map(({ feedForward }) => feedForward));
    writeReals(file, shape);
    writeEnds(file, shape);
    writeRopeFactors(file, shape);
    for (const [i, left] of layers.entries()) writeLayer(file, `blk.${i}`, shape, left);
  },
};

function writeLayer(file: SynthFile, block: string, shape: DecoderShape, left: Left): void {
  if (left.heads > 0) file.vector(`${block}.attn_norm.weight`, shape.embedding);
  if (left.kvHeads > 0) writeAttention(file, block, { ...shape, ...left });
  else if (left.heads > 0) file.matrix(`${block}.attn_output`, shape.embedding, shape.embedding);
  if (left.feedForward === 0) return;
  file.vector(`${block}.ffn_norm.weight`, shape.embedding);
  writeFeedForward(file, block, { ...shape, ...left });
}
