/** Decoders with LayerNorms: GPT-2, StarCoder2 and Nemotron, GPT-NeoX and its descendants. */
import type { PlanBuilder } from "../../plan/builder.ts";
import { type Checkpoint, type Config, MAX } from "../checkpoint.ts";
import { decoderKeys, type Family } from "../family.ts";
import type { Traits } from "../traits.ts";
import { QKV_BIASES } from "./qwen.ts";

/** LayerNorms with biases. */
const NORMED: Traits = { layerNorms: true, biases: ["attn_norm", "ffn_norm", "output_norm"] };
/** Every matrix of a layer has a bias, too. */
const BIASED: Traits = {
  layerNorms: true,
  biases: [...NORMED.biases!, ...QKV_BIASES, "attn_output", "ffn_up", "ffn_down"],
};

/** Differences between GPT-2's checkpoints and Llama's. */
const GPT2_CHECKPOINT: Checkpoint = {
  tied: true,
  scalings: [],
  keys: { epsilon: "layer_norm_epsilon", activation: "activation_function" },
  modules: {
    token_embd: "wte",
    position_embd: "wpe",
    layers: "h",
    output_norm: "ln_f",
    attn_norm: "ln_1",
    attn_qkv: "attn.c_attn",
    attn_output: "attn.c_proj",
    ffn_norm: "ln_2",
    ffn_up: "mlp.c_fc",
    ffn_down: "mlp.c_proj",
  },
  mustBe: [
    ["scale_attn_weights", true, "attention scores are scaled"],
    ["scale_attn_by_inverse_layer_idx", false, "all layers scale attention scores alike"],
    ["add_cross_attention", false, "the model attends only to its own tokens"],
  ],
  prepare(config) {
    const width = config.count("n_embd", MAX.hidden);
    return config.with({
      hidden_size: width,
      intermediate_size: config.get("n_inner") ?? 4 * width,
      num_attention_heads: config.get("n_head"),
      num_hidden_layers: config.get("n_layer"),
      max_position_embeddings: config.get("n_positions"),
    });
  },
};

/**
 * GPT-2: learned positions, one tensor of queries, keys and values, and GELU by its tanh approximation. Sources:
 * "Language Models are Unsupervised Multitask Learners" (OpenAI, 2019); Hugging Face transformers, models/gpt2.
 */
const GPT2: Family = {
  architecture: "gpt2",
  checkpoints: { gpt2: { ...GPT2_CHECKPOINT, transposed: true, activation: "gelu_new" } },
  traits: {
    ...BIASED,
    biases: [...BIASED.biases!, "attn_qkv"],
    learnedPositions: true,
    fusedHeads: true,
    ungated: true,
    activation: "gelu",
  },
};

/** StarCoder: GPT-2's decoder with one KV head. Source: Hugging Face transformers, models/gpt_bigcode. */
const STARCODER: Family = {
  ...GPT2,
  architecture: "starcoder",
  checkpoints: {
    gpt_bigcode: {
      ...GPT2_CHECKPOINT,
      mustBe: [...GPT2_CHECKPOINT.mustBe!, ["multi_query", true, "GGUF's readers expect one KV head"]],
      prepare: (config) => GPT2_CHECKPOINT.prepare!(config).with({ num_key_value_heads: 1 }),
    },
  },
};

/**
 * StarCoder2: GELU without a gate, biases everywhere. The checkpoints' window is ignored, as in llama.cpp,
 * whose files do not have it. Source: "StarCoder 2" (arXiv 2402.19173).
 */
const STARCODER2: Family = {
  architecture: "starcoder2",
  traits: { ...BIASED, ungated: true, activation: "gelu" },
  checkpoints: {
    starcoder2: {
      keys: { epsilon: "norm_epsilon" },
      modules: { ffn_up: "mlp.c_fc", ffn_down: "mlp.c_proj" },
      scalings: [],
      mustBe: [["use_bias", true, "GGUF's readers expect biases"]],
    },
  },
};

/** Jais 2: StarCoder2's decoder with a squared ReLU. Source: Hugging Face transformers, models/jais2. */
const JAIS2: Family = {
  architecture: "jais2",
  traits: { ...BIASED, ungated: true, activation: "squared_relu" },
  checkpoints: {
    jais2: {
      keys: { epsilon: "layer_norm_eps" },
      prepare(config) {
        for (const name of ["attention_bias", "mlp_bias"]) {
          config.mustBe(name, true, "GGUF's readers expect biases");
        }
        return config.with({ mlp_bias: null });
      },
    },
  },
};

/**
 * Nemotron and Minitron: a squared ReLU without a gate, and partial rotation. The file's norm weights already
 * include 1. Source: Hugging Face transformers, models/nemotron.
 */
