import type { TensorList } from "../tensor_list.ts";
import { readDecoderConfig } from "../decoder_config.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { addAttention, addMamba, hybridEntries, MAX, type Mixer, readMamba } from "./mamba_hybrids.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";

/**
 * Prefixes of all tensors except the head: in published checkpoints, and in files written by transformers.
 */
const ROOTS = ["backbone.", "model."];

/** Converts Nemotron-H. With experts in the pattern, the architecture is `nemotron_h_moe`. */
export function convertNemotronH(config: Fields, list: TensorList): ModelParts {
  for (const name of ["use_bias", "mamba_proj_bias"]) {
    config.mustBe(name, false, "biases of Mamba2's matrices are not computed");
  }
  for (const name of ["use_conv_bias", "mamba_conv_bias"]) {
    config.mustBe(name, true, "the convolution has a bias");
  }
  config.mustBe("mlp_hidden_act", "relu2", "no other activation is supported here");
  config.mustBe("mamba_hidden_act", "silu", "no other activation is supported there");
  const mixers = readMixers(config);
  const decoder = readDecoderConfig(config, {
    keys: {
      epsilon: firstOf(config, "rms_norm_eps", "layer_norm_epsilon"),
      headDim: firstOf(config, "head_dim", "attention_head_dim"),
    },
    layers: mixers.length,
  });
  const { hidden, feedForward } = decoder;
  const mamba = readMamba(config, {
    heads: "mamba_num_heads",
    headDim: "mamba_head_dim",
    groups: firstOf(config, "n_groups", "mamba_n_groups"),
    stateSize: "ssm_state_size",
    taps: firstOf(config, "conv_kernel", "mamba_d_conv"),
    limits: firstOf(config, "time_step_limit", "mamba_dt_limit"),
  });
  const root = ROOTS.find((root) => list.finder.has(`${root}norm_f.weight`)) ?? ROOTS[0];
  const experts = mixers.includes("experts") ? readNemotronExperts(config) : undefined;
  list.matrix("token_embd", `${root}embeddings`, decoder.vocabulary, hidden);
  for (const [i, mixer] of mixers.entries()) {
    const [block, layer] = [`blk.${i}.`, `${root}layers.${i}.`];
    list.vector(`${block}attn_norm.weight`, `${layer}norm.weight`, hidden);
    if (mixer === "mamba") addMamba(list, hidden, mamba, block, `${layer}mixer.`);
    else if (mixer === "attention") addAttention(list, decoder, block, `${layer}mixer.`, false);
    else if (mixer === "experts") addNemotronExperts(list, hidden, experts!, block, `${layer}mixer.`);
    else addUngated(list, hidden, feedForward, block, `${layer}mixer.`);
  }
  const architecture = experts ? "nemotron_h_moe" : "nemotron_h";
  const width = experts ? experts.feedForward : feedForward;
  const widths = mixers.map((mixer) => mixer === "feed-forward" || mixer === "experts" ? width : 0);
  const entries = [
    ...hybridEntries(architecture, decoder, mamba, mixers),
    entry(`${architecture}.feed_forward_length`, "UINT32", widths),
    ...experts ? nemotronExpertEntries(architecture, experts) : [],
  ];
  const lastNorm = { name: "output_norm.weight", tensor: `${root}norm_f.weight` };
  return { architecture, decoder, entries, lastNorm };
}

interface NemotronExperts {
  readonly count: number;
  readonly used: number;
  readonly feedForward: number;
  /** Width of the shared expert. */
  readonly shared: number;
  /** Width of the routed experts' inputs and outputs, if it differs from the embedding's. */
  readonly latent?: number;
  readonly divided: boolean;
  readonly scale: number;
}

function readNemotronExperts(config: Fields): NemotronExperts {
  for (const name of ["n_shared_experts", "n_group", "topk_group"]) {
    config.mustBe(name, 1, "nothing else is computed");
  }
  const count = config.count(firstOf(config, "n_routed_experts", "num_local_experts"), MAX.experts);
  const latent = "moe_latent_size";
  return {
    count,
    used: config.count("num_experts_per_tok", count),
    feedForward: config.count("moe_intermediate_size", MAX.width),
    shared: config.count("moe_shared_expert_intermediate_size", MAX.width),
    latent: config.has(latent) ? config.count(latent, MAX.width) : undefined,
    divided: config.boolean("norm_topk_prob", true),
    scale: config.positive("routed_scaling_factor", MAX.scale, 1),
  };
}

