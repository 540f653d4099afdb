import { writeAttention, writeCounts, writeEnds, writeFeedForward, writeReals } from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";
import { type LlamaShape, writeRopeFactors } from "./llama.ts";

interface PostNormedShape extends LlamaShape {
  /** Queries are normed together, and so are keys. */
  readonly rowNorms?: boolean;
  /** Tokens that a row sees, but for every fourth layer's. */
  readonly window?: number;
  /** YaRN's. */
  readonly factor?: number;
}

function write(file: SynthFile, shape: PostNormedShape): void {
  const { embedding, heads, kvHeads, headDim, window, factor } = shape;
  writeCounts(file, shape, window === undefined ? {} : { "attention.sliding_window": window });
  writeReals(file, shape);
  if (window !== undefined) {
    const slides = Array.from({ length: shape.layers }, (_, i) => i % 4 !== 3);
    file.keys("attention.sliding_window_pattern", "BOOL", slides);
  }
  if (factor !== undefined) {
    file.key("rope.scaling.type", "STRING", "yarn");
    file.key("rope.scaling.factor", "FLOAT32", factor);
    file.key("rope.scaling.original_context_length", "UINT32", shape.context / factor);
  }
  writeEnds(file, shape);
  writeRopeFactors(file, shape);
  for (let layer = 0; layer < shape.layers; layer++) {
    const block = `blk.${layer}`;
    writeAttention(file, block, shape);
    if (shape.rowNorms) {
      file.vector(`${block}.attn_q_norm.weight`, heads * headDim);
      file.vector(`${block}.attn_k_norm.weight`, kvHeads * headDim);
    }
    file.vector(`${block}.post_attention_norm.weight`, embedding);
    writeFeedForward(file, block, shape);
    file.vector(`${block}.post_ffw_norm.weight`, embedding);
  }
}

/** llama.cpp has no other heads of these than those that are as wide as the embedding together. */
const OLMO_TINY = { ...TINY, heads: 8, headDim: 32, ropeBase: 5e5, untied: true, rowNorms: true };
const EXAONE_TINY = { ...TINY, heads: 4, headDim: 64, ropeBase: 1e6, headNorms: true, ropeFactors: true };

export const OLMO2: Family<PostNormedShape> = {
  tiny: { ...OLMO_TINY, kvHeads: 4 },
  real: {
    "olmo2-1b": {
      embedding: 2048,
      feedForward: 8192,
      layers: 16,
      vocabulary: 100_352,
      context: 4096,
      heads: 16,
      kvHeads: 16,
      headDim: 128,
      ropeBase: 5e5,
      untied: true,
      rowNorms: true,
    },
  },
  write,
};
/** The last layer has a window too, and its tests run beyond what YaRN takes for the original context. */
export const OLMO3: Family<PostNormedShape> = {
  architecture: "olmo2",
  tiny: { ...OLMO_TINY, layers: 5, kvHeads: 2, window: 40, factor: 8 },
  real: {
    "olmo3-7b": {
      embedding: 4096,
      feedForward: 11_008,
      layers: 32,
      vocabulary: 100_278,
      context: 65_536,
      heads: 32,
      kvHeads: 32,
      headDim: 128,
      ropeBase: 5e5,
      untied: true,
      rowNorms: true,
      window: 4096,
      factor: 8,
    },
  },
  write,
};
export const EXAONE4: Family<PostNormedShape> = {
  tiny: { ...EXAONE_TINY, kvHeads: 2 },
  real: {
    "exaone4-1.2b": {
      embedding: 2048,
      feedForward: 4096,
      layers: 30,
      vocabulary: 102_400,
      context: 65_536,
      heads: 32,
      kvHeads: 8,
      headDim: 64,
      ropeBase: 1e6,
      headNorms: true,
      ropeFactors: true,
    },
  },
  write,
};
/** llama.cpp knows the windows by the 32B's 64 layers. */
export const EXAONE4_WINDOWS: Family<PostNormedShape> = {
  architecture: "exaone4",
  tiny: { ...EXAONE_TINY, feedForward: 256, layers: 64, kvHeads: 1, untied: true, window: 40 },
  real: {
    "exaone4-32b": {
      embedding: 5120,
      feedForward: 27_392,
      layers: 64,
      vocabulary: 102_400,
      context: 131_072,
      heads: 40,
      kvHeads: 8,
      headDim: 128,
      ropeBase: 1e6,
      untied: true,
      headNorms: true,
      ropeFactors: true,
      window: 4096,
    },
  },
  write,
};
