import { type Checkpoint, MAX as LIMITS } from "../../engine/architectures/checkpoint.ts";
import {
  HUNYUAN_MOE,
  HUNYUAN_NORMS,
  withStretchedBase,
} from "../../engine/architectures/decoders/hunyuan.ts";
import {
  MELLUM,
  OLMOE,
  QWEN2MOE,
  QWEN3MOE,
  QWEN3VLMOE,
} from "../../engine/architectures/decoders/qwen_moe.ts";
import type { Family } from "../../engine/architectures/family.ts";
import {
  addExperts,
  addGatedExperts,
  addSharedExperts,
  addTurnedExperts,
  expertEntries,
  type ExpertsConfig,
  gatedExpertEntries,
  readCounts,
  readExperts,
  readSharedLength,
} from "./experts.ts";
import { Fields, inWords } from "../checkpoint/json.ts";
import { readSlidingLayers } from "../../engine/architectures/parts/layer_types.ts";
import { convertDecoder } from "../decoder.ts";
import { entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

/** Converts Qwen3's mixtures of experts. */
export function convertQwen3Moe(config: Fields, list: TensorList, prefix: string): ModelParts {
  return convert(config, list, prefix, QWEN3MOE, readExperts(config));
}

/** Converts Qwen2's mixtures of experts, whose shared expert has a gate. */
export function convertQwen2Moe(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("norm_topk_prob", false, "GGUF's readers do not divide the chosen weights by their sum");
  config.mustBe("qkv_bias", true, "queries, keys and values have biases");
  const experts = { ...readExperts(config, true), shared: readSharedLength(config) };
  const parts = convertDecoder(config, list, prefix, QWEN2MOE, {}, {
    feedForward: ({ block, from }, decoder) => addGatedExperts(list, decoder, experts, block, `${from}mlp.`),
  });
  return { ...parts, entries: [...parts.entries, ...gatedExpertEntries(QWEN2MOE.architecture, experts)] };
}

/** Converts the text part of Qwen3-VL's mixtures of experts. Each expert's matrices are transposed. */
export function convertQwen3VlMoe(config: Fields, list: TensorList, prefix: string): ModelParts {
  const checkpoint = QWEN3VLMOE.checkpoints!.qwen3_vl_moe;
  return convert(
    config,
    list,
    prefix,
    QWEN3VLMOE,
    readExperts(config, true),
    checkpoint,
    (list, decoder, experts, block, mlp) => addTurnedExperts(list, decoder, experts, block, mlp),
  );
}

/** Converts OLMoE, whose experts are weighed by the softmax over all. */
export function convertOlmoe(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("clip_qkv", null, "bounds of queries, keys and values are not computed");
  config.mustBe("norm_topk_prob", false, "GGUF's readers do not divide the chosen weights by their sum");
  return convert(config, list, prefix, OLMOE, readCounts(config, { feedForward: "intermediate_size" }));
}

/** Converts Hunyuan-A13B: experts in every layer, and a shared expert. */
export function convertHunyuanMoe(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("use_qk_norm", true, "models without norms of heads are not converted");
  for (const name of ["use_cla", "use_mla"]) {
    config.mustBe(name, false, "each layer has its own keys and values");
  }
  config.mustBe("moe_layer_num_skipped", 0, "all layers must have experts");
  const checkpoint = { modules: HUNYUAN_NORMS, prepare: withStretchedBase };
  const parts = convert(
    config,
    list,
    prefix,
    HUNYUAN_MOE,
    readHunyuanExperts(config),
    checkpoint,
    (list, decoder, experts, block, mlp) => {
      addExperts(list, decoder, experts, block, mlp, { router: `${mlp}gate.wg` });
      addSharedExperts(list, decoder, decoder.feedForward, block, `${mlp}shared_mlp.`);
    },
  );
  const counts = { expert_shared_count: 1, expert_shared_feed_forward_length: parts.decoder.feedForward };
  const entries = Object.entries(counts).map(([name, n]) => entry(`hunyuan-moe.${name}`, "UINT32", n));
  return { ...parts, entries: [...parts.entries, ...entries] };
}

/** Reads the experts' shape. Some keys may be an array with one number per layer; all must be equal. */
function readHunyuanExperts(config: Fields): ExpertsConfig {
  const ofAll = Object.entries(config.object).map(([name, value]) => {
    if (!Array.isArray(value) || !PER_LAYER.includes(name)) return [name, value];
    if (value.some((one) => one !== value[0])) {
      config.refuse(name, "different numbers", "the same for all layers");
    }
    return [name, value[0]];
  });
  const known = new Fields(config.file, Object.fromEntries(ofAll));
  known.mustBe("num_shared_expert", 1, "models have one shared expert");
  const own = "moe_intermediate_size";
  const feedForward = known.has(own) ? own : "intermediate_size";
  return readCounts(known, { used: "moe_topk", feedForward });
}

const PER_LAYER = ["num_experts", "moe_topk", "moe_intermediate_size", "num_shared_expert"];

/** Converts Mellum 2: Qwen3's mixture. Layers have a window, or else YaRN where config.json has it. */
export function convertMellum(config: Fields, list: TensorList, prefix: string): ModelParts {
  const sparse = config.get("mlp_layer_types") ?? [];
  if (!Array.isArray(sparse) || sparse.some((type) => type !== "sparse")) {
    config.refuse("mlp_layer_types", inWords(sparse), `"sparse" for each layer`);
  }
  const layers = config.count("num_hidden_layers", LIMITS.layers);
  const slides = readSlidingLayers(config, layers, () => false);
  const known = withFullRope(config, slides.includes(true));
  config.mustBe("norm_topk_prob", true, "GGUF's readers divide the chosen weights by their sum");
  const parts = convert(known, list, prefix, MELLUM, readExperts(known, true), {
    scalings: ["linear", "yarn"],
  });
  if (!slides.includes(true)) return parts;
  const window = config.count("sliding_window", LIMITS.context);
  return {
    ...parts,
    entries: [
      ...parts.entries,
      entry("mellum.attention.sliding_window", "UINT32", window),
      entry("mellum.attention.sliding_window_pattern", "BOOL", slides),
    ],
  };
}

/**
 * Returns config.json with the rotary keys of layers without a window. The rotary keys of other layers may differ
 * only by YaRN.
 */
function withFullRope(config: Fields, windows: boolean): Fields {
  if (windows) config.mustBe("use_sliding_window", true, "layer_types names layers with a window");
  const ropes = config.fields("rope_parameters") ??
    config.refuse("rope_parameters", "nothing", "an object of full_attention and sliding_attention");
  const full = ropes.fields("full_attention") ?? ropes.refuse("full_attention", "nothing", "an object");
  if (windows) {
    const near = ropes.fields("sliding_attention") ??
      ropes.refuse("sliding_attention", "nothing", "an object");
    near.mustBe("rope_type", "default", "layers with a window do not use YaRN");
    if (near.get("rope_theta") !== full.get("rope_theta")) {
      const allowed = `${inWords(full.get("rope_theta"))}, as that of full_attention`;
      near.refuse("rope_theta", inWords(near.get("rope_theta")), allowed);
    }
  }
  return new Fields(config.file, {
    ...config.object,
    use_sliding_window: null,
    rope_parameters: full.object,
    num_experts: config.get("num_local_experts") ?? config.get("num_experts"),
  });
}

/** Converts a decoder with experts in every feed-forward block. */
function convert(
  config: Fields,
  list: TensorList,
  prefix: string,
  family: Family,
  experts: ExpertsConfig,
  checkpoint: Checkpoint = {},
  add: typeof addExperts = addExperts,
): ModelParts {
  const parts = convertDecoder(config, list, prefix, family, checkpoint, {
    feedForward: ({ block, from }, decoder) => add(list, decoder, experts, block, `${from}mlp.`),
  });
  return { ...parts, entries: [...parts.entries, ...expertEntries(family.architecture, experts)] };
}
