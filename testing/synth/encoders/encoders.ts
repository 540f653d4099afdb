/** Encoders: BERT and its relatives, which read texts in both directions. */
import { expertCounts, type ExpertsShape, writeRouter, writeUngatedExperts } from "../decoder.ts";
import { type Dimensions, type SynthModel, TINY } from "../model.ts";
import type { SynthFile } from "../file.ts";

interface EncoderShape extends Dimensions {
  readonly heads: number;
}

/** Mean of norm weights: large enough that heads attend to some tokens more than to others. */
const NORM = 3;

/** Writes the keys that all encoders have. */
function writeCounts(file: SynthFile, shape: EncoderShape): void {
  file.counts({
    block_count: shape.layers,
    context_length: shape.context,
    embedding_length: shape.embedding,
    feed_forward_length: shape.feedForward,
    "attention.head_count": shape.heads,
  });
  file.key("attention.causal", "BOOL", false);
  file.key("attention.layer_norm_epsilon", "FLOAT32", 1e-12);
}

/** Writes the matrix NAME.weight and its bias. */
export function affine(file: SynthFile, name: string, columns: number, rows: number): void {
  file.matrix(name, columns, rows);
  file.vector(`${name}.bias`, rows, 0, 0.1);
}

export function norm(file: SynthFile, name: string, width: number, biased = true): void {
  file.vector(`${name}.weight`, width, NORM);
  if (biased) file.vector(`${name}.bias`, width, 0, 0.3);
}

/** Writes the embeddings of tokens and token types, and a norm. */
function writeEmbeddings(file: SynthFile, { embedding, vocabulary }: EncoderShape, types = 2): void {
  file.matrix("token_embd", embedding, vocabulary);
  file.sink.set("tokenizer.ggml.token_type_count", "UINT32", types);
  file.floats("token_types.weight", [embedding, types], (random) => 0.02 * random.normal());
}

export const BERT: SynthModel<EncoderShape> = {
  encoder: true,
  tiny: { ...TINY, heads: 8, context: 512 },
  real: {
    "all-minilm-l6-v2": {
      embedding: 384,
      feedForward: 1536,
      layers: 6,
      vocabulary: 30_522,
      context: 512,
      heads: 12,
    },
    "bert-base": {
      embedding: 768,
      feedForward: 3072,
      layers: 12,
      vocabulary: 30_522,
      context: 512,
      heads: 12,
    },
  },
  write(file, shape) {
    const { embedding, feedForward } = shape;
    writeCounts(file, shape);
    writeEmbeddings(file, shape);
    file.floats("position_embd.weight", [embedding, shape.context], (random) => 0.02 * random.normal());
    norm(file, "token_embd_norm", embedding);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      for (const part of ["q", "k", "v", "output"]) {
        affine(file, `${block}.attn_${part}`, embedding, embedding);
      }
      norm(file, `${block}.attn_output_norm`, embedding);
      affine(file, `${block}.ffn_up`, embedding, feedForward);
      affine(file, `${block}.ffn_down`, feedForward, embedding);
      norm(file, `${block}.layer_output_norm`, embedding);
    }
  },
  writeHead: (file, { embedding }) => affine(file, "cls", embedding, embedding),
};

export const NOMIC_BERT: SynthModel<EncoderShape> = {
  encoder: true,
  tiny: { ...TINY, heads: 4 },
  real: {
    "nomic-embed-text-v1.5": {
      embedding: 768,
      feedForward: 3072,
      layers: 12,
      vocabulary: 30_522,
      context: 2048,
      heads: 12,
    },
  },
  write(file, shape) {
    const { embedding, feedForward } = shape;
    writeCounts(file, shape);
    file.key("rope.freq_base", "FLOAT32", 1000);
    writeEmbeddings(file, shape);
    norm(file, "token_embd_norm", embedding);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      file.matrix(`${block}.attn_qkv`, embedding, 3 * embedding);
      file.matrix(`${block}.attn_output`, embedding, embedding);
      norm(file, `${block}.attn_output_norm`, embedding);
      file.matrix(`${block}.ffn_gate`, embedding, feedForward);
      file.matrix(`${block}.ffn_up`, embedding, feedForward);
      file.matrix(`${block}.ffn_down`, feedForward, embedding);
      norm(file, `${block}.layer_output_norm`, embedding);
    }
  },
};

/**
 * Model with ALiBi slopes for positions, GeGLU with gate and up in one matrix, and a number of heads that is not a
 * power of two.
 */
