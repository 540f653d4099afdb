import { GRANITEMOE, graniteMultipliers } from "../../engine/architectures/decoders/granite.ts";
import type { DecoderConfig } from "../../engine/architectures/checkpoint.ts";
import type { Fields } from "../checkpoint/json.ts";
import { convertDecoder } from "../decoder.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";
import { type Entry, entry } from "../write/metadata.ts";

const MAX = { experts: 4096, width: 131_072 };

/** Converts Granite 3's mixtures of experts. `granitemoeshared` also has a shared expert. */
export function convertGraniteMoe(config: Fields, list: TensorList, prefix: string): ModelParts {
  const { count, used } = readGraniteExperts(config) ??
    config.refuse("num_local_experts", "none", "1 at least");
  const shared = config.countFrom0("shared_intermediate_size", MAX.width, 0);
  const { architecture } = GRANITEMOE;
  const parts = convertDecoder(config, list, prefix, GRANITEMOE, {}, {
    feedForward({ block, from }, decoder) {
      addGraniteExperts(list, decoder, count, block, from);
      if (shared > 0) addGraniteFeedForward(list, decoder.hidden, shared, block, from, "_shexp");
    },
  });
  const counts = {
    expert_count: count,
    expert_used_count: used,
    ...shared > 0 && { expert_shared_feed_forward_length: shared },
  };
  return {
    ...parts,
    entries: [
      ...parts.entries,
      ...Object.entries(counts).map(([name, value]) => entry(`${architecture}.${name}`, "UINT32", value)),
      ...multipliers(architecture, config),
    ],
  };
}

/** Returns the entries for a checkpoint's multipliers. */
export function multipliers(architecture: string, config: Fields): Entry[] {
  return graniteMultipliers(config).map(([name, type, value]) =>
    entry(`${architecture}.${name}`, type, value)
  );
}

interface GraniteExperts {
  readonly count: number;
  readonly used: number;
}

/** Returns the number of experts, and of used ones; undefined if the model has none. */
export function readGraniteExperts(config: Fields): GraniteExperts | undefined {
  const count = config.countFrom0("num_local_experts", MAX.experts, 0);
  return count === 0 ? undefined : { count, used: config.count("num_experts_per_tok", count) };
}

/** Adds a router and its experts to the list; their gate and up are one tensor of the checkpoint. */
export function addGraniteExperts(
  list: TensorList,
  { hidden, feedForward: width }: DecoderConfig,
  count: number,
  block: string,
  layer: string,
): void {
  const from = `${layer}block_sparse_moe.`;
  list.floats(`${block}ffn_gate_inp.weight`, `${from}router.layer.weight`, count, hidden);
  const fused = `${from}input_linear.weight`;
  list.fusedExperts(`${block}ffn_gate_exps`, fused, width, hidden, { count, of: 2 * width });
  list.fusedExperts(`${block}ffn_up_exps`, fused, width, hidden, { count, start: width, of: 2 * width });
  list.fusedExperts(`${block}ffn_down_exps`, `${from}output_linear.weight`, hidden, width, { count });
}

/**
 * Adds a feed-forward block to the list; its gate and up are one matrix of the checkpoint. `suffix` ends the GGUF
 * names.
 */
export function addGraniteFeedForward(
  list: TensorList,
  hidden: number,
  width: number,
  block: string,
  layer: string,
  suffix: string,
): void {
  const from = `${layer}shared_mlp.`;
  for (const [part, start] of [["ffn_gate", 0], ["ffn_up", width]] as const) {
    const order = { rowOrder: [[start, width]], of: 2 * width } as const;
    list.matrix(block + part + suffix, `${from}input_linear`, width, hidden, order);
  }
  list.matrix(`${block}ffn_down${suffix}`, `${from}output_linear`, hidden, width);
}
