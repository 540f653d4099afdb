import { type DecoderConfig, decoderEntries, readDecoderConfig } from "./decoder_config.ts";
import { type Fields, inWords } from "./json.ts";
import type { ModelParts } from "./model_parts.ts";
import type { TensorList } from "./tensor_list.ts";

/** The tensors and keys of StarCoder2. Its window is left aside, as llama.cpp does. */
export function convertStarcoder2(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("use_bias", true, "GGUF's readers ask for biases");
  const decoder = readDecoderConfig(config, {
    keys: { epsilon: "norm_epsilon" },
    activation: "gelu_pytorch_tanh",
  });
  const { scaling, fields } = decoder.rope;
  if (scaling.type !== "none") fields.refuse("rope_type", inWords(scaling.type), `"default"`);
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, decoder.hidden);
  for (let i = 0; i < decoder.layers; i++) addLayer(list, decoder, `blk.${i}.`, `${prefix}layers.${i}.`);
  list.vector("output_norm.bias", `${prefix}norm.bias`, decoder.hidden);
  return { decoder, entries: decoderEntries("starcoder2", decoder, "layer_norm_epsilon") };
}

function addLayer(
  list: TensorList,
  { hidden, feedForward, heads, kvHeads, headDim }: DecoderConfig,
  block: string,
  layer: string,
): void {
  for (const [name, norm] of [["attn_norm", "input_layernorm"], ["ffn_norm", "post_attention_layernorm"]]) {
    for (const part of ["weight", "bias"]) {
      list.vector(`${block}${name}.${part}`, `${layer}${norm}.${part}`, hidden);
    }
  }
  const matrices = [
    ["attn_q", "self_attn.q_proj", heads * headDim, hidden],
    ["attn_k", "self_attn.k_proj", kvHeads * headDim, hidden],
    ["attn_v", "self_attn.v_proj", kvHeads * headDim, hidden],
    ["attn_output", "self_attn.o_proj", hidden, heads * headDim],
    ["ffn_up", "mlp.c_fc", feedForward, hidden],
    ["ffn_down", "mlp.c_proj", hidden, feedForward],
  ] as const;
  for (const [name, module, rows, columns] of matrices) {
    list.matrix(block + name, layer + module, rows, columns);
    list.vector(`${block}${name}.bias`, `${layer}${module}.bias`, rows);
  }
}
