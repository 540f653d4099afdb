import {
  type DecoderShape,
  expertCounts,
  type ExpertsShape,
  writeAttention,
  writeCounts,
  writeEnds,
  writeExperts,
  writeReals,
} from "./decoder.ts";
import { type Family, TINY } from "./family.ts";
import type { SynthFile } from "./file.ts";

export interface GptOssShape extends DecoderShape {
  readonly experts: ExpertsShape;
  /** Tokens that a row of every second layer sees. */
  readonly window: number;
  /** YaRN's. */
  readonly factor: number;
}

export const GPT_OSS: Family<GptOssShape> = {
  tiny: {
    ...TINY,
    heads: 8,
    kvHeads: 2,
    headDim: 64,
    ropeBase: 150_000,
    biases: true,
    untied: true,
    experts: { count: 10, used: 3, feedForward: 256 },
    window: 40,
    factor: 8,
  },
  real: {
    "gpt-oss-20b": {
      embedding: 2880,
      feedForward: 2880,
      layers: 24,
      vocabulary: 201_088,
      context: 131_072,
      heads: 64,
      kvHeads: 8,
      headDim: 64,
      ropeBase: 150_000,
      biases: true,
      untied: true,
      experts: { count: 32, used: 4, feedForward: 2880 },
      window: 128,
      factor: 32,
    },
  },
  write(file, shape) {
    writeCounts(file, shape, { ...expertCounts(shape.experts), "attention.sliding_window": shape.window });
    writeReals(file, shape);
    file.key("rope.scaling.type", "STRING", "yarn");
    file.key("rope.scaling.factor", "FLOAT32", shape.factor);
    file.key("rope.scaling.original_context_length", "UINT32", shape.context / shape.factor);
    writeEnds(file, shape);
    for (let layer = 0; layer < shape.layers; layer++) writeLayer(file, `blk.${layer}`, shape);
  },
};

function writeLayer(file: SynthFile, block: string, shape: GptOssShape): void {
  const { embedding, experts: { count, feedForward } } = shape;
  file.vector(`${block}.attn_norm.weight`, embedding);
  writeAttention(file, block, shape);
  file.vector(`${block}.attn_output.bias`, embedding, 0);
  file.vector(`${block}.attn_sinks.weight`, shape.heads, 0, 2);
  file.vector(`${block}.post_attention_norm.weight`, embedding);
  writeExperts(file, block, embedding, shape.experts);
  file.vector(`${block}.ffn_gate_inp.bias`, count, 0, 1);
  const bias = (part: string, rows: number, spread: number) =>
    file.floats(`${block}.ffn_${part}_exps.bias`, [rows, count], (random) => spread * random.normal());
  // Some of the gates, and of what they gate, reach where they are clamped.
  bias("gate", feedForward, 4);
  bias("up", feedForward, 4);
  bias("down", embedding, 0.1);
}
