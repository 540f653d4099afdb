/**
 * The SigLIP vision towers of Gemma 3, SmolVLM and Idefics 3. Sources: llama.cpp, conversion/gemma.py and smolvlm.py;
 * Hugging Face transformers, models/siglip, models/gemma3 and models/idefics3.
 */
import { affine, affineNorm } from "../affine.ts";
import type { TensorList } from "../tensor_list.ts";
import { type Configs, countsOf, MOST, prefixOf, readSizes, type Sizes, type TowerParts } from "./sizes.ts";

const ACTIVATION = "gelu_pytorch_tanh";
const EMBEDDING = "embeddings.patch_embedding.weight";
/** Prefixes of Gemma 3's towers. Newer versions of transformers leave out `vision_model.`. */
const GEMMA3 = [
  "vision_tower.vision_model.",
  "model.vision_tower.vision_model.",
  "vision_tower.",
  "model.vision_tower.",
];
const IDEFICS3 = ["model.vision_model.", "vision_model."];

/** Converts the tower of Gemma 3, which models from 4B on have. */
export function convertGemma3(configs: Configs, list: TensorList): TowerParts {
  const { root } = configs;
  const usual = { layers: 12, width: 768, heads: 12, feedForward: 3072, patch: 16, image: 224 };
  const sizes = readSizes(configs, usual);
  const { width, projection } = sizes;
  const across = Math.floor(sizes.image / sizes.patch);
  const tokens = root.count("mm_tokens_per_image", MOST.side ** 2, 256);
  const merged = across / Math.sqrt(tokens);
  if (!Number.isInteger(merged)) {
    root.refuse("mm_tokens_per_image", String(tokens), `a square whose side divides ${across}`);
  }
  const eps = addSiglip(configs, list, GEMMA3, sizes);
  const projector = prefixOf(list.finder, "mm_soft_emb_norm.weight", [
    "multi_modal_projector.",
    "model.multi_modal_projector.",
  ]);
  const norm = `${projector}mm_soft_emb_norm.weight`;
  list.vector("mm.soft_emb_norm.weight", norm, width, { map: (weight) => weight + 1 });
  list.floats("mm.input_projection.weight", `${projector}mm_input_projection_weight`, width, projection);
  return {
    projector: "gemma3",
    activation: "gelu",
    counts: { ...countsOf(sizes), "projector.scale_factor": merged },
    eps,
  };
}

/** Converts the tower of SmolVLM and Idefics 3. */
export function convertIdefics3(configs: Configs, list: TensorList): TowerParts {
  const { root, processor } = configs;
  const usual = { layers: 12, width: 1152, heads: 16, feedForward: 3072, patch: 32, image: 224 };
  const sizes = readSizes(configs, usual);
  const merged = root.count("scale_factor", MOST.merged, 2);
  const longest = processor.fields("size")?.count("longest_edge", MOST.side) ??
    processor.refuse("size", "none", "an object");
  processor.fields("max_image_size")?.mustBe("longest_edge", sizes.image, "tiles are as large as image_size");
  processor.mustBe("do_image_splitting", true, "a tower's file has no key for it");
  const eps = addSiglip(configs, list, IDEFICS3, sizes);
  const connector = "connector.modality_projection.proj";
  const prefix = prefixOf(list.finder, `${connector}.weight`, ["model.", ""]);
  list.matrix("mm.model.fc", `${prefix}${connector}`, sizes.projection, merged ** 2 * sizes.width);
  return {
    projector: "idefics3",
    activation: "gelu",
    counts: { ...countsOf(sizes), "projector.scale_factor": merged, preproc_image_size: longest },
    eps,
  };
}

/** Adds the embeddings, the layers and the last norm. Returns the epsilon of the norms. */
function addSiglip(
  { vision }: Configs,
  list: TensorList,
  prefixes: readonly string[],
  sizes: Sizes,
): number {
  vision.mustBe("hidden_act", ACTIVATION, "a tower's file has no key for another activation");
  const { layers, width, feedForward, patch, image } = sizes;
  const prefix = prefixOf(list.finder, EMBEDDING, prefixes);
  const module = (name: string) => `${prefix}${name}`;
  list.frames("v.patch_embd", module(EMBEDDING), { rows: width, frames: 1, side: patch });
  list.vector("v.patch_embd.bias", module("embeddings.patch_embedding.bias"), width);
  const positions = Math.floor(image / patch) ** 2;
  list.floats("v.position_embd.weight", module("embeddings.position_embedding.weight"), positions, width);
  for (let layer = 0; layer < layers; layer++) {
    const name = (tensor: string) => `v.blk.${layer}.${tensor}`;
    const block = (tensor: string) => module(`encoder.layers.${layer}.${tensor}`);
    affineNorm(list, name("ln1"), block("layer_norm1"), width);
    for (const part of ["q", "k", "v", "out"]) {
      affine(list, name(`attn_${part}`), block(`self_attn.${part}_proj`), width, width);
    }
    affineNorm(list, name("ln2"), block("layer_norm2"), width);
    affine(list, name("ffn_up"), block("mlp.fc1"), feedForward, width);
    affine(list, name("ffn_down"), block("mlp.fc2"), width, feedForward);
  }
  affineNorm(list, "v.post_ln", module("post_layernorm"), width);
  return vision.positive("layer_norm_eps", 1, 1e-6);
}
