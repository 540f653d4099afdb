import { MAX } from "../bounds.ts";
import { Fields, inWords } from "../checkpoint/json.ts";
import { convertLlama } from "./llama.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

const MAX_SCALE = 1e9;
/** One layer of SmolLM3 in so many has no positions, the last of them. */
const INTERVAL = 4;

/** SmolLM3: Llama's tensors. GGUF has no key for layers without positions, so that they must be where they always are. */
export function convertSmolLM3(config: Fields, list: TensorList, prefix: string): ModelParts {
  const rotated = config.get("no_rope_layers");
  const usual = !Array.isArray(rotated) ||
    rotated.every((flag, i) => flag === ((i + 1) % INTERVAL === 0 ? 0 : 1));
  if (!usual) config.refuse("no_rope_layers", inWords(rotated), "0 in every fourth layer, 1 in the others");
  config.mustBe("no_rope_layer_interval", INTERVAL, "files do not say it");
  return convertLlama(config, list, prefix, {
    architecture: "smollm3",
    interleavedRope: true,
    headNorms: false,
  });
}

/** Nanbeige 4.2: Llama's tensors, and how often rows go through all layers. */
export function convertNanbeige(config: Fields, list: TensorList, prefix: string): ModelParts {
  const kept = ["loop_share_kv", "enable_double_loop_split", "enable_depth_attention"];
  for (const key of kept) {
    config.mustBe(key, false, "each pass has all layers, and keys and values of its own");
  }
  const parts = convertLlama(config, list, prefix, {
    architecture: "nanbeige",
    interleavedRope: true,
    headNorms: false,
  });
  return {
    ...parts,
    entries: [
      ...parts.entries,
      entry("nanbeige.num_loops", "UINT32", config.count("num_loops", MAX.layers, 1)),
      entry("nanbeige.skip_loop_final_norm", "BOOL", config.boolean("skip_loop_final_norm", false)),
    ],
  };
}

/** EXAONE 3.0, 3.5 and Deep: Llama's tensors under names of their own. */
export function convertExaone(config: Fields, list: TensorList): ModelParts {
  const prefix = "transformer.";
  const parts = convertLlama(config, list, prefix, {
    architecture: "exaone",
    interleavedRope: false,
    headNorms: false,
    scalings: ["llama3"],
    keys: { layers: "num_layers", activation: "activation_function", epsilon: "layer_norm_epsilon" },
    modules: {
      embedding: "wte",
      layers: "h",
      attentionNorm: "ln_1",
      attention: "attn.attention",
      output: "out_proj",
      feedForwardNorm: "ln_2",
      gate: "c_fc_0",
      up: "c_fc_1",
      down: "c_proj",
    },
  });
  return { ...parts, lastNorm: { name: "output_norm.weight", tensor: `${prefix}ln_f.weight` } };
}

/** InternLM 2 and 2.5: Llama's tensors under names of their own, with q, k and v in one matrix by KV head. */
export function convertInternLm2(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("bias", false, "biases are not converted");
  const scaling = config.fields("rope_scaling");
  // The "dynamic" scaling of rotary frequencies begins behind the context that the file says.
  const usual = scaling?.get("type") === "dynamic"
    ? new Fields(config.file, { ...config.object, rope_scaling: null })
    : config;
  return convertLlama(usual, list, prefix, {
    architecture: "internlm2",
    interleavedRope: true,
    headNorms: false,
    grouped: true,
    modules: {
      embedding: "tok_embeddings",
      attentionNorm: "attention_norm",
      attention: "attention",
      fused: "wqkv",
      output: "wo",
      feedForwardNorm: "ffn_norm",
      feedForward: "feed_forward",
      gate: "w1",
      up: "w3",
      down: "w2",
    },
  });
}

/** Hunyuan's dense models of 2025. */
export function convertHunyuanDense(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("use_qk_norm", true, "models without norms of heads are not converted");
  config.mustBe("use_cla", false, "layers that read another's keys and values are not computed");
  config.mustBe("num_experts", 1, "mixtures of experts are not converted");
  return convertLlama(withStretchedBase(config), list, prefix, {
    architecture: "hunyuan-dense",
    interleavedRope: false,
    headNorms: true,
    modules: { queryNorm: "query_layernorm", keyNorm: "key_layernorm" },
  });
}

/** Maincoder: heads are normed, and checkpoints have their rotated pairs side by side. */
export function convertMaincoder(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("use_qk_norm", true, "models without norms of heads are not converted");
  const own = "intermediate_size_mlp";
  const traits = {
    architecture: "maincoder",
    interleavedRope: false,
    headNorms: true,
    keys: config.has(own) ? { feedForward: own } : {},
    modules: { feedForward: "feed_forward" },
  } as const;
  return convertLlama(config, list, prefix, traits);
}

/** Where config.json does not say. Source: the default of openPangu Embedded's configuration class. */
const PANGU_ROPE_BASE = 16_000_000;

