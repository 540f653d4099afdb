import { MAX } from "./bounds.ts";
import { type Fields, inWords } from "./json.ts";
import { convertLlama } from "./llama.ts";
import { type Entry, entry } from "./metadata.ts";
import type { ModelParts } from "./model_parts.ts";
import type { TensorList } from "./tensor_list.ts";

const MAX_SCALE = 1e9;
/** One layer of SmolLM3 in so many has no positions, the last of them. */
const INTERVAL = 4;

/** SmolLM3: Llama's tensors. GGUF has no key for layers without positions, so that they must be where they always are. */
export function convertSmolLM3(config: Fields, list: TensorList, prefix: string): ModelParts {
  const rotated = config.get("no_rope_layers");
  const usual = !Array.isArray(rotated) ||
    rotated.every((flag, i) => flag === ((i + 1) % INTERVAL === 0 ? 0 : 1));
  if (!usual) config.refuse("no_rope_layers", inWords(rotated), `0 for every layer ${INTERVAL}, and 1`);
  config.mustBe("no_rope_layer_interval", INTERVAL, "files do not say it");
  return convertLlama(config, list, prefix, {
    architecture: "smollm3",
    interleavedRope: true,
    headNorms: false,
  });
}

/** Granite's dense models: Llama's tensors, and multipliers. */
export function convertGranite(config: Fields, list: TensorList, prefix: string): ModelParts {
  const traits = { architecture: "granite", interleavedRope: true, headNorms: false } as const;
  const parts = convertLlama(config, list, prefix, traits);
  const scales = {
    embedding_scale: "embedding_multiplier",
    residual_scale: "residual_multiplier",
    "attention.scale": "attention_multiplier",
    logit_scale: "logits_scaling",
  };
  const entries = Object.entries(scales).map(([key, name]) =>
    entry(`granite.${key}`, "FLOAT32", config.positive(name, MAX_SCALE, 1))
  );
  return { ...parts, entries: [...parts.entries, ...entries] };
}

/** Mistral 7B and its like: Llama's tensors. GGUF's `llama` has no place for the first version's window. */
export function convertMistral(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("sliding_window", null, "windows are not computed in this architecture");
  return convertLlama(config, list, prefix, {
    architecture: "llama",
    interleavedRope: true,
    headNorms: false,
  });
}

/** Ministral 3 and Mistral 3's text parts: Llama's tensors, YaRN, and a temperature of queries by position. */
export function convertMistral3(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("sliding_window", 0, "windows are not computed in this architecture");
  const traits = { architecture: "mistral3", interleavedRope: true, headNorms: false } as const;
  const parts = convertLlama(config, list, prefix, traits);
  const { fields } = parts.decoder.rope;
  const key = "llama_4_scaling_beta";
  if (!fields.has(key)) return parts;
  const beta = entry("mistral3.attention.temperature_scale", "FLOAT32", fields.positive(key, MAX_SCALE));
  return { ...parts, entries: [...parts.entries, beta] };
}

/** Phi-3 and Phi-4: Llama's layers in fused matrices, and LongRoPE. Windows are left aside, as llama.cpp does. */
export function convertPhi3(config: Fields, list: TensorList, prefix: string): ModelParts {
  const traits = { architecture: "phi3", interleavedRope: false, headNorms: false, fused: true } as const;
  const parts = convertLlama(config, list, prefix, traits);
  return { ...parts, entries: [...parts.entries, ...longRopeEntries("phi3", config, parts)] };
}

/**
 * MiniCPM 1, 2, 4 and 4.1: Llama's tensors, scales, and LongRoPE. The sparse attention that some have for long contexts is left
 * aside, as llama.cpp does: all is attended to.
 */
export function convertMiniCpm(config: Fields, list: TensorList, prefix: string): ModelParts {
  const traits = { architecture: "minicpm", interleavedRope: true, headNorms: false } as const;
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
