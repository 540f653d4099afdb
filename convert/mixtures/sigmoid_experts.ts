import { type Checkpoint, MAX as LIMITS } from "../../engine/architectures/checkpoint.ts";
import {
  addExperts,
  addSharedExperts,
  expertEntries,
  type ExpertParts,
  type ExpertsConfig,
  MAX,
  readCounts,
} from "./experts.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { addFeedForward, convertDecoder, type OwnBlocks } from "../decoder.ts";
import { DEEPSEEK } from "../../engine/architectures/decoders/deepseek.ts";
import { QKV_BIASES } from "../../engine/architectures/decoders/qwen.ts";
import {
  BAILINGMOE2,
  DOTS1,
  EXAONE_MOE,
  GLM4MOE,
  HY_V3,
} from "../../engine/architectures/decoders/sigmoid_experts.ts";
import type { Family } from "../../engine/architectures/family.ts";
import { readSlidingLayers } from "../../engine/architectures/parts/layer_types.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { LeftOut, ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

const MAX_SHARED = 64;
const MAX_DRAFTS = 16;
const MAX_SCALE = 1e4;
/** Codes of `expert_gating_func` for softmax and sigmoid. */
export const [SOFTMAX, SIGMOID] = [1, 2];
/** Share of each head that is rotated, by GLM-4.5's default. llama.cpp uses it for Ling, too. */
const PARTIAL_ROTARY = 0.5;

/** Converts GLM-4.5, 4.6 and 4.7, including Air. */
export function convertGlm4Moe(config: Fields, list: TensorList, prefix: string): ModelParts {
  const checkpoint: Checkpoint = {
    partialRotary: PARTIAL_ROTARY,
    traits: (config) => ({
      headNorms: config.boolean("use_qk_norm", false),
      biases: config.boolean("attention_bias", false) ? QKV_BIASES : [],
    }),
  };
  return convertGlmExperts(config, list, prefix, GLM4MOE, checkpoint);
}

/** Converts dots.llm1. */
export function convertDots1(config: Fields, list: TensorList, prefix: string): ModelParts {
  const layers = config.count("num_hidden_layers", LIMITS.layers);
  const first = config.countFrom0("max_window_layers", LIMITS.layers, layers);
  const slides = (layer: number) => config.has("sliding_window") && layer >= first;
  if (readSlidingLayers(config, layers, slides).includes(true)) {
    config.refuse("max_window_layers", String(first), `at least ${layers}; windows are not computed`);
  }
  return convertGlmExperts(config, list, prefix, DOTS1, {});
}

/** Converts a decoder with GLM-4.5's experts. */
function convertGlmExperts(
  config: Fields,
  list: TensorList,
  prefix: string,
  family: Family,
  checkpoint: Checkpoint,
): ModelParts {
  for (const name of ["n_group", "topk_group"]) {
    config.mustBe(name, 1, "experts are not chosen out of groups");
  }
  const experts = readSharedExperts(config, {
    count: "n_routed_experts",
    shared: "n_shared_experts",
    most: MAX_SHARED,
  });
  return convertSharedExperts(config, list, prefix, family, checkpoint, {
    ...experts,
    bias: "gate.e_score_correction_bias",
    sharedWidth: experts.shared * experts.feedForward,
  }, []);
}

/** Converts Ling and Ring 2.0. Earlier models have the same model type, but softmax-weighted experts. */
export function convertBailingMoe2(config: Fields, list: TensorList, prefix: string): ModelParts {
  const score = "score_function";
  if (config.get(score) !== "sigmoid") {
    config.refuse(score, inWords(config.get(score)), `"sigmoid", as Ling 2.0 has it`);
  }
  for (const name of ["use_bias", "use_qkv_bias"]) config.mustBe(name, false, "biases are not converted");
  config.mustBe("use_qk_norm", true, "models without norms of heads are not converted");
  const checkpoint: Checkpoint = {
    partialRotary: PARTIAL_ROTARY,
    modules: {
      token_embd: "word_embeddings",
      attn_qkv: "attention.query_key_value",
      attn_output: "attention.dense",
      attn_q_norm: "attention.query_layernorm",
      attn_k_norm: "attention.key_layernorm",
    },
  };
  const experts = readSharedExperts(config, {
    count: "num_experts",
    shared: "num_shared_experts",
    // With several shared experts, config.json's width could mean the width of one expert or of all.
    most: 1,
  });
  const width = config.count("moe_shared_expert_intermediate_size", MAX.feedForward, experts.feedForward);
  const groups = config.count("n_group", experts.count, 1);
  const counts = {
    expert_shared_feed_forward_length: width,
    expert_group_count: groups,
    expert_group_used_count: config.count("topk_group", groups, groups),
  };
  return convertSharedExperts(
    config,
    list,
    prefix,
    BAILINGMOE2,
    checkpoint,
    { ...experts, bias: "gate.expert_bias", sharedWidth: experts.shared * width },
    Object.entries(counts).map(([name, value]) => entry(`bailingmoe2.${name}`, "UINT32", value)),
  );
}

