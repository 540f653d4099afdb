import { type Checkpoint, MAX as LIMITS } from "../../engine/architectures/checkpoint.ts";
import { MINIMAX_M2 } from "../../engine/architectures/decoders/qwen_moe.ts";
import { MINIMAX_M3 } from "../../engine/architectures/decoders/sigmoid_experts.ts";
import type { Fields } from "../checkpoint/json.ts";
import { inWords } from "../checkpoint/json.ts";
import { convertDecoder } from "../decoder.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";
import { entry } from "../write/metadata.ts";
import { addExperts, expertEntries, readCounts } from "./experts.ts";
import { convertSharedExperts, SIGMOID, withDenseCount } from "./sigmoid_experts.ts";

/** Default rotary base of MiniMax's configuration classes. */
const MINIMAX_ROPE_BASE = 5_000_000;
/** Module names of an expert's matrices. */
const PARTS = { gate: "w1", up: "w3", down: "w2" };
const MAX_SHARED = 64;
/** The clamped SwiGLU's constants. GGUF files have no keys for them. */
const UNIT = { swiglu_alpha: 1.702, swiglu_limit: 7 };
/** Options of the indexer's choice of blocks. GGUF files have no keys for them. */
const CHOICE = { sparse_init_block: 0, sparse_score_type: "max" };
/** Names of the indexer's fields in MiniMax M3's config.json: transformers' name, then the publisher's. */
const INDEXER = {
  head_count: ["index_n_heads", "sparse_num_index_heads"],
  key_length: ["index_head_dim", "sparse_index_dim"],
  top_k: ["index_topk_blocks", "sparse_topk_blocks"],
  block_size: ["index_block_size", "sparse_block_size"],
  local_blocks: ["index_local_blocks", "sparse_local_block"],
} as const;

/** Converts MiniMax M2. */
export function convertMinimaxM2(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("scoring_func", "sigmoid", "sigmoids weigh experts");
  config.mustBe("use_routing_bias", true, "GGUF's readers expect the bias of the choice");
  config.mustBe("use_qk_norm", true, "GGUF's readers expect norms of queries and keys");
  config.mustBe("qk_norm_type", "per_layer", "GGUF's readers support no other norms of queries and keys");
  config.mustBe("shared_intermediate_size", 0, "shared experts are not computed");
  const kinds = config.get("attn_type_list") ?? [];
  if (!Array.isArray(kinds) || kinds.some((kind) => kind !== 1)) {
    config.refuse("attn_type_list", inWords(kinds), "1 for each layer, as MiniMax M2 has it");
  }
  const headDim = config.count("head_dim", LIMITS.headDim);
  const experts = readCounts(config, { count: "num_local_experts", feedForward: "intermediate_size" });
  const checkpoint: Checkpoint = {
    ropeBase: MINIMAX_ROPE_BASE,
    partialRotary: config.count("rotary_dim", headDim, headDim) / headDim,
  };
  const parts = convertDecoder(config, list, prefix, MINIMAX_M2, checkpoint, {
    feedForward({ block, from: layer }, decoder) {
      const from = `${layer}block_sparse_moe.`;
      addExperts(list, decoder, experts, block, from, { parts: PARTS });
      list.vector(`${block}exp_probs_b.bias`, `${from}e_score_correction_bias`, experts.count);
    },
  });
  return {
    ...parts,
    entries: [
      ...parts.entries,
      ...expertEntries("minimax-m2", experts),
      entry("minimax-m2.expert_gating_func", "UINT32", SIGMOID),
    ],
  };
}

/** Converts the text part of MiniMax M3. Sources: Hugging Face transformers, models/minimax_m3_vl; llama.cpp,
 * conversion/minimax.py. */
