/**
 * The vision tower of Gemma 4. Sources: llama.cpp, conversion/gemma.py (Gemma4VisionAudioModel); Hugging Face
 * transformers, models/gemma4.
 */
import { TOKENS } from "../../engine/vision/gemma4.ts";
import type { TensorList } from "../tensor_list.ts";
import { type Configs, countsOf, MOST, prefixOf, readSizes, type Sizes, type TowerParts } from "./sizes.ts";

/** Default number of position embeddings per axis, from transformers' configuration class. */
const POSITIONS = 10_240;
const WHY = "a tower's file has no key for it";
const BOUNDS = ["input_min", "input_max", "output_min", "output_max"];

export function convertGemma4Tower(configs: Configs, list: TensorList): TowerParts {
  const { vision, processor } = configs;
  const usual = { layers: 16, width: 768, heads: 12, feedForward: 3072, patch: 16, image: 224 };
  const sizes = readSizes(configs, usual);
  const { width, heads } = sizes;
  vision.withDefaults({ hidden_activation: "gelu_pytorch_tanh" })
    .mustBe("hidden_activation", "gelu_pytorch_tanh", WHY);
  vision.mustBe("num_key_value_heads", heads, "each head has its own keys and values");
  vision.mustBe("head_dim", width / heads, "heads must fill a row");
  vision.fields("rope_parameters")?.mustBe("rope_theta", 100, WHY);
  const merged = vision.count("pooling_kernel_size", MOST.merged, 3);
  processor.mustBe("pooling_kernel_size", merged, "the tower pools as many patches");
  processor.mustBe("max_soft_tokens", TOKENS, WHY);
  addTensors(list, sizes, {
    positions: vision.count("position_embedding_size", MOST.side ** 2, POSITIONS),
    clipped: vision.boolean("use_clipped_linears", false),
    standardized: vision.boolean("standardize", false),
  });
  return {
    projector: "gemma4v",
    activation: "gelu",
    counts: { ...countsOf(sizes), "projector.scale_factor": merged },
    eps: vision.positive("rms_norm_eps", 1, 1e-6),
  };
}

interface Parts {
  readonly positions: number;
  readonly clipped: boolean;
  readonly standardized: boolean;
}

function addTensors(list: TensorList, sizes: Sizes, { positions, clipped, standardized }: Parts): void {
  const { layers, width, heads, feedForward, patch, projection } = sizes;
  const prefix = prefixOf(list.finder, EMBEDDING, ["model.vision_tower.", "vision_tower."]);
  const module = (name: string) => `${prefix}${name}`;
  const [pixels, columns] = [patch ** 2, 3 * patch ** 2];
  // The checkpoint stores the three colours of each pixel together. The GGUF file has one plane per colour.
  const from = (i: number) => {
    const inRow = i % columns;
    return i - inRow + inRow % pixels * 3 + Math.floor(inRow / pixels);
  };
  list.reshaped("v.patch_embd.weight", module(EMBEDDING), [width, columns], [patch, patch, 3, width], from);
  const table = module("patch_embedder.position_embedding_table");
  list.reshaped("v.position_embd.weight", table, [2, positions, width], [width, positions, 2]);
  const product = (name: string, linear: string, rows: number, columns: number) => {
    list.matrix(name, `${linear}.linear`, rows, columns);
    for (const bound of clipped ? BOUNDS : []) list.vector(`${name}.${bound}`, `${linear}.${bound}`, 1);
  };
  for (let layer = 0; layer < layers; layer++) {
    const name = (tensor: string) => `v.blk.${layer}.${tensor}`;
    const block = (tensor: string) => module(`encoder.layers.${layer}.${tensor}`);
    for (const [norm, from] of NORMS) list.vector(`${name(norm)}.weight`, `${block(from)}.weight`, width);
    for (const part of ["q", "k"]) {
      list.vector(
        `${name(`attn_${part}_norm`)}.weight`,
        block(`self_attn.${part}_norm.weight`),
        width / heads,
      );
    }
    for (const [part, from] of [["q", "q"], ["k", "k"], ["v", "v"], ["out", "o"]]) {
      product(name(`attn_${part}`), block(`self_attn.${from}_proj`), width, width);
    }
    for (const part of ["gate", "up"]) {
      product(name(`ffn_${part}`), block(`mlp.${part}_proj`), feedForward, width);
    }
    product(name("ffn_down"), block("mlp.down_proj"), width, feedForward);
  }
  for (const part of standardized ? ["bias", "scale"] : []) {
    list.vector(`v.std_${part}`, module(`std_${part}`), width);
  }
  const projector = "embed_vision.embedding_projection";
  const outer = prefixOf(list.finder, `${projector}.weight`, ["model.", ""]);
  list.matrix("mm.input_projection", `${outer}${projector}`, projection, width);
}

const EMBEDDING = "patch_embedder.input_proj.weight";
const NORMS = [
  ["ln1", "input_layernorm"],
  ["attn_post_norm", "post_attention_layernorm"],
  ["ln2", "pre_feedforward_layernorm"],
  ["ffn_post_norm", "post_feedforward_layernorm"],
];
