/** Converts the vision tower of a checkpoint to the keys and tensors of an `mmproj` file. */
import { join } from "@std/path";
import { quote } from "../../engine/gguf/errors.ts";
import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import { Fields, MAX_CONFIG_BYTES, oneOf, readJson } from "../checkpoint/json.ts";
import { refuse } from "../errors.ts";
import { VISION } from "../models.ts";
import type { Quantization } from "../quantize/quantization.ts";
import { TensorList } from "../tensor_list.ts";
import { WeightFinder } from "../write/matrix_source.ts";
import { type Entry, entry } from "../write/metadata.ts";
import type { OutputTensor } from "../write/output_tensor.ts";
import { convertGemma4Tower } from "./gemma4.ts";
import { convertPixtral } from "./pixtral.ts";
import { convertQwen } from "./qwen.ts";
import { convertGemma3, convertIdefics3 } from "./siglip.ts";
import type { Configs, TowerParts } from "./sizes.ts";

/** Keys and tensors of a vision tower's file. */
export interface ConvertedTower {
  readonly architecture: "clip";
  readonly entries: readonly Entry[];
  readonly tensors: readonly OutputTensor[];
  /** Number of unused checkpoint tensors, by model part: those of the model itself. */
  readonly leftOut: Readonly<Record<string, number>>;
}

/** Adds a tower's tensors to the list, and returns the values of its metadata keys. */
type Convert = (configs: Configs, list: TensorList) => TowerParts | Promise<TowerParts>;

/** Converters of towers, by the whole model's `model_type`. */
const TOWERS: Readonly<Record<string, Convert>> = {
  qwen3_vl: convertQwen,
  qwen3_vl_moe: convertQwen,
  qwen3_5: convertQwen,
  qwen3_5_moe: convertQwen,
  gemma3: convertGemma3,
  gemma4: convertGemma4Tower,
  idefics3: convertIdefics3,
  smolvlm: convertIdefics3,
  llava: convertPixtral,
  mistral3: convertPixtral,
};
/** `model_type`s of checkpoints whose vision tower can be converted. */
export const TOWER_TYPES = Object.keys(TOWERS);

/**
 * Converts the vision tower of a checkpoint. Throws ConvertError for a model without a supported tower, for a missing
 * or wrong key or tensor, and for a tensor of the tower that no part reads.
 */
export async function convertTower(
  root: Fields,
  checkpoint: Checkpoint,
  quantize: Quantization | undefined,
): Promise<ConvertedTower> {
  const type = root.string("model_type");
  if (!TOWER_TYPES.includes(type)) {
    root.refuse("model_type", quote(type), `${oneOf(TOWER_TYPES)} for a vision tower`);
  }
  const vision = root.fields("vision_config") ?? root.refuse("vision_config", "none", "an object");
  const finder = new WeightFinder(checkpoint, root);
  const list = new TensorList(checkpoint, finder, quantize);
  const processor = await readProcessor(checkpoint.folder);
  const configs = { root, vision, text: root.fields("text_config") ?? root, processor };
  const { projector, activation, counts, eps, entries = [] } = await TOWERS[type](configs, list);
  const own = [...checkpoint.tensors.values()].filter(({ name }) => VISION.test(name));
  const unread = own.find(({ name }) => !finder.used.has(name));
  if (unread) refuse(unread.file, `tensor ${quote(unread.name)}`, "no part of the vision tower reads it");
  const rest = checkpoint.tensors.size - own.length;
  return {
    architecture: "clip",
    entries: [
      entry("general.architecture", "STRING", "clip"),
      entry("general.type", "STRING", "mmproj"),
      entry("clip.has_vision_encoder", "BOOL", true),
      entry("clip.projector_type", "STRING", projector),
      entry(`clip.use_${activation}`, "BOOL", true),
      ...Object.entries(counts).map(([key, value]) => entry(`clip.vision.${key}`, "UINT32", value)),
      entry("clip.vision.attention.layer_norm_epsilon", "FLOAT32", eps),
      ...entries,
      ...["image_mean", "image_std"].map((name) => colours(processor, name)),
    ],
    tensors: list.tensors,
    leftOut: rest === 0 ? {} : { "the model itself": rest },
  };
}

/** Returns the image processor's configuration, from one of two files. Throws if neither file has it. */
async function readProcessor(folder: string): Promise<Fields> {
  const [path, other] = ["preprocessor_config.json", "processor_config.json"].map((name) =>
    join(folder, name)
  );
  const alone = await readJson(path, MAX_CONFIG_BYTES);
  if (alone !== undefined) return Fields.of(path, alone);
  const joined = await readJson(other, MAX_CONFIG_BYTES);
  if (joined === undefined) refuse(path, undefined, "a checkpoint with a vision tower must have this file");
  return Fields.of(other, joined).fields("image_processor") ??
    refuse(other, 'key "image_processor"', "it is missing");
}

/** Returns the metadata entry `name` with one number per colour. Throws unless the processor has three valid numbers. */
function colours(processor: Fields, name: string): Entry {
  const values = processor.get(name);
  const valid = Array.isArray(values) && values.length === 3 &&
    values.every((value) => Number.isFinite(value) && (name === "image_mean" || value > 0));
  if (!valid) processor.refuseValue(name, "three numbers");
  return entry(`clip.vision.${name}`, "FLOAT32", values as number[]);
}
