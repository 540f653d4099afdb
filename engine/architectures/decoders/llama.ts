/** Llama and families with its layers: what differs is a few traits, keys and names of tensors. */
import { type Checkpoint, MAX } from "../checkpoint.ts";
import { decoderKeys, type Family } from "../family.ts";
import { longRopeEntries } from "../parts/longrope.ts";
import type { Traits } from "../traits.ts";

/** Llama's layers. */
const LAYERS: Traits = { interleavedRope: true };
const NO_WINDOW = "windows are not computed in this architecture";

/** Llama, and Mistral 7B and its relatives. Source: "LLaMA" (arXiv 2302.13971). */
export const LLAMA: Family = {
  architecture: "llama",
  images: "line",
  traits: LAYERS,
  checkpoints: {
    llama: { scalings: ["linear", "llama3", "yarn"] },
    mistral: { scalings: ["linear", "llama3", "yarn"], mustBe: [["sliding_window", null, NO_WINDOW]] },
  },
};

/** How ERNIE 4.5's checkpoints, dense or mixtures, differ from Llama's. */
export const ERNIE45_CHECKPOINT: Checkpoint = {
  pairsKept: true,
  ropeBase: 500_000,
  mustBe: [["use_bias", false, "biases are not converted"]],
};

/** ERNIE 4.5's dense models. */
const ERNIE45: Family = {
  architecture: "ernie4_5",
  traits: LAYERS,
  checkpoints: { ernie4_5: ERNIE45_CHECKPOINT },
};

/** InternLM 2 and 2.5. */
const INTERNLM2: Family = {
  architecture: "internlm2",
  traits: LAYERS,
  checkpoints: {
    internlm2: {
      grouped: "attention.wqkv",
      modules: {
        token_embd: "tok_embeddings",
        attn_norm: "attention_norm",
        attn_output: "attention.wo",
        ffn_norm: "ffn_norm",
        ffn_gate: "feed_forward.w1",
        ffn_up: "feed_forward.w3",
        ffn_down: "feed_forward.w2",
      },
      mustBe: [["bias", false, "biases are not converted"]],
      prepare(config) {
        // "dynamic" scaling only affects contexts beyond the one that the file states.
        const isDynamic = config.fields("rope_scaling")?.get("type") === "dynamic";
        return isDynamic ? config.with({ rope_scaling: null }) : config;
      },
    },
  },
};

/** Layers per period of SmolLM3. Files have no key for layers without positions. */
const INTERVAL = 4;

/** SmolLM3: Llama's decoder without positions in every fourth layer ("RoPE to NoPE", arXiv 2501.18795). */
const SMOLLM3: Family = {
  architecture: "smollm3",
  traits: { ...LAYERS, positionlessEvery: INTERVAL },
  checkpoints: {
    smollm3: {
      mustBe: [["no_rope_layer_interval", INTERVAL, "GGUF files have no key for it"]],
      prepare(config) {
        const rotated = config.get("no_rope_layers");
        const usual = !Array.isArray(rotated) ||
          rotated.every((flag, i) => flag === ((i + 1) % INTERVAL === 0 ? 0 : 1));
        if (!usual) config.refuseValue("no_rope_layers", "0 in every fourth layer, 1 in the others");
        return config;
      },
    },
  },
};

/** Arcee's AFM: Llama without gates. Source: Hugging Face transformers, models/arcee. */
const ARCEE: Family = {
  architecture: "arcee",
  traits: { ...LAYERS, ungated: true, activation: "squared_relu" },
  checkpoints: { arcee: {} },
};

/** Maincoder: heads are normed after rotation. Source: mlx-lm, models/maincoder.py. */
const MAINCODER: Family = {
  architecture: "maincoder",
  traits: { ...LAYERS, headNorms: true, normsLast: true },
  checkpoints: {
    maincoder: {
      pairsKept: true,
      modules: {
        ffn_gate: "feed_forward.gate_proj",
        ffn_up: "feed_forward.up_proj",
        ffn_down: "feed_forward.down_proj",
      },
      mustBe: [["use_qk_norm", true, "models without norms of heads are not converted"]],
      prepare: (config) =>
        config.with({
          intermediate_size: config.get("intermediate_size_mlp") ?? config.get("intermediate_size"),
        }),
    },
  },
};

/**
 * Ministral 3 and its relatives: Llama's decoder with YaRN. Beyond the original context, queries grow with
 * the logarithm of their position divided by it. Source: Hugging Face transformers, models/ministral3.
 */
const MISTRAL3: Family = {
  architecture: "mistral3",
  images: "line",
  traits: LAYERS,
  read(b, h) {
    const beta = decoderKeys(b).scale("attention.temperature_scale", 0);
    return { temperature: beta === 0 ? undefined : { beta, period: h.ropeOriginalContext } };
  },
  checkpoints: { mistral3: ministral(), ministral3: ministral() },
};

