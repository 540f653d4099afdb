import { type Checkpoint, type Config, inWords, type LayerWidths, MAX } from "../checkpoint.ts";
import type { Family } from "../family.ts";
import { LLAMA } from "./llama.ts";

/** Widths of feed-forward blocks are multiples of this. */
const WIDTH_STEP = 256;
const SEARCHED = "block_configs";

/**
 * Llama Nemotron's large models (`nemotron-nas`) and DeciLM (`deci`): Llama's decoder, pruned by a search that
 * removed attention blocks, feed-forward blocks, heads and width. Source: "Puzzle" (arXiv 2411.19146).
 */
export const DECI: Family = {
  architecture: "deci",
  traits: LLAMA.traits,
  allows: { layersDiffer: true },
  checkpoints: { deci: pruned(), "nemotron-nas": pruned() },
};

function pruned(): Checkpoint {
  return {
    scalings: ["linear", "llama3"],
    // Searched layers have their own widths, and the common key is null.
    prepare: (config) =>
      config.has(SEARCHED) ? config.with({ intermediate_size: config.get("hidden_size") }) : config,
    widths: (config, { hidden, heads, layers, feedForward }) =>
      config.has(SEARCHED)
        ? readBlocks(config, hidden, heads, layers)
        : readKvHeads(config, heads, layers).map((kvHeads) => ({ heads, kvHeads, feedForward })),
  };
}

/** Returns how many KV heads each of DeciLM's layers has. */
function readKvHeads(config: Config, heads: number, layers: number): number[] {
  const name = "num_key_value_heads_per_layer";
  const counts = config.get(name);
  const valid = Array.isArray(counts) && counts.length === layers &&
    counts.every((count) => Number.isInteger(count) && count >= 1 && heads % count === 0);
  if (!valid) config.refuseValue(name, `${layers} divisors of the ${heads} heads`);
  return counts as number[];
}

function readBlocks(config: Config, hidden: number, heads: number, layers: number): LayerWidths[] {
  const blocks = config.get(SEARCHED);
  if (!Array.isArray(blocks) || blocks.length !== layers) {
    config.refuseValue(SEARCHED, `an array of ${layers}, one for each layer`);
  }
  return (blocks as { attention?: unknown; ffn?: unknown }[]).map((block, i) => {
    const refuse = (found: string, allowed: string) =>
      config.refuse(SEARCHED, `${found} in layer ${i}`, allowed);
    const { attention, ffn } = block ?? {};
    if (!isPart(attention) || !isPart(ffn)) {
      return refuse(inWords(block), `objects with "attention" and "ffn"`);
    }
    return { ...attentionOf(attention, heads, refuse), feedForward: widthOf(ffn, hidden, refuse) };
  });
}

type Refuse = (found: string, allowed: string) => never;
type Part = Readonly<Record<string, unknown>>;

const isPart = (value: unknown): value is Part => typeof value === "object" && value !== null;

function attentionOf(part: Part, heads: number, refuse: Refuse): Pick<LayerWidths, "heads" | "kvHeads"> {
  const group = part.n_heads_in_group ?? undefined;
  if (part.replace_with_linear === true) return { heads, kvHeads: 0 };
  if (part.no_op === true || group === undefined) return { heads: 0, kvHeads: 0 };
  if (typeof group !== "number" || !Number.isInteger(group) || group < 1 || heads % group !== 0) {
    refuse(`n_heads_in_group of ${inWords(group)}`, `divisors of the ${heads} heads`);
  }
  return { heads, kvHeads: heads / group };
}

function widthOf(part: Part, hidden: number, refuse: Refuse): number {
  if (part.replace_with_linear === true) {
    refuse("a matrix instead of a feed-forward block", "blocks that GGUF has tensors for");
  }
  const times = part.ffn_mult ?? undefined;
  if (part.no_op === true || times === undefined) return 0;
  if (typeof times !== "number" || !(times > 0 && times <= MAX.feedForward / hidden)) {
    refuse(`ffn_mult of ${inWords(times)}`, `numbers above 0 and at most ${MAX.feedForward / hidden}`);
  }
  return WIDTH_STEP * Math.ceil(Math.trunc(2 * times * hidden / 3) / WIDTH_STEP);
}