export const JINA_BERT_V2: SynthModel<EncoderShape> = {
  encoder: true,
  tiny: { ...TINY, embedding: 768, feedForward: 256, layers: 2, heads: 12 },
  real: {
    "jina-embeddings-v2-base-en": {
      embedding: 768,
      feedForward: 3072,
      layers: 12,
      vocabulary: 30_528,
      context: 8192,
      heads: 12,
    },
  },
  write(file, shape) {
    const { embedding, feedForward } = shape;
    writeCounts(file, shape);
    writeEmbeddings(file, shape);
    norm(file, "token_embd_norm", embedding);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      for (const part of ["q", "k", "v", "output"]) {
        affine(file, `${block}.attn_${part}`, embedding, embedding);
      }
      norm(file, `${block}.attn_output_norm`, embedding);
      file.matrix(`${block}.ffn_up`, embedding, 2 * feedForward);
      affine(file, `${block}.ffn_down`, feedForward, embedding);
      norm(file, `${block}.layer_output_norm`, embedding);
    }
  },
};

/** Model with rotary positions, biases on all matrices, and one token type. */
export const JINA_BERT_V3: SynthModel<EncoderShape> = {
  encoder: true,
  tiny: { ...TINY, heads: 4 },
  real: {
    "jina-embeddings-v3": {
      embedding: 1024,
      feedForward: 4096,
      layers: 24,
      vocabulary: 250_002,
      context: 8192,
      heads: 16,
    },
  },
  write(file, shape) {
    const { embedding, feedForward } = shape;
    writeCounts(file, shape);
    file.key("rope.freq_base", "FLOAT32", 20_000);
    writeEmbeddings(file, shape, 1);
    norm(file, "token_embd_norm", embedding);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      affine(file, `${block}.attn_qkv`, embedding, 3 * embedding);
      affine(file, `${block}.attn_output`, embedding, embedding);
      norm(file, `${block}.attn_output_norm`, embedding);
      affine(file, `${block}.ffn_up`, embedding, feedForward);
      affine(file, `${block}.ffn_down`, feedForward, embedding);
      norm(file, `${block}.layer_output_norm`, embedding);
    }
  },
};

interface NomicMoeShape extends EncoderShape {
  /** Shape of the experts, which are as wide as the feed-forward blocks of other layers. */
  readonly experts: Omit<ExpertsShape, "feedForward">;
}

/** Model with experts in every second layer. */
export const NOMIC_BERT_MOE: SynthModel<NomicMoeShape> = {
  encoder: true,
  tiny: { ...TINY, heads: 4, experts: { count: 6, used: 2 } },
  real: {
    "nomic-embed-text-v2-moe": {
      embedding: 768,
      feedForward: 3072,
      layers: 12,
      vocabulary: 250_048,
      context: 2048,
      heads: 12,
      experts: { count: 8, used: 2 },
    },
  },
  write(file, shape) {
    const { embedding, feedForward } = shape;
    const experts = { ...shape.experts, feedForward };
    writeCounts(file, shape);
    const { expert_count, expert_used_count } = expertCounts(experts);
    file.counts({ expert_count, expert_used_count, moe_every_n_layers: 2 });
    file.key("rope.freq_base", "FLOAT32", 10_000);
    writeEmbeddings(file, shape);
    norm(file, "token_embd_norm", embedding);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      affine(file, `${block}.attn_qkv`, embedding, 3 * embedding);
      affine(file, `${block}.attn_output`, embedding, embedding);
      norm(file, `${block}.attn_output_norm`, embedding);
      if (layer % 2 === 1) {
        writeRouter(file, block, embedding, experts.count);
        writeUngatedExperts(file, block, embedding, experts);
      } else {
        affine(file, `${block}.ffn_up`, embedding, feedForward);
        affine(file, `${block}.ffn_down`, feedForward, embedding);
      }
      norm(file, `${block}.layer_output_norm`, embedding);
    }
  },
};

export const MODERN_BERT: SynthModel<EncoderShape & { readonly window: number }> = {
  encoder: true,
  tiny: { ...TINY, heads: 8, window: 24 },
  real: {
    "modernbert-base": {
      embedding: 768,
      feedForward: 1152,
      layers: 22,
      vocabulary: 50_368,
      context: 8192,
      heads: 12,
      window: 128,
    },
  },
  write(file, shape) {
    const { embedding, feedForward } = shape;
    writeCounts(file, shape);
    file.counts({ "attention.sliding_window": shape.window });
    file.key("rope.freq_base", "FLOAT32", 160_000);
    file.key("rope.freq_base_swa", "FLOAT32", 10_000);
    file.matrix("token_embd", embedding, shape.vocabulary);
    norm(file, "token_embd_norm", embedding, false);
    norm(file, "output_norm", embedding, false);
    for (let layer = 0; layer < shape.layers; layer++) {
      const block = `blk.${layer}`;
      if (layer > 0) norm(file, `${block}.attn_norm`, embedding, false);
      file.matrix(`${block}.attn_qkv`, embedding, 3 * embedding);
      file.matrix(`${block}.attn_output`, embedding, embedding);
      norm(file, `${block}.ffn_norm`, embedding, false);
      file.matrix(`${block}.ffn_up`, embedding, 2 * feedForward);
      file.matrix(`${block}.ffn_down`, feedForward, embedding);
    }
  },
  writeHead(file, { embedding }) {
    file.matrix("cls", embedding, embedding);
    norm(file, "cls.norm", embedding, false);
  },
};
