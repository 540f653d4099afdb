import { MAX } from "../bounds.ts";
import { decoderEntries, llama3Factors, readDecoderConfig } from "../decoder_config.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { addAttention, addFeedForward, type LlamaTraits } from "./llama.ts";
import { entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

const TRAITS: LlamaTraits = { architecture: "deci", interleavedRope: true, headNorms: false };
/** Widths of feed-forward halves are multiples of this. */
const WIDTH_STEP = 256;

/** What the search has left of a layer: no heads is no attention, heads without KV heads are a matrix, no width is no feed-forward half. */
interface Left {
  readonly heads: number;
  readonly kvHeads: number;
  readonly feedForward: number;
}

/** Llama Nemotron's large models (`nemotron-nas`), and DeciLM (`deci`): Llama's tensors, as far as a layer has them. */
export function convertDeci(config: Fields, list: TensorList, prefix: string): ModelParts {
  const searched = config.has("block_configs");
  // Searched layers have widths of their own, and the key that others have is null.
  const decoder = readDecoderConfig(config, { keys: searched ? { feedForward: "hidden_size" } : {} });
  const { hidden, heads, layers, rope } = decoder;
  const left = searched
    ? readBlocks(config, hidden, heads, layers)
    : readKvHeads(config, heads, layers).map((kvHeads) => ({ ...decoder, kvHeads }));
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, hidden);
  if (rope.scaling.type === "llama3") list.made("rope_freqs.weight", llama3Factors(rope, rope.scaling));
  for (const [i, layer] of left.entries()) {
    const [block, from] = [`blk.${i}.`, `${prefix}layers.${i}.`];
    if (layer.kvHeads > 0) addAttention(list, { ...decoder, ...layer }, TRAITS, block, from);
    else if (layer.heads > 0) {
      list.vector(`${block}attn_norm.weight`, `${from}input_layernorm.weight`, hidden);
      list.matrix(`${block}attn_output`, `${from}self_attn.linear_attn`, hidden, hidden);
    }
    if (layer.feedForward === 0) continue;
    list.vector(`${block}ffn_norm.weight`, `${from}post_attention_layernorm.weight`, hidden);
    addFeedForward(list, { ...decoder, ...layer }, block, from);
  }
  const lists = {
    "deci.attention.head_count": left.map((layer) => layer.heads),
    "deci.attention.head_count_kv": left.map((layer) => layer.kvHeads),
    "deci.feed_forward_length": left.map((layer) => layer.feedForward),
  };
  return {
    decoder,
    entries: [
      ...decoderEntries("deci", decoder).filter(({ key }) => !Object.hasOwn(lists, key)),
      ...Object.entries(lists).map(([key, values]) => entry(key, "INT32", values)),
    ],
  };
}

/** Of DeciLM's layers how many KV heads each has. */
function readKvHeads(config: Fields, heads: number, layers: number): number[] {
  const name = "num_key_value_heads_per_layer";
  const counts = config.get(name);
  const valid = Array.isArray(counts) && counts.length === layers &&
    counts.every((count) => Number.isInteger(count) && count >= 1 && heads % count === 0);
  if (!valid) config.refuse(name, inWords(counts), `${layers} divisors of the ${heads} heads`);
  return counts as number[];
}

function readBlocks(config: Fields, hidden: number, heads: number, layers: number): Left[] {
  const name = "block_configs";
  const blocks = config.get(name);
  if (!Array.isArray(blocks) || blocks.length !== layers) {
    config.refuse(name, inWords(blocks), `an array of ${layers}, one for each layer`);
  }
  return blocks.map((block, i) => {
    const refuse = (found: string, allowed: string) => config.refuse(name, `${found} in layer ${i}`, allowed);
    const { attention, ffn } = block ?? {};
    if (attention === null || typeof attention !== "object" || ffn === null || typeof ffn !== "object") {
      refuse(inWords(block), `objects with "attention" and "ffn"`);
    }
    return { ...attentionOf(attention, heads, refuse), feedForward: widthOf(ffn, hidden, refuse) };
  });
}

type Refuse = (found: string, allowed: string) => never;
type Part = Readonly<Record<string, unknown>>;

function attentionOf(part: Part, heads: number, refuse: Refuse): Pick<Left, "heads" | "kvHeads"> {
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
    refuse("one", "without a matrix for a feed-forward half, which GGUF has no tensor for");
  }
  const times = part.ffn_mult ?? undefined;
  if (part.no_op === true || times === undefined) return 0;
  if (typeof times !== "number" || !(times > 0 && times <= MAX.feedForward / hidden)) {
    refuse(`ffn_mult of ${inWords(times)}`, `numbers above 0 and at most ${MAX.feedForward / hidden}`);
  }
  return WIDTH_STEP * Math.ceil(Math.trunc(2 * times * hidden / 3) / WIDTH_STEP);
}