/** The fields that count the experts of K-EXAONE and Hy3. */
const COUNTED = { count: "num_experts", shared: "num_shared_experts", most: MAX_SHARED };

/** Converts K-EXAONE. */
export function convertExaoneMoe(config: Fields, list: TensorList, prefix: string): ModelParts {
  for (const name of ["n_group", "topk_group"]) {
    config.mustBe(name, 1, "experts are not chosen out of groups");
  }
  const layers = config.count("num_hidden_layers", LIMITS.layers);
  const window = config.count("sliding_window", LIMITS.context);
  const slides = readSlidingLayers(config, layers);
  const experts = readSharedExperts(withDenseCount(config, layers), COUNTED);
  const width = experts.shared * experts.feedForward;
  return convertSharedExperts(config, list, prefix, EXAONE_MOE, {}, {
    ...experts,
    bias: "e_score_correction_bias",
    sharedWidth: width,
  }, [
    entry("exaone-moe.attention.sliding_window", "UINT32", window),
    entry("exaone-moe.attention.sliding_window_pattern", "BOOL", slides),
    entry("exaone-moe.expert_shared_feed_forward_length", "UINT32", width),
  ]);
}

/** Converts Hy3. */
export function convertHyV3(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("qk_norm", true, "GGUF's readers expect norms of heads");
  const layers = config.count("num_hidden_layers", LIMITS.layers);
  const known = withDenseCount(config, layers).with({
    norm_topk_prob: config.get("route_norm"),
    routed_scaling_factor: config.get("router_scaling_factor"),
  });
  const experts = readSharedExperts(known, COUNTED);
  const width = experts.shared * experts.feedForward;
  return convertSharedExperts(config, list, prefix, HY_V3, {}, {
    ...experts,
    bias: "expert_bias",
    biasName: "exp_probs_b",
    router: "router.gate",
    sharedModule: "shared_mlp",
    sharedWidth: width,
  }, [entry("hy_v3.expert_shared_feed_forward_length", "UINT32", width)]);
}

/** Returns config.json with the number of leading dense layers, if it lists the kind of each layer; by default 1. */
export function withDenseCount(config: Fields, layers: number): Fields {
  const [name, count] = ["mlp_layer_types", "first_k_dense_replace"];
  const types = config.get(name);
  if (types === undefined) return config.withDefaults({ [count]: 1 });
  const dense = Array.isArray(types) ? types.filter((type) => type === "dense").length : 0;
  const usual = (type: unknown, layer: number) => type === (layer < dense ? "dense" : "sparse");
  if (Array.isArray(types) && types.length === layers && types.every(usual)) {
    return config.with({ [count]: dense });
  }
  config.refuse(
    name,
    inWords(types),
    `"dense" for the first of the ${layers} layers, "sparse" for the others`,
  );
}

/** Converts DeepSeekMoE, DeepSeek's first mixture of experts. */
export function convertDeepseek(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("scoring_func", "softmax", "GGUF's readers support no other scores of this architecture");
  config.mustBe("norm_topk_prob", false, "GGUF's readers do not divide the chosen weights by their sum");
  config.mustBe("moe_layer_freq", 1, "all layers after the dense ones must have experts");
  const experts = readSharedExperts(config, {
    count: "n_routed_experts",
    shared: "n_shared_experts",
    most: MAX_SHARED,
  });
  return convertSharedExperts(config, list, prefix, DEEPSEEK, {}, {
    ...experts,
    divided: false,
    gating: SOFTMAX,
    sharedWidth: experts.shared * experts.feedForward,
  }, []);
}

