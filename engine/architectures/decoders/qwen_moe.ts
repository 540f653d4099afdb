/** Decoders with experts in every layer, most of them Qwen's. */
import { readExpertHparams, readSharedWidth } from "../../gguf/hparams/expert_hparams.ts";
import { ropeTable } from "../../plan/ops/rope_table.ts";
import type { Chosen } from "../../plan/plan.ts";
import { decoderKeys, type Family } from "../family.ts";
import { experts as expertsOf, mixture, router } from "../parts/mixture.ts";
import { gatedSharedExpert, readWeighed } from "../parts/shared_experts.ts";
import { windowedLayers } from "../parts/windows.ts";
import { QKV_BIASES, textPart } from "./qwen.ts";

/**
 * Qwen1.5-MoE and Qwen2's 57B-A14B: Qwen2's decoder with experts weighed by the softmax over all. A shared
 * expert's output is scaled by a sigmoid gate. Source: Hugging Face transformers, models/qwen2_moe.
 */
export const QWEN2MOE: Family = {
  architecture: "qwen2moe",
  traits: { biases: QKV_BIASES },
  allows: { experts: true },
  read(b, h) {
    const experts = readExpertHparams(b.file, h, "softmax over all");
    const shared = readSharedWidth(b.file, h);
    const { divided } = readWeighed(decoderKeys(b));
    return {
      feedForward(x, addTo, name) {
        mixture(b, x, addTo, experts, name, { divided });
        gatedSharedExpert(b, x, addTo, shared, name);
      },
    };
  },
};

/**
 * Qwen3's mixtures of experts: the dense decoder with experts. The chosen weights are always divided by their
 * sum: files do not have the checkpoint's `norm_topk_prob`, and llama.cpp does the same. Source: "Qwen3"
 * (arXiv 2505.09388).
 */
export const QWEN3MOE: Family = {
  architecture: "qwen3moe",
  traits: { headNorms: true },
  allows: { experts: true },
  read(b, h) {
    const experts = readExpertHparams(b.file, h);
    return { feedForward: (x, addTo, name) => mixture(b, x, addTo, experts, name) };
  },
};

export const QWEN3VLMOE: Family = { ...textPart("qwen3vlmoe", QWEN3MOE, "qwen3_vl_moe"), images: "grid" };

/**
 * Mellum 2: Qwen3's mixture of experts with a window in three of four layers. Layers with a window do not use
 * YaRN. Source: Hugging Face transformers, models/mellum.
 */
export const MELLUM: Family = {
  ...QWEN3MOE,
  architecture: "mellum",
  read: (b, h, rope) => ({
    ...QWEN3MOE.read!(b, h, rope),
    perLayer: windowedLayers(b, h, rope, "rope.scaling.yarn_attn_factor"),
  }),
};

/**
 * OLMoE: every layer has experts of the feed-forward key's width, weighed by the softmax over all. Queries
 * and keys are normed across their heads. Sources: "OLMoE" (arXiv 2409.02060); Hugging Face transformers,
 * models/olmoe.
 */
export const OLMOE: Family = {
  architecture: "olmoe",
  traits: { rowNorms: true },
  allows: { experts: true },
  read(b, h) {
    const keys = decoderKeys(b);
    // A checkpoint may clamp queries, keys and values (`clip_qkv`), which compy does not compute.
    const bound = keys.metadata.getNumber(keys.name("attention.clamp_kqv"), 0);
    if (bound !== 0) keys.refuse("attention.clamp_kqv", String(bound), "0 in this architecture");
    const { count, used } = readExpertHparams(b.file, h, "softmax over all");
    const experts = { count, used, feedForwardLength: h.feedForwardLength };
    const divided = keys.metadata.getBoolean(keys.name("expert_weights_norm"), false);
    return { feedForward: (x, addTo, name) => mixture(b, x, addTo, experts, name, { divided }) };
  },
};

/**
 * MiniMax M2: partial rotation, one norm over all query heads and one over all key heads. Experts have
 * sigmoid weights and a bias on the choice. Source: Hugging Face transformers, models/minimax_m2.
 */
export const MINIMAX_M2: Family = {
  architecture: "minimax-m2",
  traits: { rowNorms: true },
  allows: { experts: true },
  read(b, h) {
    const experts = readExpertHparams(b.file, h, "sigmoid");
    return {
      feedForward: (x, addTo, name) =>
        mixture(b, x, addTo, experts, name, { sigmoid: true, bias: name("exp_probs_b.bias") }),
    };
  },
};

/** Layers per period of SmallThinker. The first layer of a period has neither a window nor positions. */
const PERIOD = 4;

/**
 * SmallThinker 4B and 21B: the router reads a layer's input rows, before their norm and before attention. Experts have
 * ReLU gates. Files without a window have positions in all layers. Sources: "SmallThinker" (arXiv 2507.20984);
 * llama.cpp, src/models/smallthinker.cpp; vLLM's model in the authors' repository (SJTU-IPADS/SmallThinker).
 */
export const SMALLTHINKER: Family = {
  architecture: "smallthinker",
  traits: {},
  allows: { experts: true },
  read(b, h, rope) {
    const keys = decoderKeys(b);
    const sigmoid = keys.metadata.getCount(keys.name("expert_gating_func"), 0) === 2;
    const experts = readExpertHparams(b.file, h, sigmoid ? "sigmoid" : "softmax over all");
    const table = ropeTable(b, rope.angles());
    const window = keys.window();
    const slides = window > 0 && keys.windowLayers(h.blockCount, { period: PERIOD, fullFirst: true });
    const near = window > 0
      ? { table: ropeTable(b, rope.angles({ base: keys.ropeBase(h.ropeFreqBase, "_swa") })), window }
      : { table };
    let chosen: Chosen | undefined;
    return {
      perLayer: h.layers.map((_, layer) => slides && !slides[layer] ? {} : near),
      beforeLayer: (x, name) => void (chosen = router(b, x, experts, name, { sigmoid })),
      feedForward: (x, addTo, name) =>
        void expertsOf(b, x, addTo, chosen!, experts, name, { activation: "relu" }),
    };
  },
};

export const QWEN_MIXTURES: readonly Family[] = [
  QWEN2MOE,
  QWEN3MOE,
  QWEN3VLMOE,
  MELLUM,
  OLMOE,
  MINIMAX_M2,
  SMALLTHINKER,
];
