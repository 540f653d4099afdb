/** Qwen2, Qwen3 and families with their layers, whose rotated pairs stand half a head apart. */
import type { Checkpoint } from "../checkpoint.ts";
import { decoderKeys, type Family } from "../family.ts";
import { longRopeEntries } from "../parts/longrope.ts";
import { readSections } from "../parts/rope_sections.ts";

export const QKV_BIASES = ["attn_q", "attn_k", "attn_v"];

/** Qwen2 and Qwen2.5. */
const QWEN2: Family = {
  architecture: "qwen2",
  traits: { biases: QKV_BIASES },
  checkpoints: { qwen2: {} },
};

/** Qwen3: heads have norms. Source: "Qwen3" (arXiv 2505.09388). */
export const QWEN3: Family = {
  architecture: "qwen3",
  traits: { headNorms: true },
  checkpoints: { qwen3: {} },
};

/**
 * Returns the text part of a vision model. Its rotated pairs take positions from time, height and width,
 * which are equal in text. A file with a fourth section is refused: text has no position for it.
 */
export function textPart(architecture: string, decoder: Family, ...modelTypes: readonly string[]): Family {
  const checkpoint: Checkpoint = {
    entries: (_, { rope }) => [["rope.dimension_sections", "INT32", readSections(rope)]],
  };
  return {
    ...decoder,
    architecture,
    read(b, h, rope) {
      const keys = decoderKeys(b);
      const name = "rope.dimension_sections";
      const sections = keys.metadata.getNumbers(keys.name(name)) ?? [];
      if (sections.length > 3 && sections[3] !== 0) {
        keys.refuse(name, Array.from(sections).join(", "), "three sections, and 0 for the fourth");
      }
      return decoder.read?.(b, h, rope) ?? {};
    },
    checkpoints: Object.fromEntries(modelTypes.map((type) => [type, checkpoint])),
  };
}

/** Seed-OSS: Qwen2's decoder with another name for one norm. Source: Hugging Face transformers, models/seed_oss. */
const SEED_OSS: Family = {
  architecture: "seed_oss",
  traits: { biases: QKV_BIASES, feedForwardNorm: "post_attention_norm" },
  checkpoints: { seed_oss: {} },
};

/** EXAONE 3.0, 3.5 and Deep. */
const EXAONE: Family = {
  architecture: "exaone",
  traits: {},
  checkpoints: {
    exaone: {
      prefix: "transformer.",
      keys: { layers: "num_layers", activation: "activation_function", epsilon: "layer_norm_epsilon" },
      scalings: ["linear", "llama3"],
      modules: {
        token_embd: "wte",
        layers: "h",
        output_norm: "ln_f",
        attn_norm: "ln_1",
        attn_q: "attn.attention.q_proj",
        attn_k: "attn.attention.k_proj",
        attn_v: "attn.attention.v_proj",
        attn_output: "attn.attention.out_proj",
        ffn_norm: "ln_2",
        ffn_gate: "mlp.c_fc_0",
        ffn_up: "mlp.c_fc_1",
        ffn_down: "mlp.c_proj",
      },
    },
  },
};

/** openPangu Embedded. The rotary base is its configuration class's default. */
const PANGU_EMBEDDED: Family = {
  architecture: "pangu-embedded",
  traits: { biases: [...QKV_BIASES, "attn_output"] },
  checkpoints: {
    PanguEmbedded: { ropeBase: 16_000_000, mustBe: [["bias", true, "GGUF's readers expect biases"]] },
  },
};

/**
 * Phi-3 and Phi-4: fused matrices, and LongRoPE where the file has its factors. The window in some files is
 * ignored, as in llama.cpp. Sources: "Phi-3 Technical Report" (arXiv 2404.14219), "LongRoPE" (2402.13753).
 */
const PHI3: Family = {
  architecture: "phi3",
  traits: { fusedHeads: true, fusedGate: true },
  checkpoints: { phi3: { scalings: ["linear", "longrope"], entries: longRopeEntries } },
};

export const QWENS: readonly Family[] = [
  QWEN2,
  QWEN3,
  /** Source: "Qwen2-VL" (arXiv 2409.12191). */
  textPart("qwen2vl", QWEN2, "qwen2_vl", "qwen2_5_vl"),
  /** Pairs after the last section use time's position. Source: "Qwen3-VL" (arXiv 2511.21631). */
  { ...textPart("qwen3vl", QWEN3, "qwen3_vl"), images: "grid" },
  SEED_OSS,
  EXAONE,
  PANGU_EMBEDDED,
  PHI3,
];
