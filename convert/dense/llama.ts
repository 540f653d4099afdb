import { quote } from "../../engine/gguf/errors.ts";
import {
  type DecoderConfig,
  decoderEntries,
  type DecoderKeys,
  llama3Factors,
  readDecoderConfig,
  type Scaling,
} from "../decoder_config.ts";
import type { Fields } from "../checkpoint/json.ts";
import { entry } from "../write/metadata.ts";
import type { ModelParts } from "../model_parts.ts";
import { interleavedPairs } from "../order.ts";
import type { TensorList } from "../tensor_list.ts";

/** What tells Hugging Face's `llama`, `qwen2` and `qwen3` apart. */
export interface LlamaTraits {
  readonly architecture:
    | "llama"
    | "qwen2"
    | "qwen2vl"
    | "qwen2moe"
    | "qwen3"
    | "qwen3vl"
    | "qwen3moe"
    | "smollm3"
    | "granite"
    | "granite_swa"
    | "phi3"
    | "mistral3"
    | "deci"
    | "seed_oss"
    | "arcee"
    | "minicpm"
    | "nanbeige"
    | "ernie4_5"
    | "ernie4_5-moe"
    | "exaone"
    | "internlm2"
    | "hunyuan-dense"
    | "olmoe"
    | "granitemoe"
    | "qwen3vlmoe"
    | "glm4moe"
    | "bailingmoe2"
    | "deepseek2"
    | "gemma"
    | "maincoder"
    | "pangu-embedded"
    | "deepseek"
    | "hunyuan-moe"
    | "minimax-m2"
    | "mellum"
    | "eurobert"
    | "llama-embed";
  /** GGUF's pairs of rotated rows are (2i, 2i + 1), where the checkpoint's are (i, i + half). */
  readonly interleavedRope: boolean;
  /** RMSNorm of each query and key head. */
  readonly headNorms: boolean;
  /** RMSNorm of all query heads together and of all key heads together. */
  readonly rowNorms?: boolean;
  /** q, k and v have biases, or all matrices of attention. */
  readonly biases?: boolean | "all";
  /** Applied to the weights of norms of rows. */
  readonly norm?: (weight: number) => number;
  /** Of the gate; by default SiLU. */
  readonly activation?: "gelu_pytorch_tanh";
  /** The feed-forward half is a squared ReLU without a gate. */
  readonly ungated?: boolean;
  /** q, k and v are one matrix, and so are gate and up. */
  readonly fused?: boolean;
  /** q, k and v are one matrix of the checkpoint, in which the rows of a KV head follow those of its query heads. */
  readonly grouped?: boolean;
  /** GGUF's name of the norm before the feed-forward half; by default `ffn_norm`. */
  readonly feedForwardNorm?: string;
  /** Of rotary frequencies, where config.json does not say it; by default 10,000. */
  readonly ropeBase?: number;
  /** The part of a head that is rotated, where config.json does not say it; by default all. */
  readonly partialRotary?: number;
  /** Ways to stretch the context beside the linear one. */
  readonly scalings?: readonly Scaling[];
  /** As `readDecoderConfig` has it. */
  readonly anyMultiplier?: boolean;
  /** Keys and modules that are called otherwise than Llama's. */
  readonly keys?: DecoderKeys;
  readonly modules?: Partial<Modules>;
  /** Lists what stands behind a layer's first norm; by default the matrices of grouped heads. `from` is what stands before the layer's modules. */
  readonly attention?: (decoder: DecoderConfig, block: string, from: string) => void;
  /** Lists what stands behind a layer's second norm; by default SwiGLU's matrices. `from` is what stands before the layer's modules. */
  readonly feedForward?: (decoder: DecoderConfig, block: string, from: string, layer: number) => void;
}

/** What modules are called, by Llama and most others. */
const MODULES = {
  embedding: "embed_tokens",
  layers: "layers",
  attentionNorm: "input_layernorm",
  attention: "self_attn",
  fused: "qkv_proj",
  output: "o_proj",
  queryNorm: "q_norm",
  keyNorm: "k_norm",
  feedForwardNorm: "post_attention_layernorm",
  feedForward: "mlp",
  gate: "gate_proj",
  up: "up_proj",
  down: "down_proj",
};
type Modules = Readonly<typeof MODULES>;

