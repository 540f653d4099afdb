/**
 * The vision tower of Pixtral, Mistral Small 3.1 and Ministral 3. Sources: llama.cpp, conversion/llava.py; Hugging Face
 * transformers, models/pixtral, models/mistral3 and models/llava.
 */
import { join } from "@std/path";
import { quote } from "../../engine/gguf/errors.ts";
import { affine } from "../affine.ts";
import { Fields, isObject, MAX_TOKENIZER_BYTES, oneOf, readJson } from "../checkpoint/json.ts";
import { refuse } from "../errors.ts";
import { interleavedPairs } from "../order.ts";
import type { TensorList } from "../tensor_list.ts";
import { type Configs, countsOf, MOST, prefixOf, readSizes, type Sizes, type TowerParts } from "./sizes.ts";

/** Epsilon of the norms in transformers' code. */
const EPS = 1e-5;
const ROPE_BASE = 10_000;
const ROW_END = "[IMG_BREAK]";

export async function convertPixtral(configs: Configs, list: TensorList): Promise<TowerParts> {
  const { root, text, processor } = configs;
  const usual = { layers: 24, width: 1024, heads: 16, feedForward: 4096, patch: 16, image: 1024 };
  const sizes = readSizes(configs, usual);
  checkTower(configs, sizes);
  const merges = root.string("model_type") === "mistral3";
  const merged = merges ? root.count("spatial_merge_size", MOST.merged, 2) : 1;
  if (merges) text.mustBe("rms_norm_eps", EPS, "a tower's file has one epsilon");
  if (merges && merged === 1) root.refuse("spatial_merge_size", "1", "at least 2");
  addTensors(list, sizes);
  addProjector(list, sizes, merges ? merged : undefined, root.boolean("multimodal_projector_bias", !merges));
  await addRowEnd(list, text, sizes.projection);
  const longest = processor.fields("size")?.count("longest_edge", MOST.side, sizes.image) ?? sizes.image;
  return {
    projector: "pixtral",
    activation: "silu",
    counts: { ...countsOf({ ...sizes, image: Math.min(longest, sizes.image) }), spatial_merge_size: merged },
    eps: EPS,
  };
}

/** Throws if the tower has settings that a GGUF file has no keys for. */
function checkTower({ root, vision }: Configs, { width, heads }: Sizes): void {
  const type = vision.string("model_type");
  if (type !== "pixtral") vision.refuse("model_type", quote(type), '"pixtral"');
  const why = "a tower's file has no key for it";
  vision.withDefaults({ hidden_act: "gelu" }).mustBe("hidden_act", "silu", why);
  vision.mustBe("head_dim", width / heads, "heads must fill a row");
  for (const config of [vision, vision.fields("rope_parameters")]) {
    config?.mustBe("rope_theta", ROPE_BASE, why);
    const rope = config?.get("rope_type") ?? "default";
    if (rope !== "default" && rope !== "axial") config!.refuseValue("rope_type", oneOf(["default", "axial"]));
  }
  root.mustBe("projector_hidden_act", "gelu", why);
  root.withDefaults({ vision_feature_layer: root.get("model_type") === "llava" ? -2 : -1 })
    .mustBe("vision_feature_layer", -1, "the decoder reads the last layer's rows");
}

function addTensors(list: TensorList, sizes: Sizes): void {
  const { layers, width, heads, feedForward, patch } = sizes;
  const prefix = prefixOf(list.finder, "ln_pre.weight", ["vision_tower.", "model.vision_tower."]);
  const module = (name: string) => `${prefix}${name}`;
  list.frames("v.patch_embd", module("patch_conv.weight"), { rows: width, frames: 1, side: patch });
  list.vector("v.pre_ln.weight", module("ln_pre.weight"), width);
  const rowOrder = interleavedPairs(heads, width / heads);
  for (let layer = 0; layer < layers; layer++) {
    const name = (tensor: string) => `v.blk.${layer}.${tensor}`;
    const block = (tensor: string) => module(`transformer.layers.${layer}.${tensor}`);
    list.vector(name("ln1.weight"), block("attention_norm.weight"), width);
    list.matrix(name("attn_q"), block("attention.q_proj"), width, width, { rowOrder });
    list.matrix(name("attn_k"), block("attention.k_proj"), width, width, { rowOrder });
    list.matrix(name("attn_v"), block("attention.v_proj"), width, width);
    list.matrix(name("attn_out"), block("attention.o_proj"), width, width);
    list.vector(name("ln2.weight"), block("ffn_norm.weight"), width);
    list.matrix(name("ffn_gate"), block("feed_forward.gate_proj"), feedForward, width);
    list.matrix(name("ffn_up"), block("feed_forward.up_proj"), feedForward, width);
    list.matrix(name("ffn_down"), block("feed_forward.down_proj"), width, feedForward);
  }
}

/**
 * Adds the projector. `merged` is the side of the squares of patches that become one row, in patches. Undefined: the
 * projector has no norm and merges no patches.
 */
function addProjector(
  list: TensorList,
  { width, projection }: Sizes,
  merged: number | undefined,
  biased: boolean,
): void {
  const projector = "multi_modal_projector.";
  const prefix = prefixOf(list.finder, "linear_1.weight", [projector, `model.${projector}`]);
  if (merged !== undefined) {
    list.vector("mm.input_norm.weight", `${prefix}norm.weight`, width);
    list.matrix("mm.patch_merger", `${prefix}patch_merger.merging_layer`, width, merged ** 2 * width);
  }
  for (const [i, columns] of [width, projection].entries()) {
    const [name, module] = [`mm.${i + 1}`, `${prefix}linear_${i + 1}`];
    if (biased) affine(list, name, module, projection, columns);
    else list.matrix(name, module, projection, columns);
  }
}

/** Adds the embedding of `[IMG_BREAK]`, which ends an image's rows. llama.cpp reads it from the tower's file. */
async function addRowEnd(list: TensorList, text: Fields, length: number): Promise<void> {
  const path = join(list.finder.folder, "tokenizer.json");
  const json = await readJson(path, MAX_TOKENIZER_BYTES);
  const added = isObject(json) && Array.isArray(json.added_tokens) ? json.added_tokens : [];
  const at = added.find((token) => isObject(token) && token.content === ROW_END)?.id;
  const of = text.count("vocab_size", 2 ** 24);
  if (!Number.isInteger(at) || at < 0 || at >= of) {
    refuse(path, `token ${quote(ROW_END)}`, `must be one of ${of} tokens, because it ends an image's rows`);
  }
  const table = "embed_tokens.weight";
  const prefixes = ["language_model.model.", "model.language_model.", "model."];
  const prefix = prefixOf(list.finder, table, prefixes);
  list.vector("v.token_embd.img_break", `${prefix}${table}`, length, { row: { at, of } });
}