export function convertMinimaxM3(config: Fields, list: TensorList, prefix: string): ModelParts {
  for (const [name, value] of Object.entries(UNIT)) {
    config.mustBe(name, value, "GGUF files have no key for it");
  }
  const layers = config.count("num_hidden_layers", LIMITS.layers);
  const sparse = config.fields("sparse_attention_config");
  for (const [name, value] of Object.entries(CHOICE)) {
    sparse?.mustBe(name, value, "GGUF files have no key for it");
  }
  const indexer = Object.entries(INDEXER).map(([name, [own, published]]): [string, number] => {
    return [
      name,
      sparse?.has(published) ? sparse.count(published, LIMITS.context) : config.count(own, LIMITS.context),
    ];
  });
  const { head_count: heads, key_length: headDim } = Object.fromEntries(indexer);
  const { dense, known } = denseLayers(config, layers);
  const experts = readCounts(config, { count: "num_local_experts", feedForward: "intermediate_size" });
  const width = config.count("shared_intermediate_size", LIMITS.feedForward, experts.feedForward);
  if (width % experts.feedForward !== 0) {
    config.refuse("shared_intermediate_size", String(width), `a multiple of ${experts.feedForward}`);
  }
  const shared = config.countFrom0("n_shared_experts", MAX_SHARED, 1) * width / experts.feedForward;
  const size = config.count("head_dim", LIMITS.headDim);
  const checkpoint: Checkpoint = {
    ropeBase: MINIMAX_ROPE_BASE,
    partialRotary: config.count("rotary_dim", size, size) / size,
    shiftedNorms: true,
    keys: { feedForward: "dense_intermediate_size" },
    prepare: (config) => config.with({ hidden_act: null }),
  };
  const plusOne = { map: (weight: number) => weight + 1 };
  return convertSharedExperts(
    known,
    list,
    prefix,
    MINIMAX_M3,
    checkpoint,
    {
      ...experts,
      shared,
      dense,
      divided: true,
      scale: config.positive("routed_scaling_factor", LIMITS.scale, 1),
      module: "block_sparse_moe",
      parts: PARTS,
      bias: "e_score_correction_bias",
      sharedWidth: shared * experts.feedForward,
    },
    indexer.map(([name, value]) => entry(`minimax-m3.attention.indexer.${name}`, "UINT32", value)),
    undefined,
    ({ block, from }, { hidden }, layer) => {
      if (layer < dense) return;
      const attention = `${from}self_attn.index_`;
      for (const [part, rows] of [["q", heads * headDim], ["k", headDim]] as const) {
        list.floats(`${block}indexer.${part}_proj.weight`, `${attention}${part}_proj.weight`, rows, hidden);
        list.vector(
          `${block}indexer.${part}_norm.weight`,
          `${attention}${part}_norm.weight`,
          headDim,
          plusOne,
        );
      }
    },
  );
}

/**
 * Returns the number of leading dense layers, and config.json with transformers' field names. Throws unless exactly the
 * layers after the dense ones have an indexer.
 */
function denseLayers(config: Fields, layers: number): { dense: number; known: Fields } {
  const flags = (from: Fields | undefined, name: string, of: string) => {
    const values = from?.get(name);
    return Array.isArray(values) ? { [of]: values } : {};
  };
  const named = config.with({
    ...flags(config, "moe_layer_freq", "mlp_layer_types"),
    ...flags(config.fields("sparse_attention_config"), "sparse_attention_freq", "layer_types"),
  });
  const words = (name: string, [zero, one]: readonly [string, string]) => {
    const values = named.get(name);
    return Array.isArray(values)
      ? { [name]: values.map((value) => value === 0 ? zero : value === 1 ? one : value) }
      : {};
  };
  const known = withDenseCount(
    named.with({
      ...words("mlp_layer_types", ["dense", "sparse"]),
      ...words("layer_types", ["full_attention", "minimax_m3_sparse"]),
    }),
    layers,
  );
  const dense = known.countFrom0("first_k_dense_replace", layers);
  const kinds = known.get("layer_types");
  const usual = (kind: unknown, layer: number) =>
    kind === (layer < dense ? "full_attention" : "minimax_m3_sparse");
  if (!(Array.isArray(kinds) && kinds.length === layers && kinds.every(usual))) {
    config.refuse("layer_types", inWords(kinds), "an indexer in exactly the layers with experts");
  }
  return { dense, known };
}
