import type { DecoderConfig } from "../../engine/architectures/checkpoint.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { TensorList } from "../tensor_list.ts";

export const MAX = { experts: 4096, feedForward: 131_072 };

/** Shape of a mixture of experts. */
export interface ExpertsConfig {
  readonly count: number;
  readonly used: number;
  readonly feedForward: number;
}

/** Reads the experts' shape from Qwen's keys. With `always`, chosen weights are divided by their sum in any case. */
export function readExperts(config: Fields, always = false): ExpertsConfig {
  if (!always && !config.boolean("norm_topk_prob", false)) {
    config.refuse("norm_topk_prob", "false", "true, because the chosen weights are divided by their sum");
  }
  config.mustBe("decoder_sparse_step", 1, "all layers must have experts");
  const dense = config.get("mlp_only_layers");
  if (dense !== undefined && !(Array.isArray(dense) && dense.length === 0)) {
    config.refuse("mlp_only_layers", inWords(dense), "an empty array, because all layers must have experts");
  }
  return readCounts(config);
}

/** Reads the experts' count, the number that a row uses, and their width, from Qwen's keys or others. */
export function readCounts(
  config: Fields,
  keys: { readonly [count in keyof ExpertsConfig]?: string } = {},
): ExpertsConfig {
  // transformers 5 saves the number of experts under another name.
  const newer = "num_local_experts";
  const usual = keys.count ?? "num_experts";
  const count = config.count(config.has(usual) || !config.has(newer) ? usual : newer, MAX.experts);
  return {
    count,
    used: config.count(keys.used ?? "num_experts_per_tok", count),
    feedForward: config.count(keys.feedForward ?? "moe_intermediate_size", MAX.feedForward),
  };
}

export function expertEntries(architecture: string, { count, used, feedForward }: ExpertsConfig): Entry[] {
  const counts = { expert_count: count, expert_used_count: used, expert_feed_forward_length: feedForward };
  return Object.entries(counts).map(([name, value]) => entry(`${architecture}.${name}`, "UINT32", value));
}

const PARTS = { gate: "gate_proj", up: "up_proj", down: "down_proj" };
export type ExpertParts = typeof PARTS;

/**
 * Adds the router, in F32, and the experts to the list. Each expert is a module, or all are stacked with gate before
 * up.
 */
export function addExperts(
  list: TensorList,
  { hidden }: DecoderConfig,
  { count, feedForward }: ExpertsConfig,
  block: string,
  mlp: string,
  { router = `${mlp}gate`, parts = PARTS }: { readonly router?: string; readonly parts?: ExpertParts } = {},
): void {
  list.floats(`${block}ffn_gate_inp.weight`, `${router}.weight`, count, hidden);
  const both = `${mlp}experts.gate_up_proj`;
  if (!list.finder.has(both)) {
    const each = (part: string) => Array.from({ length: count }, (_, i) => `${mlp}experts.${i}.${part}`);
    list.experts(`${block}ffn_gate_exps`, each(parts.gate), feedForward, hidden);
    list.experts(`${block}ffn_up_exps`, each(parts.up), feedForward, hidden);
    list.experts(`${block}ffn_down_exps`, each(parts.down), hidden, feedForward);
    return;
  }
  const shape = { count, rows: 2 * feedForward, columns: hidden };
  const source = list.finder.stack(both, [count, 2 * feedForward, hidden]);
  list.stacked(`${block}ffn_gate_exps`, source, shape, "first half");
  list.stacked(`${block}ffn_up_exps`, source, shape, "second half");
  const down = list.finder.stack(`${mlp}experts.down_proj`, [count, hidden, feedForward]);
  list.stacked(`${block}ffn_down_exps`, down, { count, rows: hidden, columns: feedForward });
}

/** Adds the router and the experts. The checkpoint stacks the experts transposed, with gate's columns before up's. */
export function addTurnedExperts(
  list: TensorList,
  { hidden }: DecoderConfig,
  { count, feedForward }: ExpertsConfig,
  block: string,
  mlp: string,
  router = "gate",
): void {
  list.floats(`${block}ffn_gate_inp.weight`, `${mlp}${router}.weight`, count, hidden);
  const of = 2 * feedForward;
  const both = list.finder.stack(`${mlp}experts.gate_up_proj`, [count, hidden, of]);
  const shape = { count, rows: feedForward, columns: hidden };
  list.turned(`${block}ffn_gate_exps`, both, shape, { of });
  list.turned(`${block}ffn_up_exps`, both, shape, { start: feedForward, of });
  const down = list.finder.stack(`${mlp}experts.down_proj`, [count, feedForward, hidden]);
  list.turned(`${block}ffn_down_exps`, down, { count, rows: hidden, columns: feedForward });
}

/** Adds the shared experts to the list, stored as one. */
export function addSharedExperts(
  list: TensorList,
  { hidden }: DecoderConfig,
  width: number,
  block: string,
  from: string,
): void {
  list.matrix(`${block}ffn_gate_shexp`, `${from}gate_proj`, width, hidden);
  list.matrix(`${block}ffn_up_shexp`, `${from}up_proj`, width, hidden);
  list.matrix(`${block}ffn_down_shexp`, `${from}down_proj`, hidden, width);
}

/** Chosen experts, and a shared expert with a gate. */
export interface GatedExpertsConfig extends ExpertsConfig {
  /** Width of the shared expert. */
  readonly shared: number;
}

export function readSharedLength(config: Fields): number {
  return config.count("shared_expert_intermediate_size", MAX.feedForward);
}

export function addGatedExperts(
  list: TensorList,
  decoder: DecoderConfig,
  experts: GatedExpertsConfig,
  block: string,
  mlp: string,
): void {
  addExperts(list, decoder, experts, block, mlp);
  list.floats(`${block}ffn_gate_inp_shexp.weight`, `${mlp}shared_expert_gate.weight`, 1, decoder.hidden);
  addSharedExperts(list, decoder, experts.shared, block, `${mlp}shared_expert.`);
}

export function gatedExpertEntries(architecture: string, experts: GatedExpertsConfig): Entry[] {
  const shared = entry(`${architecture}.expert_shared_feed_forward_length`, "UINT32", experts.shared);
  return [...expertEntries(architecture, experts), shared];
}
