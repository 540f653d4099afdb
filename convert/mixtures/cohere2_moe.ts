import { type Checkpoint, MAX } from "../../engine/architectures/checkpoint.ts";
import { COHERE2MOE, COHERE_CHECKPOINT } from "../../engine/architectures/decoders/cohere.ts";
import { addExperts, addSharedExperts, expertEntries, readCounts } from "./experts.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { readSlidingLayers } from "../../engine/architectures/parts/layer_types.ts";
import { addFeedForward, convertDecoder } from "../decoder.ts";
import { entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import { draftLayers, SIGMOID } from "./sigmoid_experts.ts";
import type { TensorList } from "../tensor_list.ts";

const MAX_SHARED = 64;
/** Default of the layers per period. The last layer of a period has no window. */
const PERIOD = 4;

/** Converts North Mini and Command A+. */
export function convertCohere2Moe(config: Fields, list: TensorList, prefix: string): ModelParts {
  refuseOthers(config);
  const rms = config.has("rms_norm_eps");
  const ofDense = "prefix_dense_intermediate_size";
  const checkpoint: Checkpoint = {
    ...COHERE_CHECKPOINT,
    keys: {
      epsilon: rms ? "rms_norm_eps" : "layer_norm_eps",
      ...config.has(ofDense) && { feedForward: ofDense },
    },
    traits: () => ({ layerNorms: !rms }),
  };
  const experts = readCounts(config, { feedForward: "intermediate_size" });
  const shared = config.countFrom0("num_shared_experts", MAX_SHARED, 0);
  const layers = config.count("num_hidden_layers", MAX.layers);
  const dense = readDense(config, layers);
  const { entries, ...rest } = convertDecoder(config, list, prefix, COHERE2MOE, checkpoint, {
    feedForward(names, decoder, layer) {
      if (layer < dense) return addFeedForward(list, decoder, names);
      const mlp = `${names.from}mlp.`;
      addExperts(list, decoder, experts, names.block, mlp);
      if (shared === 0) return;
      addSharedExperts(list, decoder, shared * experts.feedForward, names.block, `${mlp}shared_experts.`);
    },
  });
  const key = (name: string) => `cohere2moe.${name}`;
  return {
    ...rest,
    leftOut: draftLayers(config, prefix, layers),
    entries: [
      ...entries,
      ...expertEntries("cohere2moe", experts),
      entry(key("expert_shared_count"), "UINT32", shared),
      entry(key("expert_gating_func"), "UINT32", SIGMOID),
      entry(key("expert_weights_norm"), "BOOL", config.boolean("norm_topk_prob", true)),
      entry(key("leading_dense_block_count"), "UINT32", dense),
      entry(key("attention.sliding_window"), "UINT32", config.count("sliding_window", MAX.context)),
      entry(
        key("attention.sliding_window_pattern"),
        "BOOL",
        readWindowed(config, layers, dense),
      ),
    ],
  };
}

function refuseOthers(config: Fields): void {
  const selection = "expert_selection_fn";
  if (config.get(selection) !== "sigmoid") {
    config.refuse(selection, inWords(config.get(selection)), `"sigmoid", as the published models have it`);
  }
  const strategy = "shared_expert_combination_strategy";
  config.mustBe(strategy, "average", "GGUF's readers average the outputs of chosen and shared experts");
  config.mustBe(
    "prefix_dense_sliding_window_pattern",
    1,
    "GGUF's readers expect positions in these layers",
  );
  config.mustBe("use_parallel_block", true, "attention and feed-forward read the same rows");
  config.mustBe("use_qk_norm", false, "norms of heads are not computed");
}

/** Returns the number of leading layers without experts. */
function readDense(config: Fields, layers: number): number {
  const name = "mlp_layer_types";
  const types = config.get(name);
  if (types === undefined) return config.countFrom0("first_k_dense_replace", layers, 0);
  const dense = Array.isArray(types) ? types.filter((type) => type === "dense").length : 0;
  const usual = (type: unknown, i: number) => type === (i < dense ? "dense" : "sparse");
  if (Array.isArray(types) && types.length === layers && types.every(usual)) return dense;
  config.refuse(name, inWords(types), `"dense" in some first of ${layers} layers, and then "sparse"`);
}

/** Returns which layers have a window. */
function readWindowed(config: Fields, layers: number, dense: number): boolean[] {
  const period = () => config.count("sliding_window_pattern", MAX.layers, PERIOD);
  return readSlidingLayers(config, layers, (i) => i >= dense && (i - dense + 1) % period() !== 0);
}