/** openPangu Embedded: Llama's tensors, and biases of all matrices of attention. */
export function convertPanguEmbedded(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("bias", true, "GGUF's readers ask for biases");
  return convertLlama(config, list, prefix, {
    architecture: "pangu-embedded",
    interleavedRope: false,
    headNorms: false,
    biases: "all",
    ropeBase: PANGU_ROPE_BASE,
  });
}

/** Hunyuan's "dynamic" scaling is one of rotary frequencies' base, the same for all contexts. */
export function withStretchedBase(config: Fields): Fields {
  const rope = config.fields("rope_parameters") ?? config.fields("rope_scaling");
  if (!rope || (rope.get("rope_type") ?? rope.get("type")) !== "dynamic") return config;
  const alpha = rope.positive("alpha", MAX_SCALE);
  const base = (rope.has("rope_theta") ? rope : config).positive("rope_theta", MAX.base, 10_000);
  const shared = config.count("hidden_size", MAX.hidden) / config.count("num_attention_heads", MAX.heads);
  const dim = config.count("head_dim", MAX.headDim, shared);
  const rope_theta = base * alpha ** (dim / (dim - 2));
  return new Fields(config.file, { ...config.object, rope_parameters: null, rope_scaling: null, rope_theta });
}

/** Mistral 7B and its like: Llama's tensors. GGUF's `llama` has no place for the first version's window. */
export function convertMistral(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("sliding_window", null, "windows are not computed in this architecture");
  return convertLlama(config, list, prefix, {
    architecture: "llama",
    interleavedRope: true,
    headNorms: false,
    scalings: ["llama3"],
  });
}

/** Ministral 3 and Mistral 3's text parts: Llama's tensors, YaRN, and a temperature of queries by position. */
export function convertMistral3(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("sliding_window", 0, "windows are not computed in this architecture");
  const traits = {
    architecture: "mistral3",
    interleavedRope: true,
    headNorms: false,
    scalings: ["yarn"],
  } as const;
  const parts = convertLlama(config, list, prefix, traits);
  const { fields } = parts.decoder.rope;
  const key = "llama_4_scaling_beta";
  if (!fields.has(key)) return parts;
  const beta = entry("mistral3.attention.temperature_scale", "FLOAT32", fields.positive(key, MAX_SCALE));
  return { ...parts, entries: [...parts.entries, beta] };
}

/** Phi-3 and Phi-4: Llama's layers in fused matrices, and LongRoPE. Windows are left aside, as llama.cpp does. */
export function convertPhi3(config: Fields, list: TensorList, prefix: string): ModelParts {
  const traits = {
    architecture: "phi3",
    interleavedRope: false,
    headNorms: false,
    fused: true,
    scalings: ["longrope"],
  } as const;
  const parts = convertLlama(config, list, prefix, traits);
  return { ...parts, entries: [...parts.entries, ...longRopeEntries("phi3", config, parts)] };
}

/**
 * MiniCPM 1, 2, 4 and 4.1: Llama's tensors, scales, and LongRoPE. The sparse attention that some have for long contexts is left
 * aside, as llama.cpp does: all is attended to.
 */
export function convertMiniCpm(config: Fields, list: TensorList, prefix: string): ModelParts {
  const traits = {
    architecture: "minicpm",
    interleavedRope: true,
    headNorms: false,
    scalings: ["longrope"],
  } as const;
  const parts = convertLlama(config, list, prefix, traits);
  const { hidden, layers, rope } = parts.decoder;
  const scale = (name: string) => config.positive(name, MAX_SCALE);
  const entries = [
    ...parts.entries,
    entry("minicpm.embedding_scale", "FLOAT32", scale("scale_emb")),
    entry("minicpm.residual_scale", "FLOAT32", scale("scale_depth") / Math.sqrt(layers)),
    entry("minicpm.logit_scale", "FLOAT32", hidden / scale("dim_model_base")),
    ...longRopeEntries("minicpm", config, parts),
  ];
  // llama.cpp looks for the factors where this says so.
  if (rope.scaling.type === "longrope") {
    entries.push(entry("minicpm.rope.scaling.type", "STRING", "longrope"));
  }
  return { ...parts, entries };
}

/** What files say of LongRoPE beside its factors. */
function longRopeEntries(architecture: string, config: Fields, { decoder }: ModelParts): Entry[] {
  const { context, rope } = decoder;
  if (rope.scaling.type !== "longrope") return [];
  const name = "original_max_position_embeddings";
  const original = (rope.fields.has(name) ? rope.fields : config).count(name, MAX.context);
  const scaling = `${architecture}.rope.scaling`;
  return [
    entry(`${scaling}.original_context_length`, "UINT32", original),
    entry(`${scaling}.attn_factor`, "FLOAT32", longRopeMagnitude(context / original, original)),
  ];
}

/** "LongRoPE" (arXiv 2402.13753), section 3.3, with how many times the context was stretched. */
function longRopeMagnitude(times: number, original: number): number {
  return times <= 1 ? 1 : Math.sqrt(1 + Math.log(times) / Math.log(original));
}
