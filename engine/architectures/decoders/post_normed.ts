/** Decoders that norm the outputs of attention and of the feed-forward block. */
import { ropeTable } from "../../plan/ops/rope_table.ts";
import { type Checkpoint, type Config, MAX, refuseOtherWindows } from "../checkpoint.ts";
import { decoderKeys, type Family } from "../family.ts";
import { leaveOutDrafting } from "../left_out.ts";
import { readSlidingLayers } from "../parts/layer_types.ts";
import { refuseSections } from "../parts/rope_sections.ts";
import { readWindows, windowed, windowedLayers, windowsOf } from "../parts/windows.ts";

/** Layers per period of a model with windows. The last layer of a period has none. */
export const PERIOD = 4;

/**
 * OLMo 2 and OLMo 3. In OLMo 3 three of four layers have a window and no YaRN. Sources: "2 OLMo 2 Furious"
 * (arXiv 2501.00656), "Olmo 3" (arXiv 2512.13961).
 */
const OLMO2: Family = {
  architecture: "olmo2",
  traits: { norms: "after", rowNorms: true },
  read: (b, h, rope) => ({ perLayer: windowedLayers(b, h, rope, "rope.scaling.attn_factor") }),
  checkpoints: {
    olmo2: {
      scalings: ["linear", "yarn"],
      mustBe: [["sliding_window", null, "windows are OLMo 3's"]],
      prepare: withoutWindows,
    },
    olmo3: {
      scalings: ["linear", "yarn"],
      prepare: withWindows,
      entries: (
        config,
      ) => [["attention.sliding_window", "UINT32", config.count("sliding_window", MAX.context)]],
    },
  },
};

/**
 * EXAONE 4: in models with windows, the layers without one have no positions. Sources: "EXAONE 4.0" (arXiv
 * 2507.11407); Hugging Face transformers, models/exaone4.
 */
const EXAONE4: Family = {
  architecture: "exaone4",
  traits: { norms: "after", headNorms: true },
  read(b, h, rope) {
    const keys = decoderKeys(b);
    const layerCount = leaveOutDrafting(b, h);
    const table = ropeTable(b, rope.angles());
    const hybrid = keys.window() > 0;
    const windows = readWindows(keys, h, layerCount);
    return {
      layerCount,
      perLayer: windows.map((window) => ({ window, table: hybrid && window === 0 ? undefined : table })),
    };
  },
  checkpoints: {
    exaone4: {
      scalings: ["linear", "llama3"],
      prepare(config) {
        const key = "sliding_window";
        // null means no window. Without the key, Hugging Face's default applies, which is a window.
        if (!Object.hasOwn(config.object, key)) config.refuseValue(key, "a whole number or null");
        return (config.has(key) ? withWindows : withoutWindows)(config);
      },
      entries: (config) =>
        config.has("sliding_window")
          ? [["attention.sliding_window", "UINT32", config.count("sliding_window", MAX.context)]]
          : [],
    },
  },
};

/**
 * GLM-4 and GLM-Z1 of 2025: norms before and after attention and feed-forward, partial rotation, gate and up
 * in one matrix. Source: Hugging Face transformers, models/glm4.
 */
const GLM4: Family = {
  architecture: "glm4",
  traits: { norms: "both", interleavedRope: true, fusedGate: true, biases: ["attn_q", "attn_k", "attn_v"] },
  read(b, h, rope) {
    refuseSections(decoderKeys(b));
    const table = ropeTable(b, rope.angles());
    return { layerCount: leaveOutDrafting(b, h), perLayer: h.layers.map(() => ({ table })) };
  },
  checkpoints: {
    glm4: {
      pairsKept: true,
      scalings: [],
      partialRotary: 0.5,
      modules: {
        post_attention_norm: "post_self_attn_layernorm",
        post_ffw_norm: "post_mlp_layernorm",
      },
      traits: (config) => config.boolean("attention_bias", false) ? {} : { biases: [] },
    },
  },
};

/** Layers per period of PLaMo 3. The last layer of a period has no window. */
const PLAMO_PERIOD = 8;
/** Default rotary base of PLaMo 3's layers with a window. */
const NEAR_BASE = 10_000;

/**
 * PLaMo 3: GLM-4's layers with head norms and fused q, k and v. Layers with a window have their own rotary
 * base. A window counts the tokens before a row, as in the checkpoints; llama.cpp also counts the row itself.
 * Post-norm tensors have no `.weight` in their names. Source: mlx-lm, models/plamo3.py.
 */