/** What config.json calls the ways to make one row of a text's, with GGUF's codes. */
const POOLINGS: Readonly<Record<string, number>> = { avg: 1, cls: 2, last: 3 };

/** Llama's layers where they attend in both directions, without the head that names tokens. */
export function convertLlamaEncoder(...of: Parameters<typeof convertLlama>): ModelParts {
  const [config, , , { architecture }] = of;
  const parts = convertLlama(...of);
  const entries = [...parts.entries, entry(`${architecture}.attention.causal`, "BOOL", false)];
  if (config.has("pooling")) {
    const way = config.string("pooling");
    if (!Object.hasOwn(POOLINGS, way)) {
      config.refuse("pooling", quote(way), Object.keys(POOLINGS).map(quote).join(", "));
    }
    entries.push(entry(`${architecture}.pooling_type`, "UINT32", POOLINGS[way]));
  }
  return { ...parts, entries, tied: true, leftOut: [["masked-token head", /^lm_head\./]] };
}

/** The tensors and keys of Llama and its like. `prefix` is what stands before `layers.0`. */
export function convertLlama(
  config: Fields,
  list: TensorList,
  prefix: string,
  traits: LlamaTraits,
): ModelParts {
  config.mustBe("rope_traditional", false, "rows are put in order for the usual rotation");
  const { architecture } = traits;
  const decoder = readDecoderConfig(config, {
    keys: traits.keys,
    biases: Boolean(traits.biases),
    scalings: ["linear", ...traits.scalings ?? []],
    activation: traits.ungated ? "relu2" : traits.activation,
    ropeBase: traits.ropeBase,
    partialRotary: traits.partialRotary,
    anyMultiplier: traits.anyMultiplier,
  });
  const modules = { ...MODULES, ...traits.modules };
  const { scaling } = decoder.rope;
  list.matrix("token_embd", `${prefix}${modules.embedding}`, decoder.vocabulary, decoder.hidden);
  if (scaling.type === "llama3") list.made("rope_freqs.weight", llama3Factors(decoder.rope, scaling));
  if (scaling.type === "longrope") {
    list.made("rope_factors_long.weight", Float32Array.from(scaling.long));
    list.made("rope_factors_short.weight", Float32Array.from(scaling.short));
  }
  for (let layer = 0; layer < decoder.layers; layer++) {
    const [block, from] = [`blk.${layer}.`, `${prefix}${modules.layers}.${layer}.`];
    if (!traits.attention) addAttention(list, decoder, traits, block, from);
    else {
      list.vector(`${block}attn_norm.weight`, `${from}${modules.attentionNorm}.weight`, decoder.hidden);
      traits.attention(decoder, block, from);
    }
    const norm = traits.feedForwardNorm ?? "ffn_norm";
    const tensor = `${from}${modules.feedForwardNorm}.weight`;
    list.vector(`${block}${norm}.weight`, tensor, decoder.hidden, { map: traits.norm });
    if (traits.feedForward) traits.feedForward(decoder, block, from, layer);
    else if (traits.ungated) addUngatedFeedForward(list, decoder, block, from);
    else if (traits.fused) addFusedFeedForward(list, decoder, block, from);
    else addFeedForward(list, decoder, block, from, modules);
  }
  return { decoder, entries: decoderEntries(architecture, decoder), outputNorm: traits.norm };
}

