import { affine, affineNorm } from "../affine.ts";
import { type DecoderConfig, decoderEntries, readDecoderConfig } from "../decoder_config.ts";
import { norm } from "./gemma3.ts";
import type { Fields } from "../checkpoint/json.ts";
import type { ModelParts } from "../model_parts.ts";
import type { TensorList } from "../tensor_list.ts";

/** Where config.json does not say. Source: Nemotron's configuration class. */
const PARTIAL_ROTARY = 0.5;

/** What tells decoders with LayerNorm, and feed-forward halves without gates, apart. */
interface Traits {
  readonly architecture: "starcoder2" | "nemotron";
  /** What the two matrices of a feed-forward half are called. */
  readonly up: string;
  readonly down: string;
  /** All matrices have biases. */
  readonly biases: boolean;
  /** Applied to the weights of norms. */
  readonly norm?: (weight: number) => number;
}

/** The tensors and keys of StarCoder2. Its window is left aside, as llama.cpp does. */
export function convertStarcoder2(config: Fields, list: TensorList, prefix: string): ModelParts {
  config.mustBe("use_bias", true, "GGUF's readers ask for biases");
  const decoder = readDecoderConfig(config, {
    keys: { epsilon: "norm_epsilon" },
    activation: "gelu_pytorch_tanh",
    scalings: [],
  });
  return parts(decoder, list, prefix, {
    architecture: "starcoder2",
    up: "mlp.c_fc",
    down: "mlp.c_proj",
    biases: true,
  });
}

/** The tensors and keys of Nemotron and Minitron. */
export function convertNemotron(config: Fields, list: TensorList, prefix: string): ModelParts {
  const decoder = readDecoderConfig(config, {
    keys: { epsilon: "norm_eps" },
    activation: "relu2",
    partialRotary: PARTIAL_ROTARY,
    scalings: [],
  });
  return parts(decoder, list, prefix, {
    architecture: "nemotron",
    up: "mlp.up_proj",
    down: "mlp.down_proj",
    biases: false,
    norm,
  });
}

function parts(decoder: DecoderConfig, list: TensorList, prefix: string, traits: Traits): ModelParts {
  list.matrix("token_embd", `${prefix}embed_tokens`, decoder.vocabulary, decoder.hidden);
  for (let i = 0; i < decoder.layers; i++) {
    addLayer(list, decoder, traits, `blk.${i}.`, `${prefix}layers.${i}.`);
  }
  list.vector("output_norm.bias", `${prefix}norm.bias`, decoder.hidden);
  const entries = decoderEntries(traits.architecture, decoder, "layer_norm_epsilon");
  return { decoder, entries, outputNorm: traits.norm };
}

function addLayer(
  list: TensorList,
  { hidden, feedForward, heads, kvHeads, headDim }: DecoderConfig,
  { up, down, biases, norm }: Traits,
  block: string,
  layer: string,
): void {
  for (
    const [name, module] of [["attn_norm", "input_layernorm"], ["ffn_norm", "post_attention_layernorm"]]
  ) {
    affineNorm(list, block + name, layer + module, hidden, norm);
  }
  const matrices = [
    ["attn_q", "self_attn.q_proj", heads * headDim, hidden],
    ["attn_k", "self_attn.k_proj", kvHeads * headDim, hidden],
    ["attn_v", "self_attn.v_proj", kvHeads * headDim, hidden],
    ["attn_output", "self_attn.o_proj", hidden, heads * headDim],
    ["ffn_up", up, feedForward, hidden],
    ["ffn_down", down, hidden, feedForward],
  ] as const;
  for (const [name, module, rows, columns] of matrices) {
    if (biases) affine(list, block + name, layer + module, rows, columns);
    else list.matrix(block + name, layer + module, rows, columns);
  }
}
