/** Seeded encoders as their makers would publish them. */
import { MODERN, UNIGRAM, WORD_PIECE } from "../../../testing/checkpoint_tokenizers.ts";
import { type StoredTensor, storeFloats, tokenizerOf } from "../../../testing/checkpoints.ts";
import {
  attentionNames,
  type Config,
  context,
  embedding,
  type Floats,
  layered,
  type Names,
  type Published,
  vocabulary,
} from "./model.ts";

const BERT_NAMES: Names = [
  [/^token_embd$/, "embeddings.word_embeddings"],
  [/^position_embd$/, "embeddings.position_embeddings"],
  [/^token_types$/, "embeddings.token_type_embeddings"],
  [/^token_embd_norm$/, "embeddings.LayerNorm"],
  [/^blk\.(\d+)\.attn_q$/, "encoder.layer.$1.attention.self.query"],
  [/^blk\.(\d+)\.attn_k$/, "encoder.layer.$1.attention.self.key"],
  [/^blk\.(\d+)\.attn_v$/, "encoder.layer.$1.attention.self.value"],
  [/^blk\.(\d+)\.attn_output$/, "encoder.layer.$1.attention.output.dense"],
  [/^blk\.(\d+)\.attn_output_norm$/, "encoder.layer.$1.attention.output.LayerNorm"],
  [/^blk\.(\d+)\.ffn_up$/, "encoder.layer.$1.intermediate.dense"],
  [/^blk\.(\d+)\.ffn_down$/, "encoder.layer.$1.output.dense"],
  [/^blk\.(\d+)\.layer_output_norm$/, "encoder.layer.$1.output.LayerNorm"],
];
const BERT = layered({
  num_attention_heads: 8,
  intermediate_size: 768,
  layer_norm_eps: 1e-12,
  type_vocab_size: 2,
  hidden_act: "gelu",
});

/** config.json of both Nomic encoders. */
const NOMIC_CONFIG: Config = {
  model_type: "nomic_bert",
  n_layer: 4,
  n_embd: embedding,
  n_inner: 768,
  n_head: 4,
  n_positions: context,
  layer_norm_epsilon: 1e-12,
  vocab_size: vocabulary,
  type_vocab_size: 2,
};
const NOMIC_NAMES: Names = [
  [/^token_embd$/, "embeddings.word_embeddings"],
  [/^token_types$/, "embeddings.token_type_embeddings"],
  [/^token_embd_norm$/, "emb_ln"],
  [/^blk\.(\d+)\.attn_qkv$/, "encoder.layers.$1.attn.Wqkv"],
  [/^blk\.(\d+)\.attn_output$/, "encoder.layers.$1.attn.out_proj"],
  [/^blk\.(\d+)\.attn_output_norm$/, "encoder.layers.$1.norm1"],
  [/^blk\.(\d+)\.layer_output_norm$/, "encoder.layers.$1.norm2"],
];

/** Writes all experts one below the other, each with its second matrix transposed, and their common bias. */
function nomicExperts(tensors: Map<string, StoredTensor>, floats: (name: string) => Floats): void {
  for (const i of [1, 3]) {
    const mlp = `encoder.layers.${i}.mlp.experts.`;
    const [up, down] = ["up", "down"].map((part) => floats(`blk.${i}.ffn_${part}_exps.weight`));
    const [experts, width, inner] = down.shape;
    const turned = down.values.map((_, at) => {
      const [expert, column, row] = [
        Math.floor(at / width / inner),
        Math.floor(at / width) % inner,
        at % width,
      ];
      return down.values[(expert * width + row) * inner + column];
    });
    tensors.set(`${mlp}mlp.w1`, storeFloats("F32", [experts * inner, width], up.values));
    tensors.set(`${mlp}mlp.w2`, storeFloats("F32", [experts * inner, width], turned));
    tensors.set(`${mlp}bias`, storeFloats("F32", [width], new Float32Array(width)));
  }
}

/** Tensor names of encoders with Llama's layers. */
const llamaNames = (prefix: string): Names => [
  ...attentionNames(prefix),
  [/^blk\.(\d+)\.ffn_norm$/, `${prefix}layers.$1.post_attention_layernorm`],
];
const LLAMAS = layered({ intermediate_size: 768, rms_norm_eps: 1e-6, hidden_act: "silu" });
const LLAMAS_TOKENS = tokenizerOf("llama");

