import { type Checkpoint, MAX as LIMITS } from "../../engine/architectures/checkpoint.ts";
import { SMALLTHINKER } from "../../engine/architectures/decoders/qwen_moe.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { convertDecoder } from "../decoder.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";
import { entry } from "../write/metadata.ts";
import { addExperts, expertEntries, readCounts } from "./experts.ts";
import { SIGMOID, SOFTMAX } from "./sigmoid_experts.ts";

/** Layers per period. The first layer of each period has neither a window nor rotary positions. */
const PERIOD = 4;
const PARTS = { gate: "gate", up: "up", down: "down" };

/**
 * Converts SmallThinker. Sources: llama.cpp, conversion/smallthinker.py; vLLM's model in the authors' repository
 * (SJTU-IPADS/SmallThinker).
 */
export function convertSmallThinker(config: Fields, list: TensorList, prefix: string): ModelParts {
  const layers = config.count("num_hidden_layers", LIMITS.layers);
  const experts = readCounts(config, {
    count: "moe_num_primary_experts",
    used: "moe_num_active_primary_experts",
    feedForward: "moe_ffn_hidden_size",
  });
  config.mustBe("moe_enable_secondary_experts", false, "experts have no parts of their own");
  config.mustBe("norm_topk_prob", true, "the weights of chosen experts are divided by their sum");
  const windows = readLayout(config, "sliding_window_layout", layers);
  if (windows) readLayout(config, "rope_layout", layers, true);
  const checkpoint: Checkpoint = {
    keys: { feedForward: "moe_ffn_hidden_size" },
    prepare: (config) => config.with({ hidden_act: null }),
  };
  const parts = convertDecoder(config, list, prefix, SMALLTHINKER, checkpoint, {
    feedForward({ block, from }, decoder) {
      const moe = `${from}block_sparse_moe.`;
      addExperts(list, decoder, experts, block, moe, { router: `${moe}primary_router`, parts: PARTS });
    },
  });
  const softmax = config.boolean("moe_primary_router_apply_softmax", false);
  const key = (name: string) => `smallthinker.${name}`;
  return {
    ...parts,
    entries: [
      ...parts.entries,
      ...expertEntries("smallthinker", experts),
      entry(key("expert_gating_func"), "UINT32", softmax ? SOFTMAX : SIGMOID),
      ...windows
        ? [
          entry(
            key("attention.sliding_window"),
            "UINT32",
            config.count("sliding_window_size", LIMITS.context),
          ),
        ]
        : [],
    ],
  };
}

/**
 * Returns whether the layout has any 1. Throws unless it has 0 for the first layer of each period and 1 for the others.
 * A layout of zeros is valid too, except with `required`.
 */
function readLayout(config: Fields, name: string, layers: number, required = false): boolean {
  const layout = config.get(name) ?? [];
  const some = Array.isArray(layout) && layout.some((flag) => flag !== 0);
  if (!some && !required) return false;
  const usual = (flag: unknown, layer: number) => flag === Number(layer % PERIOD !== 0);
  if (Array.isArray(layout) && layout.length === layers && layout.every(usual)) return true;
  return config.refuse(name, inWords(layout), `0 in the first of every ${PERIOD} layers, 1 in the others`);
}