function nemotronExpertEntries(architecture: string, e: NemotronExperts): Entry[] {
  const key = (name: string) => `${architecture}.${name}`;
  const counts = {
    expert_count: e.count,
    expert_used_count: e.used,
    expert_feed_forward_length: e.feedForward,
    expert_shared_feed_forward_length: e.shared,
    expert_shared_count: 1,
    expert_group_count: 1,
    ...e.latent && { moe_latent_size: e.latent },
  };
  return [
    ...Object.entries(counts).map(([name, value]) => entry(key(name), "UINT32", value)),
    entry(key("expert_weights_norm"), "BOOL", e.divided),
    entry(key("expert_weights_scale"), "FLOAT32", e.scale),
  ];
}

function addNemotronExperts(
  list: TensorList,
  hidden: number,
  { count, feedForward, shared, latent }: NemotronExperts,
  block: string,
  from: string,
): void {
  const width = latent ?? hidden;
  list.floats(`${block}ffn_gate_inp.weight`, `${from}gate.weight`, count, hidden);
  list.vector(`${block}exp_probs_b.bias`, `${from}gate.e_score_correction_bias`, count);
  if (latent) {
    list.matrix(`${block}ffn_latent_down`, `${from}fc1_latent_proj`, latent, hidden);
    list.matrix(`${block}ffn_latent_up`, `${from}fc2_latent_proj`, hidden, latent);
  }
  const experts = (name: string, part: string, rows: number, columns: number) => {
    const together = `${from}experts.${part}`;
    if (list.finder.has(together)) return list.fusedExperts(name, together, rows, columns, { count });
    const each = Array.from({ length: count }, (_, i) => `${from}experts.${i}.${part}`);
    list.experts(name, each, rows, columns);
  };
  experts(`${block}ffn_up_exps`, "up_proj", feedForward, width);
  experts(`${block}ffn_down_exps`, "down_proj", width, feedForward);
  addUngated(list, hidden, shared, block, `${from}shared_experts.`, "_shexp");
}

function addUngated(
  list: TensorList,
  hidden: number,
  width: number,
  block: string,
  from: string,
  suffix = "",
): void {
  list.matrix(`${block}ffn_up${suffix}`, `${from}up_proj`, width, hidden);
  list.matrix(`${block}ffn_down${suffix}`, `${from}down_proj`, hidden, width);
}

/**
 * Mixers by pattern letter and by list entry, in older and newer names of transformers. Source: its
 * NemotronHConfig.
 */
const MIXERS: Readonly<Record<string, Mixer>> = {
  M: "mamba",
  mamba: "mamba",
  linear_attention: "mamba",
  "*": "attention",
  attention: "attention",
  full_attention: "attention",
  "-": "feed-forward",
  mlp: "feed-forward",
  E: "experts",
  moe: "experts",
};

const LISTS = ["layers_block_type", "layer_types"];

/** Returns each layer's mixer, from a list or from a pattern with one letter per layer. */
function readMixers(config: Fields): Mixer[] {
  const key = [...LISTS, "hybrid_override_pattern"].find((name) => config.has(name)) ?? LISTS[0];
  const listed = config.get(key);
  const isPattern = typeof listed === "string";
  const names: unknown[] = isPattern ? Array.from(listed) : Array.isArray(listed) ? listed : [];
  const mixers = names.map((name) =>
    typeof name === "string" && (name.length === 1) === isPattern && Object.hasOwn(MIXERS, name)
      ? MIXERS[name]
      : undefined
  );
  const feedForwards = new Set(mixers.filter((mixer) => mixer === "feed-forward" || mixer === "experts"));
  const known = mixers.every((mixer) => mixer !== undefined);
  const layers = config.count("num_hidden_layers", MAX.layers, names.length);
  if (known && feedForwards.size < 2 && names.length === layers) return mixers;
  const unknown = names.find((_, i) => mixers[i] === undefined);
  const found = isPattern ? listed.slice(0, 80) : inWords(unknown ?? listed);
  const allowed = isPattern
    ? `${layers} of M, * and either - or E`
    : `${layers} of "mamba" or "linear_attention", "attention" or "full_attention", and either "mlp" or "moe"`;
  return config.refuse(key, found, allowed);
}

/** Returns the first of the names that config.json has as a key; else the first name. */
function firstOf(config: Fields, ...names: readonly string[]): string {
  return names.find((name) => config.has(name)) ?? names[0];
}