const NEMOTRON: Family = {
  architecture: "nemotron",
  traits: { ...NORMED, ungated: true, activation: "squared_relu" },
  checkpoints: {
    nemotron: { keys: { epsilon: "norm_eps" }, shiftedNorms: true, scalings: [], partialRotary: 0.5 },
  },
};

const firstLayerHas = ({ file }: PlanBuilder, tensor: string) => file.tensors.has(`blk.0.${tensor}.weight`);

/**
 * GPT-NeoX and Pythia: attention and feed-forward read the layer's input in parallel, each through its own
 * norm, or in sequence where the file says so. GELU is the tanh approximation, as in llama.cpp. Source:
 * "GPT-NeoX-20B" (arXiv 2204.06745).
 */
const GPTNEOX: Family = {
  architecture: "gptneox",
  traits: {
    ...BIASED,
    biases: [...BIASED.biases!, "attn_qkv"],
    fusedHeads: true,
    ungated: true,
    activation: "gelu",
  },
  read(b) {
    const parallel = b.file.metadata.getBoolean(decoderKeys(b).name("use_parallel_residual"));
    return { parallel: parallel && "normed apart" };
  },
  checkpoints: {
    gpt_neox: {
      grouped: "attention.query_key_value",
      // The decoder computes GELU's tanh approximation, as llama.cpp does.
      activation: "gelu",
      keys: { epsilon: "layer_norm_eps" },
      partialRotary: 0.25,
      modules: {
        token_embd: "embed_in",
        attn_output: "attention.dense",
        ffn_up: "mlp.dense_h_to_4h",
        ffn_down: "mlp.dense_4h_to_h",
        output_norm: "final_layer_norm",
      },
      prepare(config) {
        config.mustBe("attention_bias", true, "GGUF's readers expect biases");
        return config.withDefaults({
          rope_theta: config.get("rotary_emb_base"),
          partial_rotary_factor: config.get("rotary_pct"),
        });
      },
      entries: (config) => [["use_parallel_residual", "BOOL", config.boolean("use_parallel_residual", true)]],
    },
  },
};

const PHI_KEYS: Checkpoint = {
  keys: { epsilon: "layer_norm_eps" },
  scalings: [],
  mustBe: [["qk_layernorm", false, "norms of heads are not converted"]],
};

/**
 * Phi-1, 1.5 and 2: attention and feed-forward read the same norm output in parallel. Files of the first
 * converters have q, k and v in one tensor. Source: Hugging Face transformers, models/phi.
 */
const PHI2: Family = {
  architecture: "phi2",
  traits: {
    ...BIASED,
    biases: [...BIASED.biases!, "output"],
    parallel: true,
    ungated: true,
    activation: "gelu",
  },
  read: (b) => ({ fusedHeads: firstLayerHas(b, "attn_qkv") }),
  checkpoints: {
    phi: {
      ...PHI_KEYS,
      activation: "gelu_new",
      partialRotary: 0.5,
      modules: {
        attn_output: "self_attn.dense",
        ffn_up: "mlp.fc1",
        ffn_down: "mlp.fc2",
        output_norm: "final_layernorm",
      },
    },
  },
};

/**
 * StableLM 3B, StableLM 2 and Stable Code: SwiGLU after attention. In the 12B, attention and feed-forward
 * read one norm in parallel, and heads have norms; its checkpoints, with a tensor per head, are not converted.
 * The 3B's files may claim "parallel" wrongly, by their converter's default. Source: Hugging Face
 * transformers, models/stablelm.
 */
const STABLELM: Family = {
  architecture: "stablelm",
  traits: NORMED,
  read(b) {
    const keys = decoderKeys(b);
    const parallel = !firstLayerHas(b, "ffn_norm");
    const name = "use_parallel_residual";
    if (parallel && !b.file.metadata.getBoolean(keys.name(name), true)) {
      keys.refuse(name, "false", "true in a file without norms before the feed-forward blocks");
    }
    return { parallel, headLayerNorms: firstLayerHas(b, "attn_q_norm") };
  },
  checkpoints: {
    stablelm: {
      ...PHI_KEYS,
      partialRotary: 0.25,
      traits: (config) => ({
        parallel: isParallel(config),
        biases: [...NORMED.biases!, ...config.boolean("use_qkv_bias", false) ? QKV_BIASES : []],
      }),
      entries: (config) => [["use_parallel_residual", "BOOL", isParallel(config)]],
    },
  },
};

const isParallel = (config: Config) => config.boolean("use_parallel_residual", false);

export const LAYER_NORMED: readonly Family[] = [
  GPT2,
  STARCODER,
  STARCODER2,
  JAIS2,
  NEMOTRON,
  GPTNEOX,
  PHI2,
  STABLELM,
];
