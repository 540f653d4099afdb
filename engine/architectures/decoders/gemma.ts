/** Gemma 1, 2 and 3. Norm weights of GGUF files already include Gemma's + 1. */
import type { ArchitectureKeys } from "../../gguf/hparams/architecture_keys.ts";
import type { Hparams } from "../../gguf/hparams/hparams.ts";
import type { PlanBuilder } from "../../plan/builder.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { type Checkpoint, type Config, MAX, refuseOtherWindows } from "../checkpoint.ts";
import { decoderKeys, type Family } from "../family.ts";
import type { DecoderTraits } from "../parts/decoder.ts";
import type { Rope } from "../parts/rope.ts";
import type { Traits } from "../traits.ts";

const ACTIVATION = "gelu_pytorch_tanh";
const MAX_SOFTCAP = 1e4;
/** Module of the norm before the feed-forward block, from Gemma 2 on. */
export const PRE_NORM = { ffn_norm: "pre_feedforward_layernorm" };

/** Gemma 1 and CodeGemma: Llama's decoder with GeGLU and a scaled embedding. Source: "Gemma" (arXiv 2403.08295). */
const GEMMA: Family = {
  architecture: "gemma",
  traits: { activation: "gelu" },
  read: (_, h) => ({ scales: { embedding: Math.sqrt(h.embeddingLength) } }),
  checkpoints: {
    gemma: {
      shiftedNorms: true,
      tied: true,
      mustBe: [
        ["hidden_activation", ACTIVATION, "no other activation is supported"],
        ["use_bidirectional_attention", false, "rows attend to the tokens before them"],
      ],
      // The first files say "gelu" and mean the tanh approximation. Source: Gemma's configuration class.
      prepare: (config) =>
        config.get("hidden_act") === "gelu" ? config.with({ hidden_act: ACTIVATION }) : config,
    },
  },
};

/** Layers of Gemma 2 and 3: norms before and after attention and feed-forward. */
const LAYERS: Traits = { norms: "both", activation: "gelu" };
/** Layer counts of the 27Bs, which scale queries by embedding length over head count instead of head dimension. */
const LARGEST = { gemma2: 46, gemma3: 62 };
/** Defaults where a file of Gemma 2 has no keys. */
const GEMMA2_DEFAULTS = { period: 2, window: 4096, scores: 50, logits: 30 };

/**
 * Gemma 2: one rotary table, tanh-bounded attention scores, and a window in every second layer. Sources:
 * "Gemma 2" (arXiv 2408.00118); Hugging Face transformers, models/gemma2.
 */
const GEMMA2: Family = {
  architecture: "gemma2",
  traits: LAYERS,
  ending: (keys) => ({
    logits: { softcap: keys.softcap("final_logit_softcapping") ?? GEMMA2_DEFAULTS.logits },
  }),
  read(b, h, rope) {
    const keys = decoderKeys(b);
    return {
      ...gemmaTraits(b, h, rope, { ...GEMMA2_DEFAULTS, nearBase: keys.ropeBase(10_000) }),
      scales: gemmaScales(h, LARGEST.gemma2),
      softcap: keys.softcap("attn_logit_softcapping") ?? GEMMA2_DEFAULTS.scores,
    };
  },
  checkpoints: { gemma2: gemma2Checkpoint() },
};

function gemma2Checkpoint(): Checkpoint {
  const usual = windowedCheckpoint(LARGEST.gemma2, GEMMA2_DEFAULTS.period, {
    vocab_size: 256_000,
    max_position_embeddings: 8192,
    rope_theta: 10_000,
    attn_logit_softcapping: GEMMA2_DEFAULTS.scores,
    final_logit_softcapping: GEMMA2_DEFAULTS.logits,
  });
  return {
    ...usual,
    scalings: [],
    mustBe: [["hidden_act", ACTIVATION, "no other activation is supported"]],
    entries: (config, decoder) => [
      ...usual.entries!(config, decoder),
      ...["attn_logit_softcapping", "final_logit_softcapping"].map((name) =>
        [name, "FLOAT32", config.positive(name, MAX_SOFTCAP)] as const
      ),
    ],
  };
}

/** Defaults for keys about windows. */
interface Windows {
  /** Layers per period. The last layer of a period has no window. */
  readonly period: number;
  /** Tokens that the other layers attend to; 0 is all. */
  readonly window: number;
  /** The rotary base of layers with a window. */
  readonly nearBase: number;
}

export const GEMMA3_WINDOWS: Windows = { period: 6, window: 0, nearBase: 10_000 };