const PLAMO3: Family = {
  architecture: "plamo3",
  traits: { norms: "both", headNorms: true, fusedHeads: true, fusedGate: true },
  read(b, h, rope) {
    const keys = decoderKeys(b);
    // PLaMo's YaRN does not round the pair limits between which frequencies change, unlike the YaRN that
    // compy computes.
    const { type, factor } = h.ropeScaling;
    if (type !== "none") keys.refuse("rope.scaling.factor", String(factor), "1 in this architecture");
    const window = keys.window();
    const slides = keys.windowLayers(h.blockCount, { period: PLAMO_PERIOD });
    const full = { table: ropeTable(b, rope.angles()) };
    const near = window === 0 ? full : {
      table: ropeTable(b, rope.angles({ base: keys.ropeBase(NEAR_BASE, "_swa") })),
      window: window + 1,
    };
    return { postNormSuffix: "", perLayer: slides.map((slides) => slides ? near : full) };
  },
};

/** Checks that the windows are where GGUF's readers expect them. */
export function withWindows(config: Config): Config {
  const pattern = config.get("sliding_window_pattern");
  if (pattern !== undefined && pattern !== PERIOD && pattern !== "LLLG") {
    config.refuseValue("sliding_window_pattern", `${PERIOD} or "LLLG"`);
  }
  refuseOtherWindows(oneRope(config), PERIOD);
  return config;
}

/** Checks that no layer has a window. */
function withoutWindows(config: Config): Config {
  refuseOtherWindows(oneRope(config), 1);
  return config;
}

function oneRope(config: Config): Config {
  const ropes = config.fields("rope_parameters");
  if (ropes?.has("full_attention") || ropes?.has("sliding_attention")) {
    config.refuse("rope_parameters", "one for each kind of layers", "the same for all layers");
  }
  return config;
}

/** Epsilon of Muse Glimmer's norms after blocks. GGUF files have no key for it. */
const POST_NORM_EPSILON = 1e-8;

/** Muse Glimmer norms heads without weights, then scales queries. The GGUF file's norm weights contain this scale. */
const MUSE_CHECKPOINT: Checkpoint = {
  keys: { activation: "hidden_activation" },
  shiftedNorms: "of layers",
  scalings: [],
  modules: { ffn_norm: "pre_feedforward_layernorm" },
  constants: (config) => ({
    attn_q_norm: config.positive("qk_scale_factor", MAX.scale, 3.87),
    attn_k_norm: 1,
  }),
  mustBe: [["post_norm_eps", POST_NORM_EPSILON, "GGUF files have no key for it"]],
  entries(config, { layers }) {
    const slides = readSlidingLayers(config, layers);
    const bases = config.get("layer_rope_theta");
    const same = (base: unknown, layer: number) => (base === 0) === !slides[layer];
    if (bases !== undefined && !(Array.isArray(bases) && bases.length === layers && bases.every(same))) {
      config.refuseValue("layer_rope_theta", "0 in the layers of full_attention, and only there");
    }
    return [
      ["attention.sliding_window", "UINT32", config.count("sliding_window", MAX.context)],
      ["attention.sliding_window_pattern", "BOOL", slides],
      ["logit_scale", "FLOAT32", config.positive("output_multiplier", MAX.scale)],
      ["final_logit_softcapping", "FLOAT32", config.positive("final_logit_softcapping", MAX.scale)],
    ];
  },
};

/**
 * Muse Glimmer: a normed embedding, norms before and after both blocks, gates on the attention output, and a softcap on
 * scaled logits. Layers without a window have no positions. Sources: Hugging Face transformers, models/muse_glimmer;
 * llama.cpp, src/models/muse-glimmer.cpp.
 */
const MUSE_GLIMMER: Family = {
  architecture: "muse-glimmer",
  traits: { norms: "both", headNorms: true, interleavedRope: true, outputGate: { activation: "sigmoid" } },
  ending: (keys) => ({
    logits: { scale: keys.scale("logit_scale", 1), softcap: keys.softcap("final_logit_softcapping") },
  }),
  read(b, h, rope) {
    const keys = windowed(b);
    const table = ropeTable(b, rope.angles({ base: keys.ropeBase(h.ropeFreqBase, "_swa") }));
    return {
      normedEmbedding: true,
      postNormEpsilon: POST_NORM_EPSILON,
      perLayer: windowsOf(keys, h.blockCount).map((window) => window ? { window, table } : {}),
    };
  },
  checkpoints: { muse_glimmer: MUSE_CHECKPOINT, muse_glimmer_text: MUSE_CHECKPOINT },
};

export const POST_NORMED: readonly Family[] = [OLMO2, EXAONE4, GLM4, PLAMO3, MUSE_GLIMMER];