export const ENCODERS = {
  "EuroBERT": {
    architecture: "eurobert",
    config: {
      ...LLAMAS,
      model_type: "eurobert",
      num_attention_heads: 4,
      num_key_value_heads: 2,
      rope_theta: 250_000,
    },
    names: llamaNames("model."),
    tokenizer: LLAMAS_TOKENS,
    ids: ["the", [257]],
    // Checkpoints of masked language models have this matrix too.
    change: (tensors) => tensors.set("lm_head.weight", tensors.get("model.embed_tokens.weight")!),
  },
  "Llama Nemotron Embed": {
    architecture: "llama-embed",
    config: {
      ...LLAMAS,
      model_type: "llama_bidirec",
      pooling: "avg",
      num_attention_heads: 8,
      num_key_value_heads: 2,
      rope_theta: 5e5,
      rope_scaling: {
        rope_type: "llama3",
        factor: 32,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 1024,
      },
    },
    names: llamaNames(""),
    tokenizer: LLAMAS_TOKENS,
    ids: ["the", [257]],
    halves: { headDim: 32 },
    ownFactors: true,
  },
  "BERT": {
    architecture: "bert",
    config: { ...BERT, model_type: "bert", max_position_embeddings: 512 },
    names: BERT_NAMES,
    tokenizer: WORD_PIECE,
    ids: ["Ab c", [2, 5, 32, 7, 3]],
  },
  "Jina embeddings v2": {
    architecture: "jina-bert-v2",
    config: {
      ...BERT,
      model_type: "bert",
      hidden_size: 768,
      intermediate_size: 256,
      num_hidden_layers: 2,
      num_attention_heads: 12,
      position_embedding_type: "alibi",
      feed_forward_type: "geglu",
    },
    names: [
      ...BERT_NAMES.filter(([, theirs]) => !/position|intermediate|layer\.\$1\.output/.test(theirs)),
      [/^blk\.(\d+)\.ffn_up$/, "encoder.layer.$1.mlp.gated_layers"],
      [/^blk\.(\d+)\.ffn_down$/, "encoder.layer.$1.mlp.wo"],
      [/^blk\.(\d+)\.layer_output_norm$/, "encoder.layer.$1.mlp.layernorm"],
    ],
    tokenizer: WORD_PIECE,
    ids: ["Ab c", [2, 5, 32, 7, 3]],
  },
  "XLM-RoBERTa": {
    architecture: "bert",
    config: { ...BERT, model_type: "xlm-roberta", max_position_embeddings: 514, pad_token_id: 1 },
    names: BERT_NAMES.map(([ours, theirs]) => [ours, `roberta.${theirs}`] as const),
    tokenizer: UNIGRAM,
    ids: ["  a  b ", [0, 31, 4, 6, 2]],
    change(tensors, floats) {
      const { shape: [rows, columns], values } = floats("position_embd.weight");
      const more = new Float32Array((rows + 2) * columns);
      more.set(values, 2 * columns);
      const name = "roberta.embeddings.position_embeddings.weight";
      tensors.set(name, storeFloats("F32", [rows + 2, columns], more));
    },
  },
  "Nomic's": {
    architecture: "nomic-bert",
    config: {
      ...NOMIC_CONFIG,
      activation_function: "swiglu",
      rotary_emb_base: 1000,
      rotary_emb_fraction: 1,
      qkv_proj_bias: false,
    },
    names: [
      ...NOMIC_NAMES,
      [/^blk\.(\d+)\.ffn_up$/, "encoder.layers.$1.mlp.fc11"],
      [/^blk\.(\d+)\.ffn_gate$/, "encoder.layers.$1.mlp.fc12"],
      [/^blk\.(\d+)\.ffn_down$/, "encoder.layers.$1.mlp.fc2"],
    ],
    tokenizer: WORD_PIECE,
    ids: ["ab", [2, 5, 32, 3]],
  },
  "Nomic's with experts": {
    architecture: "nomic-bert-moe",
    config: {
      ...NOMIC_CONFIG,
      activation_function: "gelu",
      rotary_emb_base: 10_000,
      rotary_emb_fraction: 1,
      qkv_proj_bias: true,
      mlp_fc1_bias: true,
      mlp_fc2_bias: true,
      moe_every_n_layers: 2,
      moe_top_k: 2,
      num_experts: 6,
      num_shared_experts: 0,
      moe_normalize_expert_weights: false,
      expert_choice_router: false,
    },
    names: [
      ...NOMIC_NAMES,
      [/^blk\.(\d+)\.ffn_up$/, "encoder.layers.$1.mlp.fc1"],
      [/^blk\.(\d+)\.ffn_down$/, "encoder.layers.$1.mlp.fc2"],
      [/^blk\.(\d+)\.ffn_gate_inp$/, "encoder.layers.$1.mlp.router.layer"],
    ],
    tokenizer: UNIGRAM,
    ids: ["  a  b ", [0, 31, 4, 6, 2]],
    change: nomicExperts,
  },
  "ModernBERT": {
    architecture: "modern-bert",
    config: layered({
      model_type: "modernbert",
      num_attention_heads: 8,
      intermediate_size: 768,
      norm_eps: 1e-12,
      local_attention: 24,
      global_attn_every_n_layers: 3,
      hidden_activation: "gelu",
      global_rope_theta: 160_000,
      local_rope_theta: 10_000,
      attention_bias: false,
    }),
    names: [
      [/^token_embd$/, "model.embeddings.tok_embeddings"],
      [/^token_embd_norm$/, "model.embeddings.norm"],
      [/^output_norm$/, "model.final_norm"],
      [/^blk\.(\d+)\.attn_norm$/, "model.layers.$1.attn_norm"],
      [/^blk\.(\d+)\.attn_qkv$/, "model.layers.$1.attn.Wqkv"],
      [/^blk\.(\d+)\.attn_output$/, "model.layers.$1.attn.Wo"],
      [/^blk\.(\d+)\.ffn_norm$/, "model.layers.$1.mlp_norm"],
      [/^blk\.(\d+)\.ffn_up$/, "model.layers.$1.mlp.Wi"],
      [/^blk\.(\d+)\.ffn_down$/, "model.layers.$1.mlp.Wo"],
    ],
    tokenizer: MODERN,
    ids: ["ab", [257, 97, 98, 258]],
  },
} satisfies Record<string, Published>;
