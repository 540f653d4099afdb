import { MAX } from "../../engine/architectures/checkpoint.ts";
import { addExperts, addSharedExperts, expertEntries, type ExpertsConfig } from "./experts.ts";
import type { Fields } from "../checkpoint/json.ts";
import { addFeedForward, convertDecoder } from "../decoder.ts";
import { ERNIE45_MOE } from "../../engine/architectures/decoders/ernie45_moe.ts";
import { ERNIE45_CHECKPOINT } from "../../engine/architectures/decoders/llama.ts";
import { entry } from "../write/metadata.ts";
import type { LeftOut, ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

const MAX_EXPERTS = 4096;
const LEFT_OUT: LeftOut = [
  ["multi-token prediction", /^model\.mtp_(block|emb_norm|hidden_norm|linear_proj)\./],
];

interface ErnieExperts extends ExpertsConfig {
  /** Number of shared experts, which are stored as one. */
  readonly shared: number;
  /** Number of the first layer that may have experts. */
  readonly start: number;
  /** Layers per period from `start` on. The last layer of a period has experts. */
  readonly interval: number;
}

/** Converts ERNIE 4.5's mixtures of experts. */
export function convertErnie45Moe(config: Fields, list: TensorList, prefix: string): ModelParts {
  const { architecture } = ERNIE45_MOE;
  const experts = readExperts(config, config.count("num_hidden_layers", MAX.layers));
  const shared = experts.shared * experts.feedForward;
  const parts = convertDecoder(config, list, prefix, ERNIE45_MOE, ERNIE45_CHECKPOINT, {
    feedForward({ block, from }, decoder, layer) {
      if (layer < experts.start || (layer + 1) % experts.interval !== 0) {
        return addFeedForward(list, decoder, { block, from });
      }
      addExperts(list, decoder, experts, block, `${from}mlp.`);
      const bias = `${from}mlp.moe_statics.e_score_correction_bias`;
      if (list.finder.has(bias)) list.vector(`${block}exp_probs_b.bias`, bias, experts.count);
      if (shared > 0) addSharedExperts(list, decoder, shared, block, `${from}mlp.shared_experts.`);
    },
  });
  const counts = {
    expert_shared_count: experts.shared,
    expert_shared_feed_forward_length: shared,
    leading_dense_block_count: experts.start,
    interleave_moe_layer_step: experts.interval,
  };
  return {
    ...parts,
    leftOut: LEFT_OUT,
    entries: [
      ...parts.entries,
      ...expertEntries(architecture, experts),
      ...Object.entries(counts).map(([name, value]) => entry(`${architecture}.${name}`, "UINT32", value)),
    ],
  };
}

/** Reads the experts' shape. Experts must continue to the last layer, because GGUF has no key for their end. */
function readExperts(config: Fields, layers: number): ErnieExperts {
  const end = "moe_layer_end_index";
  if (config.get(end) !== -1) config.mustBe(end, layers - 1, "GGUF has no key for a last layer with experts");
  const count = config.count("moe_num_experts", MAX_EXPERTS);
  return {
    count,
    used: config.count("moe_k", count),
    feedForward: config.count("moe_intermediate_size", MAX.feedForward),
    shared: config.countFrom0("moe_num_shared_experts", MAX_EXPERTS),
    start: config.countFrom0("moe_layer_start_index", layers),
    interval: config.count("moe_layer_interval", layers, 1),
  };
}
