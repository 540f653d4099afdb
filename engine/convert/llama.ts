import { type DecoderConfig, decoderEntries, llama3Factors, readDecoderConfig } from "./decoder_config.ts";
import { addExperts, expertEntries, readExperts } from "./experts.ts";
import type { Fields } from "./json.ts";
import type { ModelParts } from "./model_parts.ts";
import { interleavedPairs } from "./order.ts";
import type { TensorList } from "./tensor_list.ts";

/** What tells Hugging Face's `llama`, `qwen2` and `qwen3` apart. */
export interface LlamaTraits {
  readonly architecture:
    | "llama"
    | "qwen2"
    | "qwen2vl"
    | "qwen3"
    | "qwen3vl"
    | "qwen3moe"
    | "smollm3"
    | "granite"
    | "phi3"
    | "mistral3"
    | "deci"
    | "seed_oss"
    | "arcee"
    | "minicpm"
    | "ernie4_5"
    | "ernie4_5-moe";
  /** GGUF's pairs of rotated rows are (2i, 2i + 1), where the checkpoint's are (i, i + half). */
  readonly interleavedRope: boolean;
  /** RMSNorm of each query and key head. */
  readonly headNorms: boolean;
  /** q, k and v have biases. */
  readonly biases?: boolean;
  /** Feed-forward halves are experts. */
  readonly mixture?: boolean;
  /** The feed-forward half is a squared ReLU without a gate. */
  readonly ungated?: boolean;
  /** q, k and v are one matrix, and so are gate and up. */
  readonly fused?: boolean;
  /** GGUF's name of the norm before the feed-forward half; by default `ffn_norm`. */
  readonly feedForwardNorm?: string;
  /** Of rotary frequencies, where config.json does not say it; by default 10,000. */
  readonly ropeBase?: number;
}

/** The tensors and keys of Llama and Qwen3. `prefix` is what stands before `layers.0`. */
export function convertLlama(
  config: Fields,
  list: TensorList,
  prefix: string,
  traits: LlamaTraits,
): ModelParts {
  config.mustBe("rope_traditional", false, "rows are put in order for the usual rotation");
  const decoder = readDecoderConfig(config, 1, {}, {
    biases: traits.biases,
    longRope: traits.architecture === "phi3" || traits.architecture === "minicpm",
    yarn: traits.architecture === "mistral3" || traits.architecture === "arcee",
    activation: traits.ungated ? "relu2" : "silu",
    ropeBase: traits.ropeBase,
  });
  const experts = traits.mixture ? readExperts(config) : undefined;
  const { scaling } = decoder.rope;
  if (scaling.type === "llama3" && traits.architecture !== "llama") {
    decoder.rope.fields.refuse("rope_type", `"llama3"`, "it with the model type llama only");
  }
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, decoder.hidden);
  if (scaling.type === "llama3") list.made("rope_freqs.weight", llama3Factors(decoder.rope, scaling));
  if (scaling.type === "longrope") {
    list.made("rope_factors_long.weight", Float32Array.from(scaling.long));
    list.made("rope_factors_short.weight", Float32Array.from(scaling.short));
  }
  for (let layer = 0; layer < decoder.layers; layer++) {
    const [block, from] = [`blk.${layer}.`, `${prefix}layers.${layer}.`];
    addAttention(list, decoder, traits, block, from);
    const norm = traits.feedForwardNorm ?? "ffn_norm";
    list.vector(`${block}${norm}.weight`, `${from}post_attention_layernorm.weight`, decoder.hidden);
    if (experts) addExperts(list, decoder, experts, block, `${from}mlp.`);
    else if (traits.ungated) addUngatedFeedForward(list, decoder, block, from);
    else if (traits.fused) addFusedFeedForward(list, decoder, block, from);
    else addFeedForward(list, decoder, block, from);
  }
  const entries = decoderEntries(traits.architecture, decoder);
  return {
    decoder,
    entries: experts ? [...entries, ...expertEntries(traits.architecture, experts)] : entries,
  };
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
  const order = (n: number) => traits.interleavedRope ? { rowOrder: interleavedPairs(n, headDim) } : {};
  list.vector(`${block}attn_norm.weight`, `${layer}input_layernorm.weight`, hidden);
  if (traits.fused) {
    list.matrix(`${block}attn_qkv`, `${layer}self_attn.qkv_proj`, (heads + 2 * kvHeads) * headDim, hidden);
  } else {
    list.matrix(`${block}attn_q`, `${layer}self_attn.q_proj`, heads * headDim, hidden, order(heads));
    list.matrix(`${block}attn_k`, `${layer}self_attn.k_proj`, kvHeads * headDim, hidden, order(kvHeads));
    list.matrix(`${block}attn_v`, `${layer}self_attn.v_proj`, kvHeads * headDim, hidden);
    const rows = { q: heads * headDim, k: kvHeads * headDim, v: kvHeads * headDim };
    for (const [part, length] of traits.biases ? Object.entries(rows) : []) {
      list.vector(`${block}attn_${part}.bias`, `${layer}self_attn.${part}_proj.bias`, length);
    }
  }
  list.matrix(`${block}attn_output`, `${layer}self_attn.o_proj`, hidden, heads * headDim);
  if (traits.headNorms) {
    list.vector(`${block}attn_q_norm.weight`, `${layer}self_attn.q_norm.weight`, headDim);
    list.vector(`${block}attn_k_norm.weight`, `${layer}self_attn.k_norm.weight`, headDim);
  }
}

/** SwiGLU's three matrices, which all architectures have. */
export function addFeedForward(
  list: TensorList,
  { hidden, feedForward }: DecoderConfig,
  block: string,
  layer: string,
): void {
  list.matrix(`${block}ffn_gate`, `${layer}mlp.gate_proj`, feedForward, hidden);
  list.matrix(`${block}ffn_up`, `${layer}mlp.up_proj`, feedForward, hidden);
  list.matrix(`${block}ffn_down`, `${layer}mlp.down_proj`, hidden, feedForward);
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