function ministral(): Checkpoint {
  const key = "llama_4_scaling_beta";
  return {
    mustBe: [["sliding_window", 0, NO_WINDOW]],
    entries: (_, { rope: { fields } }) =>
      fields.has(key) ? [["attention.temperature_scale", "FLOAT32", fields.positive(key, MAX.scale)]] : [],
  };
}

/** MiniCPM 1 and 2's scales, for files of older converters, which wrote none. */
const DEFAULTS = { embedding: 12, depth: 1.4, baseWidth: 256 };

/**
 * MiniCPM 1, 2, 4 and 4.1: Llama's decoder with scales on the embedding and residual additions, and a divisor
 * of the logits. LongRoPE where the file has its factors. The sparse attention of some models for long
 * contexts is not computed, as in llama.cpp: rows attend to all tokens. Sources: "MiniCPM" (arXiv
 * 2404.06395), "MiniCPM4" (2506.07900).
 */
const MINICPM: Family = {
  architecture: "minicpm",
  traits: LAYERS,
  // Divides by the default, as do llama.cpp's older releases and the checkpoint's own code. Newer llama.cpp
  // inverts it.
  ending: (keys, h) => ({
    logits: { scale: 1 / keys.scale("logit_scale", h.embeddingLength / DEFAULTS.baseWidth) },
  }),
  read(b, h) {
    const keys = decoderKeys(b);
    return {
      scales: {
        embedding: keys.scale("embedding_scale", DEFAULTS.embedding),
        residual: keys.scale("residual_scale", DEFAULTS.depth / Math.sqrt(h.blockCount)),
      },
    };
  },
  checkpoints: {
    minicpm: {
      scalings: ["linear", "longrope"],
      entries(config, decoder) {
        const scale = (name: string) => config.positive(name, MAX.scale);
        const isLong = decoder.rope.scaling.type === "longrope";
        return [
          ["embedding_scale", "FLOAT32", scale("scale_emb")],
          ["residual_scale", "FLOAT32", scale("scale_depth") / Math.sqrt(decoder.layers)],
          ["logit_scale", "FLOAT32", decoder.hidden / scale("dim_model_base")],
          ...longRopeEntries(config, decoder),
          // llama.cpp reads the factors only where this key says so.
          ...isLong ? [["rope.scaling.type", "STRING", "longrope"] as const] : [],
        ];
      },
    },
  },
};

/**
 * ChatGLM 3 and the GLM-4 of 2024: q, k and v in one tensor, gate and up in another, and partial rotation. Source:
 * Hugging Face transformers, models/glm.
 */
const CHATGLM: Family = {
  architecture: "chatglm",
  traits: { ...LAYERS, fusedHeads: true, fusedGate: true, biases: ["attn_qkv"] },
  checkpoints: {
    glm: {
      apart: true,
      pairsKept: true,
      scalings: [],
      partialRotary: 0.5,
      prepare: (config) => config.with({ attention_bias: null }),
      traits: (config) => config.boolean("attention_bias", true) ? {} : { biases: [] },
    },
  },
};

/** Limit of layers times passes. */
const MAX_DEPTH = 1024;
const OWN_CACHE = "each pass has all layers, and keys and values of its own";

/**
 * Nanbeige 4.2: Llama's decoder, run several times over the same rows. Each pass has its own KV cache. The
 * final norm also runs between passes, unless the file says otherwise. Source: SGLang,
 * srt/models/nanbeige.py.
 */
const NANBEIGE: Family = {
  architecture: "nanbeige",
  traits: LAYERS,
  read(b, h) {
    const keys = decoderKeys(b);
    const count = keys.count("num_loops", Math.floor(MAX_DEPTH / h.blockCount), 1);
    const normed = !b.file.metadata.getBoolean(keys.name("skip_loop_final_norm"), false);
    return { passes: { count, normed } };
  },
  checkpoints: {
    nanbeige: {
      mustBe: [
        ["loop_share_kv", false, OWN_CACHE],
        ["enable_double_loop_split", false, OWN_CACHE],
        ["enable_depth_attention", false, OWN_CACHE],
      ],
      entries: (config) => [
        ["num_loops", "UINT32", config.count("num_loops", MAX.layers, 1)],
        ["skip_loop_final_norm", "BOOL", config.boolean("skip_loop_final_norm", false)],
      ],
    },
  },
};

export const LLAMAS: readonly Family[] = [
  LLAMA,
  ERNIE45,
  INTERNLM2,
  SMOLLM3,
  ARCEE,
  MAINCODER,
  MISTRAL3,
  MINICPM,
  CHATGLM,
  NANBEIGE,
];
