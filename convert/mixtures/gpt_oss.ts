import { quote } from "../../engine/gguf/errors.ts";
import { type DecoderConfig, MAX } from "../../engine/architectures/checkpoint.ts";
import { decoderEntries, readDecoderConfig } from "../decoder_config.ts";
import { expertEntries, type ExpertsConfig } from "./experts.ts";
import { type Fields, inWords } from "../checkpoint/json.ts";
import { entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

const ARCHITECTURE = "gpt-oss";
const MAX_EXPERTS = 4096;
/** Limit at which the activation is clamped. */
const LIMIT = 7;

/** Converts gpt-oss's own checkpoints. Experts are in MXFP4 and keep their bits; the rest is in BF16. */
export function convertGptOss(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("swiglu_limit", LIMIT, "the activation is clamped there");
  const decoder = readDecoderConfig(config, { biases: true, scalings: ["yarn"], anyTruncation: true });
  if (decoder.rope.scaling.type !== "yarn") {
    decoder.rope.fields.refuse("rope_type", quote(decoder.rope.scaling.type), `"yarn"`);
  }
  const count = config.count("num_local_experts", MAX_EXPERTS);
  const experts = {
    count,
    used: config.count("num_experts_per_tok", count, olderUsed(config, count)),
    feedForward: decoder.feedForward,
  };
  checkLayerTypes(config, decoder.layers);
  const window = config.count("sliding_window", MAX.context);
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, decoder.hidden);
  for (let i = 0; i < decoder.layers; i++) {
    const [block, layer] = [`blk.${i}.`, `${prefix}layers.${i}.`];
    list.vector(`${block}attn_norm.weight`, `${layer}input_layernorm.weight`, decoder.hidden);
    addAttention(list, decoder, block, `${layer}self_attn.`);
    list.vector(
      `${block}post_attention_norm.weight`,
      `${layer}post_attention_layernorm.weight`,
      decoder.hidden,
    );
    addExperts(list, decoder.hidden, experts, block, `${layer}mlp.`);
  }
  return {
    decoder,
    entries: [
      ...decoderEntries(ARCHITECTURE, decoder),
      ...expertEntries(ARCHITECTURE, experts),
      entry(`${ARCHITECTURE}.attention.sliding_window`, "UINT32", window),
    ],
  };
}

/** Returns the number of used experts from the older key of `num_experts_per_tok`. */
function olderUsed(config: Fields, count: number): number | undefined {
  return config.has("experts_per_token") ? config.count("experts_per_token", count) : undefined;
}

/** Throws ConvertError unless every second layer, from the first, has a window. */
function checkLayerTypes(config: Fields, layers: number): void {
  const types = config.get("layer_types");
  if (types === undefined) return;
  const wanted = Array.from(
    { length: layers },
    (_, i) => i % 2 === 0 ? "sliding_attention" : "full_attention",
  );
  if (!Array.isArray(types) || types.join() !== wanted.join()) {
    const allowed = `${quote("sliding_attention")} and ${quote("full_attention")} in turn`;
    config.refuse("layer_types", inWords(types), allowed);
  }
}

function addAttention(list: TensorList, decoder: DecoderConfig, block: string, from: string): void {
  const { hidden, heads, kvHeads, headDim } = decoder;
  const linear = (name: string, module: string, rows: number, columns: number) => {
    list.matrix(`${block}${name}`, `${from}${module}`, rows, columns);
    list.vector(`${block}${name}.bias`, `${from}${module}.bias`, rows);
  };
  linear("attn_q", "q_proj", heads * headDim, hidden);
  linear("attn_k", "k_proj", kvHeads * headDim, hidden);
  linear("attn_v", "v_proj", kvHeads * headDim, hidden);
  linear("attn_output", "o_proj", hidden, heads * headDim);
  list.vector(`${block}attn_sinks.weight`, `${from}sinks`, heads);
}

/** Adds the matrices of experts to the list; rows of gate and up alternate. */
function addExperts(
  list: TensorList,
  hidden: number,
  { count, feedForward }: ExpertsConfig,
  block: string,
  mlp: string,
): void {
  list.floats(`${block}ffn_gate_inp.weight`, `${mlp}router.weight`, count, hidden);
  list.vector(`${block}ffn_gate_inp.bias`, `${mlp}router.bias`, count);
  const [both, down] = [`${mlp}experts.gate_up_proj`, `${mlp}experts.down_proj`];
  const shape = { count, rows: 2 * feedForward, columns: hidden };
  const source = list.finder.blocks(both, [count, 2 * feedForward, hidden]);
  for (const [part, take] of [["gate", "even"], ["up", "odd"]] as const) {
    list.stacked(`${block}ffn_${part}_exps`, source, shape, take);
    list.stackedVectors(`${block}ffn_${part}_exps.bias`, `${both}_bias`, count, 2 * feedForward, take);
  }
  const downSource = list.finder.blocks(down, [count, hidden, feedForward]);
  list.stacked(`${block}ffn_down_exps`, downSource, { count, rows: hidden, columns: feedForward });
  list.stackedVectors(`${block}ffn_down_exps.bias`, `${down}_bias`, count, hidden);
}