/** Shape of experts after leading dense layers. */
export interface SharedExpertsConfig extends ExpertsConfig {
  /** Number of shared experts. */
  readonly shared: number;
  /** Number of leading layers without experts. */
  readonly dense: number;
  /** Whether the chosen weights are divided by their sum. */
  readonly divided: boolean;
  /** Factor on the experts' weights. */
  readonly scale: number;
}

export function readSharedExperts(
  config: Fields,
  { most, ...names }: { readonly count: string; readonly shared: string; readonly most: number },
): SharedExpertsConfig {
  return {
    ...readCounts(config, { count: names.count }),
    shared: config.countFrom0(names.shared, most),
    dense: config.countFrom0("first_k_dense_replace", config.count("num_hidden_layers", LIMITS.layers)),
    divided: config.boolean("norm_topk_prob", true),
    scale: config.positive("routed_scaling_factor", MAX_SCALE, 1),
  };
}

/**
 * Converts a decoder with leading dense layers, followed by layers with experts. `further` adds other tensors of each
 * layer, before those of its feed-forward block.
 */
export function convertSharedExperts(
  config: Fields,
  list: TensorList,
  prefix: string,
  family: Family,
  checkpoint: Checkpoint,
  experts: SharedExpertsConfig & {
    /** Module name of the bias on the choice of experts; undefined: no bias. */
    readonly bias?: string;
    /** The bias's name in the GGUF file; by default "exp_probs_b.bias". */
    readonly biasName?: string;
    /** Modules of the router and of the shared experts; by default "gate" and "shared_experts". */
    readonly router?: string;
    readonly sharedModule?: string;
    /** The experts' module; by default "mlp". */
    readonly module?: string;
    /** Module names of an expert's matrices; by default gate_proj, up_proj and down_proj. */
    readonly parts?: ExpertParts;
    readonly sharedWidth: number;
    /** GGUF's code for weighing experts; by default sigmoids. */
    readonly gating?: number;
  },
  entries: readonly Entry[],
  attention?: OwnBlocks["attention"],
  further?: OwnBlocks["feedForward"],
): ModelParts {
  const parts = convertDecoder(config, list, prefix, family, checkpoint, {
    attention,
    feedForward(names, decoder, layer) {
      const { block, from } = names;
      further?.(names, decoder, layer);
      if (layer < experts.dense) return addFeedForward(list, decoder, names, checkpoint);
      const { bias, biasName = "exp_probs_b.bias", router = "gate", sharedModule = "shared_experts" } =
        experts;
      const mlp = `${from}${experts.module ?? "mlp"}.`;
      addExperts(list, decoder, experts, block, mlp, { router: mlp + router, parts: experts.parts });
      if (bias) list.vector(block + biasName, mlp + bias, experts.count);
      if (experts.sharedWidth === 0) return;
      addSharedExperts(list, decoder, experts.sharedWidth, block, `${mlp}${sharedModule}.`);
    },
  });
  const key = (name: string) => `${family.architecture}.${name}`;
  return {
    ...parts,
    leftOut: draftLayers(config, prefix, parts.decoder.layers),
    entries: [
      ...parts.entries,
      ...expertEntries(family.architecture, experts),
      entry(key("expert_shared_count"), "UINT32", experts.shared),
      entry(key("leading_dense_block_count"), "UINT32", experts.dense),
      entry(key("expert_gating_func"), "UINT32", experts.gating ?? SIGMOID),
      entry(key("expert_weights_norm"), "BOOL", experts.divided),
      entry(key("expert_weights_scale"), "FLOAT32", experts.scale),
      ...entries,
    ],
  };
}

/** Returns patterns of the extra layers that draft tokens, which are left out. */
export function draftLayers(config: Fields, prefix: string, layers: number): LeftOut {
  const name = config.has("num_mtp_layers") ? "num_mtp_layers" : "num_nextn_predict_layers";
  const drafts = config.countFrom0(name, MAX_DRAFTS, 0);
  return Array.from({ length: drafts }, (_, i) => {
    const start = `${prefix}layers.${layers + i}.`.replaceAll(".", "\\.");
    return ["multi-token prediction", new RegExp(`^${start}`)] as const;
  });
}
