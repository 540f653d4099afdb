/** Converts hybrids of Kimi Delta Attention and latent attention: Kimi Linear and Ling 3.0. */
import { type Checkpoint, type DecoderConfig, MAX as LIMITS } from "../../engine/architectures/checkpoint.ts";
import { BAILINGMOE3, KIMI_LINEAR } from "../../engine/architectures/hybrids/kimi_linear.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import type { LayerNames } from "../decoder.ts";
import { reshape } from "../made_of_modules.ts";
import { addLatent, latentEntries, readLatent, withLatentHeads } from "../mixtures/deepseek2.ts";
import { convertSharedExperts, readSharedExperts, withDenseCount } from "../mixtures/sigmoid_experts.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";
import { entry } from "../write/metadata.ts";

const CONV_KERNEL = 4;
const MAX_SHARED = 64;
const PARTS = { gate: "w1", up: "w3", down: "w2" };

/** Converts Kimi Linear. Sources: Hugging Face transformers, models/kimi_linear; llama.cpp, conversion/kimi_linear.py. */
export function convertKimiLinear(given: Fields, list: TensorList, prefix: string): ModelParts {
  const layers = given.count("num_hidden_layers", LIMITS.layers);
  const linear = given.fields("linear_attn_config");
  const config = withDenseCount(
    withSharedNames(given).withDefaults({
      linear_head_dim: linear?.get("head_dim"),
      linear_num_heads: linear?.get("num_heads"),
      linear_conv_kernel_dim: linear?.get("short_conv_kernel_size"),
      layer_types: fullLayers(linear, layers),
    }),
    layers,
  );
  config.mustBe("moe_router_activation_func", "sigmoid", "sigmoids weigh experts");
  config.mustBe("mla_use_nope", true, "latent attention has no positions");
  config.mustBe("num_expert_group", 1, "experts are not chosen out of groups");
  // transformers 5 saves dense blocks under the experts' module.
  const denseModule = list.finder.has(`${prefix}layers.0.block_sparse_moe.gate_proj.weight`);
  const modules = Object.fromEntries(
    ["gate", "up", "down"].map((part) => [`ffn_${part}`, `block_sparse_moe.${part}_proj`]),
  );
  return convertHybrid(config, list, prefix, KIMI_LINEAR, denseModule ? { modules } : {}, {
    attention: "self_attn.",
    output: "o_proj",
    steps: 2,
    rate: (log) => -Math.exp(log),
    experts: { module: "block_sparse_moe", parts: PARTS, bias: "gate.e_score_correction_bias" },
  });
}

/** Returns the attention type of each layer, or undefined without `full_attn_layers`, which counts layers from 1. */
function fullLayers(linear: Fields | undefined, layers: number): string[] | undefined {
  const full = linear?.get("full_attn_layers");
  if (!Array.isArray(full)) return undefined;
  return Array.from(
    { length: layers },
    (_, i) => full.includes(i + 1) ? "full_attention" : "linear_attention",
  );
}

/** Converts Ling 3.0. Sources: Hugging Face transformers, models/bailing_hybrid; llama.cpp, conversion/bailingmoe3.py. */
export function convertBailingMoe3(given: Fields, list: TensorList, prefix: string): ModelParts {
  const layers = given.count("num_hidden_layers", LIMITS.layers);
  const every = given.count("layer_group_size", layers, 6);
  const end = layers - layers % every;
  const headDim = given.get("linear_head_dim") ?? given.get("head_dim");
  const config = withDenseCount(
    withSharedNames(given).withDefaults({
      linear_head_dim: headDim,
      linear_num_heads: given.get("num_attention_heads"),
      linear_conv_kernel_dim: given.get("short_conv_kernel_size"),
      layer_types: Array.from(
        { length: layers },
        (_, i) => (i + 1) % every === 0 || i >= end ? "full_attention" : "linear_attention",
      ),
    }),
    layers,
  );
  config.mustBe("kda_safe_gate", true, "the decay is bounded");
  config.mustBe("no_kda_lora", true, "decays and gates come from one matrix each");
  config.mustBe("gated_attention_proj_granularity_type", "head_wise", "each head has one gate");
  for (const name of ["expert_swiglu_limit_list", "share_expert_swiglu_limit_list"]) {
    config.mustBe(name, null, "clamped experts are not supported");
  }
  const bound = config.get("kda_lower_bound");
  if (typeof bound !== "number" || !(bound < 0)) {
    return config.refuse("kda_lower_bound", inWords(bound), "below 0");
  }
  const groups = config.count("num_expert_group", LIMITS.heads, config.count("n_group", LIMITS.heads, 1));
  const modules = { token_embd: "word_embeddings" };
  const parts = convertHybrid(config, list, prefix, BAILINGMOE3, { modules }, {
    attention: "attention.",
    output: "dense",
    steps: 1,
    rate: Math.exp,
    gate: "g_proj",
    groups: { count: groups, used: config.count("topk_group", groups, groups) },
    experts: { bias: "gate.expert_bias" },
  });
  return {
    ...parts,
    entries: [
      ...parts.entries,
      entry("bailingmoe3.kda.safe_gate", "BOOL", true),
      entry("bailingmoe3.kda.gate_lower_bound", "FLOAT32", bound),
    ],
  };
}

