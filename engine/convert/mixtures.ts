import type { DecoderConfig } from "./decoder_config.ts";
import {
  addExperts,
  addGatedExperts,
  expertEntries,
  type ExpertsConfig,
  gatedExpertEntries,
  MAX,
  readExperts,
  readSharedLength,
} from "./experts.ts";
import type { Fields } from "./json.ts";
import { convertLlama, type LlamaTraits } from "./llama.ts";
import type { ModelParts } from "./model_parts.ts";
import { withSections } from "./qwen_vl.ts";
import type { TensorList } from "./tensor_list.ts";

const QWEN3MOE: LlamaTraits = { architecture: "qwen3moe", interleavedRope: false, headNorms: true };

/** Qwen3's mixtures of experts: Qwen3's tensors but for the feed-forward halves. */
export function convertQwen3Moe(config: Fields, list: TensorList, prefix: string): ModelParts {
  return convert(config, list, prefix, QWEN3MOE, readExperts(config));
}

/** Qwen2's: Qwen2's tensors but for the feed-forward halves, in which one expert that all rows go through has a gate. */
export function convertQwen2Moe(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("norm_topk_prob", false, "GGUF's readers do not divide the chosen weights by their sum");
  config.mustBe("qkv_bias", true, "queries, keys and values have biases");
  const architecture = "qwen2moe";
  const experts = { ...readExperts(config, true), shared: readSharedLength(config) };
  const parts = convertLlama(config, list, prefix, {
    architecture,
    interleavedRope: false,
    headNorms: false,
    biases: true,
    feedForward: (decoder, block, from) => addGatedExperts(list, decoder, experts, block, `${from}mlp.`),
  });
  return { ...parts, entries: [...parts.entries, ...gatedExpertEntries(architecture, experts)] };
}

/** The text part of Qwen3-VL's mixtures of experts, in which each matrix of an expert has its rows for columns. */
export function convertQwen3VlMoe(config: Fields, list: TensorList, prefix: string): ModelParts {
  const traits = { ...QWEN3MOE, architecture: "qwen3vlmoe" } as const;
  const parts = convert(config, list, prefix, traits, readExperts(config, true), addTurnedExperts);
  return withSections(traits.architecture, parts);
}

/** OLMoE: norms of queries and keys across their heads, and experts that the softmax over all weighs. */
export function convertOlmoe(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("clip_qkv", null, "bounds of queries, keys and values are not computed");
  config.mustBe("norm_topk_prob", false, "GGUF's readers do not divide the chosen weights by their sum");
  const count = config.count("num_experts", MAX.experts);
  const traits = {
    architecture: "olmoe",
    interleavedRope: false,
    headNorms: false,
    rowNorms: true,
  } as const;
  return convert(config, list, prefix, traits, {
    count,
    used: config.count("num_experts_per_tok", count),
    feedForward: config.count("intermediate_size", MAX.feedForward),
  });
}

/** A decoder each of whose feed-forward halves is experts. */
function convert(
  config: Fields,
  list: TensorList,
  prefix: string,
  traits: LlamaTraits,
  experts: ExpertsConfig,
  add = addExperts,
): ModelParts {
  const parts = convertLlama(config, list, prefix, {
    ...traits,
    feedForward: (decoder, block, from) => add(list, decoder, experts, block, `${from}mlp.`),
  });
  return { ...parts, entries: [...parts.entries, ...expertEntries(traits.architecture, experts)] };
}

function addTurnedExperts(
  list: TensorList,
  { hidden }: DecoderConfig,
  { count, feedForward }: ExpertsConfig,
  block: string,
  mlp: string,
): void {
  list.floats(`${block}ffn_gate_inp.weight`, `${mlp}gate.weight`, count, hidden);
  const of = 2 * feedForward;
  const both = list.finder.stack(`${mlp}experts.gate_up_proj`, [count, hidden, of]);
  const shape = { count, rows: feedForward, columns: hidden };
  list.turned(`${block}ffn_gate_exps`, both, shape, { of });
  list.turned(`${block}ffn_up_exps`, both, shape, { start: feedForward, of });
  const down = list.finder.stack(`${mlp}experts.down_proj`, [count, feedForward, hidden]);
  list.turned(`${block}ffn_down_exps`, down, { count, rows: hidden, columns: feedForward });
}
