/** Hunyuan's models of 2025: heads are normed after rotation. */
import { readExpertHparams, readSharedWidth } from "../../gguf/hparams/expert_hparams.ts";
import { type Config, MAX } from "../checkpoint.ts";
import type { Family } from "../family.ts";
import { sharedMixture } from "../parts/shared_experts.ts";
import type { Traits } from "../traits.ts";

const LAYERS: Traits = { headNorms: true, normsLast: true };
const HEAD_NORMS = "models without norms of heads are not converted";

/** Modules that all Hunyuan checkpoints name differently. */
export const HUNYUAN_NORMS = {
  attn_q_norm: "self_attn.query_layernorm",
  attn_k_norm: "self_attn.key_layernorm",
};

/** The dense models. Source: Hugging Face transformers, models/hunyuan_v1_dense. */
const HUNYUAN_DENSE: Family = {
  architecture: "hunyuan-dense",
  traits: LAYERS,
  checkpoints: {
    hunyuan_v1_dense: {
      modules: HUNYUAN_NORMS,
      mustBe: [
        ["use_qk_norm", true, HEAD_NORMS],
        ["use_cla", false, "layers that read another layer's keys and values are not computed"],
        ["num_experts", 1, "mixtures of experts are not converted"],
      ],
      prepare: withStretchedBase,
    },
  },
};

/**
 * Hunyuan-A13B: the dense decoder with experts in every layer, weighed by the softmax over the chosen ones,
 * and one shared expert. Source: Hugging Face transformers, models/hunyuan_v1_moe.
 */
export const HUNYUAN_MOE: Family = {
  architecture: "hunyuan-moe",
  traits: LAYERS,
  allows: { experts: true },
  read(b, h) {
    const chosen = readExpertHparams(b.file, h, "softmax", ["expert_shared_count"]);
    const experts = { ...chosen, shared: readSharedWidth(b.file, h) };
    return { feedForward: (x, addTo, name) => sharedMixture(b, x, experts, name, { addTo }, {}) };
  },
};

/**
 * Returns config.json with Hunyuan's "dynamic" scaling folded into the rotary base. The base is the same for all
 * context lengths.
 */
export function withStretchedBase(config: Config): Config {
  const rope = config.fields("rope_parameters") ?? config.fields("rope_scaling");
  if (!rope || (rope.get("rope_type") ?? rope.get("type")) !== "dynamic") return config;
  const alpha = rope.positive("alpha", MAX.scale);
  const base = (rope.has("rope_theta") ? rope : config).positive("rope_theta", MAX.base, 10_000);
  const shared = config.count("hidden_size", MAX.hidden) / config.count("num_attention_heads", MAX.heads);
  const dim = config.count("head_dim", MAX.headDim, shared);
  const rope_theta = base * alpha ** (dim / (dim - 2));
  return config.with({ rope_parameters: null, rope_scaling: null, rope_theta });
}

export const HUNYUANS: readonly Family[] = [HUNYUAN_DENSE, HUNYUAN_MOE];