/**
 * Gemma 3: heads with norms, and five layers with a window for each one without. Both kinds of layer have
 * their own rotary positions. Sources: "Gemma 3 Technical Report" (arXiv 2503.19786); Hugging Face
 * transformers, models/gemma3.
 */
export const GEMMA3: Family = {
  architecture: "gemma3",
  images: "line",
  traits: { ...LAYERS, headNorms: true },
  ending: (keys) => ({ logits: { softcap: keys.softcap("final_logit_softcapping") } }),
  read: (b, h, rope) => ({
    ...gemmaTraits(b, h, rope, GEMMA3_WINDOWS),
    scales: gemmaScales(h, LARGEST.gemma3),
  }),
  checkpoints: { gemma3: gemma3Checkpoint(), gemma3_text: gemma3Checkpoint() },
};

function gemma3Checkpoint(): Checkpoint {
  const { period, nearBase } = GEMMA3_WINDOWS;
  const usual = windowedCheckpoint(LARGEST.gemma3, period, {
    vocab_size: 262_208,
    max_position_embeddings: 131_072,
    rope_theta: 1e6,
  });
  return {
    ...usual,
    mustBe: [
      ["sliding_window_pattern", period, "GGUF's readers expect every sixth layer to have no window"],
      ["rope_local_base_freq", nearBase, "GGUF's readers expect this rotary base in layers with a window"],
    ],
    prepare: (config) => usual.prepare!(withNearRope(config, nearBase)),
    architecture: (config) => isEmbedding(config) ? "gemma-embedding" : "gemma3",
    entries: (config, decoder) => [
      ...usual.entries!(config, decoder),
      ...isEmbedding(config) ? [["attention.causal", "BOOL", false] as const] : [],
    ],
  };
}

/** EmbeddingGemma has Gemma 3's tensors and attends in both directions. */
const isEmbedding = (config: Config) => config.boolean("use_bidirectional_attention", false);

/** Returns config.json with the rotary keys where older files have them. Newer files have an object for each kind of layer. */
export function withNearRope<C extends Config>(config: C, nearBase: number): C {
  const ropes = config.fields("rope_parameters");
  const [full, near] = [ropes?.fields("full_attention"), ropes?.fields("sliding_attention")];
  if (!full || !near) return config;
  return config.with({
    rope_parameters: full.object,
    rope_local_base_freq: near.get("rope_theta") ?? nearBase,
  });
}

/** A checkpoint of Gemma 2 or 3. `defaults` are those of its configuration class, beside the common ones. */
function windowedCheckpoint(largest: number, period: number, defaults: Config["object"]): Checkpoint {
  return {
    modules: PRE_NORM,
    shiftedNorms: true,
    tied: true,
    keys: { activation: "hidden_activation" },
    prepare(given) {
      const config = given.withDefaults({
        num_attention_heads: 8,
        num_key_value_heads: 4,
        head_dim: 256,
        rms_norm_eps: 1e-6,
        hidden_activation: ACTIVATION,
        sliding_window: 4096,
        query_pre_attn_scalar: 256,
        ...defaults,
      });
      refuseOtherWindows(config, period);
      return config;
    },
    entries(config, { layers, hidden, heads, headDim }) {
      const width = layers === largest ? Math.floor(hidden / heads) : headDim;
      config.mustBe("query_pre_attn_scalar", width, "GGUF's readers expect this scale of queries");
      return [["attention.sliding_window", "UINT32", config.count("sliding_window", MAX.context)]];
    },
  };
}

/** Returns the embedding's scale and the attention scale of a model that has `largest` layers in its largest size. */
function gemmaScales(h: Hparams, largest: number): DecoderTraits["scales"] {
  const width = h.blockCount === largest ? Math.floor(h.embeddingLength / h.headCount) : h.keyLength;
  return { embedding: Math.sqrt(h.embeddingLength), attention: 1 / Math.sqrt(width) };
}

/** Returns the window and rotary table of each layer. */
export function gemmaTraits(b: PlanBuilder, h: Hparams, rope: Rope, usual: Windows): DecoderTraits {
  const keys: ArchitectureKeys = decoderKeys(b);
  const window = keys.window() || usual.window;
  const sliding = keys.windowLayers(h.blockCount, { period: usual.period });
  return {
    scales: { embedding: Math.sqrt(h.embeddingLength) },
    perLayer() {
      const full = ropeTable(b, rope.angles());
      const near = window === 0
        ? full
        : ropeTable(b, rope.angles({ base: keys.ropeBase(usual.nearBase, "_swa"), scaled: false }));
      return sliding.map((slides) => slides ? { table: near, window } : { table: full, window: 0 });
    },
  };
}

export const GEMMAS: readonly Family[] = [GEMMA, GEMMA2, GEMMA3];