/** Returns config.json with DeepSeek's field names. A missing field gets the value of Kimi's or Ling's field. */
function withSharedNames(config: Fields): Fields {
  const names = {
    num_experts_per_tok: "num_experts_per_token",
    norm_topk_prob: "moe_renormalize",
    max_position_embeddings: "model_max_length",
    num_shared_experts: "n_shared_experts",
    num_expert_group: "n_group",
  };
  const found = Object.entries(names).map(([name, other]) => [name, config.get(name) ?? config.get(other)]);
  return config.withDefaults(Object.fromEntries(found));
}

interface Hybrid {
  /** Prefix of the attention module. */
  readonly attention: string;
  /** Module of attention's output matrix. */
  readonly output: string;
  /** Number of consecutive matrices that compute decays, and gates: two form a low-rank product. */
  readonly steps: 1 | 2;
  /** Returns the decay rate that the GGUF file stores, from the checkpoint's logarithm (`A_log`). */
  readonly rate: (log: number) => number;
  /** Module of latent attention's gates, one per head. Undefined: no gates. */
  readonly gate?: string;
  readonly groups?: { readonly count: number; readonly used: number };
  readonly experts: { readonly module?: string; readonly parts?: typeof PARTS; readonly bias: string };
}

function convertHybrid(
  config: Fields,
  list: TensorList,
  prefix: string,
  family: typeof KIMI_LINEAR,
  checkpoint: Checkpoint,
  of: Hybrid,
): ModelParts {
  const { architecture } = family;
  const latent = readLatent(config);
  const kinds = config.get("layer_types");
  const known = (kind: unknown) => kind === "full_attention" || kind === "linear_attention";
  const layers = config.count("num_hidden_layers", LIMITS.layers);
  if (!Array.isArray(kinds) || kinds.length !== layers || !kinds.every(known)) {
    config.refuse("layer_types", inWords(kinds), `"full_attention" or "linear_attention" for each layer`);
  }
  config.mustBe("linear_conv_kernel_dim", CONV_KERNEL, "the kernels support no other length");
  config.mustBe("linear_num_heads", config.get("num_attention_heads"), "all layers have the same heads");
  const headDim = config.count("linear_head_dim", LIMITS.headDim);
  const isFull = (layer: number) => kinds[layer] === "full_attention";
  const experts = readSharedExperts(config, {
    count: "num_experts",
    shared: "num_shared_experts",
    most: MAX_SHARED,
  });
  const parts = convertSharedExperts(
    config,
    list,
    prefix,
    family,
    {
      ...checkpoint,
      pairsKept: true,
      scalings: [],
      keys: { headDim: "qk_rope_head_dim" },
      widths: (_, { heads, feedForward }) =>
        kinds.map((_, layer) => ({ heads, kvHeads: Number(isFull(layer)), feedForward })),
    },
    { ...experts, ...of.experts, sharedWidth: experts.shared * experts.feedForward },
    latentEntries(architecture, latent, of.groups ?? { count: 1, used: 1 }),
    (names, decoder, layer) => {
      const from = names.from + of.attention;
      if (!isFull(layer)) return addDelta(list, decoder, headDim, { block: names.block, from }, of);
      addLatent(list, decoder, latent, names.block, from, of.output);
      if (of.gate) list.matrix(`${names.block}attn_gate`, from + of.gate, decoder.heads, decoder.hidden);
    },
  );
  return {
    ...parts,
    entries: [
      ...withLatentHeads(architecture, parts.entries, latent),
      entry(`${architecture}.ssm.conv_kernel`, "UINT32", CONV_KERNEL),
      entry(`${architecture}.kda.head_dim`, "UINT32", headDim),
    ],
  };
}

/** Adds the attention tensors of a layer with Kimi Delta Attention. */
function addDelta(
  list: TensorList,
  { hidden, heads }: DecoderConfig,
  headDim: number,
  { block, from }: LayerNames,
  { steps, rate, output }: Hybrid,
): void {
  const inner = heads * headDim;
  for (const part of ["q", "k", "v"]) {
    list.matrix(`${block}attn_${part}`, `${from}${part}_proj`, inner, hidden);
    const taps = `${block}ssm_conv1d_${part}.weight`;
    reshape(list, [CONV_KERNEL, 1, inner, 1], () => {
      list.floats(taps, `${from}${part}_conv1d.weight`, inner, CONV_KERNEL);
    });
  }
  for (const part of ["f", "g"]) {
    if (steps === 1) list.matrix(`${block}ssm_${part}_a`, `${from}${part}_proj`, inner, hidden);
    else {
      list.matrix(`${block}ssm_${part}_a`, `${from}${part}_a_proj`, headDim, hidden);
      list.matrix(`${block}ssm_${part}_b`, `${from}${part}_b_proj`, inner, headDim);
    }
  }
  list.matrix(`${block}ssm_beta`, `${from}b_proj`, heads, hidden);
  list.vector(`${block}ssm_a`, `${from}A_log`, heads, { map: rate, shape: [1, heads] });
  list.vector(`${block}ssm_dt.bias`, `${from}dt_bias`, inner);
  list.vector(`${block}ssm_norm.weight`, `${from}o_norm.weight`, headDim);
  list.matrix(`${block}attn_output`, from + output, hidden, inner);
}