/** The norm before attention, and its matrices. */
export function addAttention(
  list: TensorList,
  decoder: DecoderConfig,
  traits: LlamaTraits,
  block: string,
  layer: string,
): void {
  const { hidden, heads, kvHeads, headDim } = decoder;
  const modules = { ...MODULES, ...traits.modules };
  const from = `${layer}${modules.attention}.`;
  const order = (n: number) => traits.interleavedRope ? { rowOrder: interleavedPairs(n, headDim) } : {};
  const norm = `${layer}${modules.attentionNorm}.weight`;
  list.vector(`${block}attn_norm.weight`, norm, hidden, { map: traits.norm });
  if (traits.fused) {
    list.matrix(`${block}attn_qkv`, `${from}${modules.fused}`, (heads + 2 * kvHeads) * headDim, hidden);
  } else if (traits.grouped) addGrouped(list, decoder, traits, block, `${from}${modules.fused}`);
  else {
    list.matrix(`${block}attn_q`, `${from}q_proj`, heads * headDim, hidden, order(heads));
    list.matrix(`${block}attn_k`, `${from}k_proj`, kvHeads * headDim, hidden, order(kvHeads));
    list.matrix(`${block}attn_v`, `${from}v_proj`, kvHeads * headDim, hidden);
    const rows = { q: heads * headDim, k: kvHeads * headDim, v: kvHeads * headDim };
    for (const [part, length] of traits.biases ? Object.entries(rows) : []) {
      list.vector(`${block}attn_${part}.bias`, `${from}${part}_proj.bias`, length);
    }
  }
  list.matrix(`${block}attn_output`, `${from}${modules.output}`, hidden, heads * headDim);
  if (traits.biases === "all") {
    list.vector(`${block}attn_output.bias`, `${from}${modules.output}.bias`, hidden);
  }
  if (!traits.headNorms && !traits.rowNorms) return;
  const [queries, keys] = traits.rowNorms ? [heads * headDim, kvHeads * headDim] : [headDim, headDim];
  list.vector(`${block}attn_q_norm.weight`, `${from}${modules.queryNorm}.weight`, queries);
  list.vector(`${block}attn_k_norm.weight`, `${from}${modules.keyNorm}.weight`, keys);
}

function addGrouped(
  list: TensorList,
  { hidden, heads, kvHeads, headDim }: DecoderConfig,
  { interleavedRope }: LlamaTraits,
  block: string,
  module: string,
): void {
  const each = heads / kvHeads; // query heads a KV head
  const add = (name: string, count: number, indexOf: (head: number) => number, rotated: boolean) => {
    const rows = rotated && interleavedRope ? interleavedPairs(1, headDim) : [[0, headDim]] as const;
    const rowOrder = Array.from({ length: count }, (_, head) => indexOf(head) * headDim)
      .flatMap((first) => rows.map(([row, length]) => [first + row, length] as const));
    const of = (heads + 2 * kvHeads) * headDim;
    list.matrix(`${block}${name}`, module, count * headDim, hidden, { of, rowOrder });
  };
  add("attn_q", heads, (head) => Math.floor(head / each) * (each + 2) + head % each, true);
  add("attn_k", kvHeads, (head) => head * (each + 2) + each, true);
  add("attn_v", kvHeads, (head) => head * (each + 2) + each + 1, false);
}

/** SwiGLU's three matrices, which almost all architectures have. */
export function addFeedForward(
  list: TensorList,
  { hidden, feedForward }: DecoderConfig,
  block: string,
  layer: string,
  modules: Modules = MODULES,
): void {
  const from = `${layer}${modules.feedForward}.`;
  list.matrix(`${block}ffn_gate`, `${from}${modules.gate}`, feedForward, hidden);
  list.matrix(`${block}ffn_up`, `${from}${modules.up}`, feedForward, hidden);
  list.matrix(`${block}ffn_down`, `${from}${modules.down}`, hidden, feedForward);
}

function addUngatedFeedForward(
  list: TensorList,
  { hidden, feedForward }: DecoderConfig,
  block: string,
  layer: string,
): void {
  list.matrix(`${block}ffn_up`, `${layer}mlp.up_proj`, feedForward, hidden);
  list.matrix(`${block}ffn_down`, `${layer}mlp.down_proj`, hidden, feedForward);
}

/** Gate and up are one matrix. */
function addFusedFeedForward(
  list: TensorList,
  { hidden, feedForward }: DecoderConfig,
  block: string,
  layer: string,
): void {
  list.matrix(`${block}ffn_up`, `${layer}mlp.gate_up_proj`, 2 * feedForward, hidden);
  list.matrix(`${block}ffn_down`, `${layer}mlp.down_proj`, hidden, feedForward);
}
