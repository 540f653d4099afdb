import { quote } from "../../engine/gguf/errors.ts";
import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import type { Fields } from "../checkpoint/json.ts";
import type { SafeTensor } from "../checkpoint/tensors.ts";
import { CODES } from "./numbers.ts";
import { type Block, type Scaled, scaledFloats } from "./scaled.ts";

/** Quantization methods that are read. gpt-oss's "mxfp4" and MLX's formats are read elsewhere. */
const METHODS: readonly string[] = ["mxfp4", "fp8", "modelopt", "compressed-tensors"];

/** Scales of activations and of the KV cache, which compy does not quantize in this way. */
const UNUSED =
  /(\.|_)(input_scale|activation_scale|output_scale|k_scale|v_scale|q_scale|input_global_scale)$/;

/**
 * Replaces the tensors of a quantized checkpoint by computed ones, which have the names and shapes of the unquantized
 * checkpoint. Throws ConvertError for a method or a variant that is not supported.
 */
export function dequantizeCheckpoint(checkpoint: Checkpoint, config: Fields): void {
  const settings = settingsOf(config);
  const method = settings?.get("quant_method");
  if (method !== undefined && !METHODS.includes(String(method))) {
    const allowed = `${METHODS.map(quote).join(", ")} or absent, as in MLX's checkpoints`;
    settings!.refuse("quant_method", quote(String(method)), allowed);
  }
  const { tensors } = checkpoint;
  const scaled: Scaled[] = [];
  for (const weight of tensors.values()) {
    const scales = scalesBeside(checkpoint, weight);
    if (scales) scaled.push({ weight, scales });
  }
  if (scaled.length === 0) return;
  const floats = scaledFloats(checkpoint, scaled, settings ? blocksIn(settings) : []);
  for (const [i, { weight, scales }] of scaled.entries()) {
    tensors.delete(scales.name);
    tensors.set(weight.name, floats[i]);
  }
  for (const name of tensors.keys()) if (UNUSED.test(name)) tensors.delete(name);
}

function settingsOf(config: Fields): Fields | undefined {
  const places = [config, config.fields("text_config")];
  return places.map((place) => place?.fields("quantization_config") ?? place?.fields("compression_config"))
    .find((settings) => settings?.has("quant_method"));
}

/** Returns the scales of a matrix of 8-bit codes. DeepSeek's "inverse" scales are factors, too. */
function scalesBeside({ tensors }: Checkpoint, weight: SafeTensor): SafeTensor | undefined {
  if (!CODES[weight.dtype] || weight.dtype === "F8_E8M0" || weight.shape.length < 2) return undefined;
  return tensors.get(`${weight.name}_scale_inv`) ?? tensors.get(`${weight.name}_scale`);
}

const MAX_BLOCK = 1 << 20;

/** Returns the sizes of blocks that config.json mentions. */
function blocksIn(settings: Fields): Block[] {
  const blocks: Block[] = [];
  const add = (fields: Fields, name: string) => {
    const block = fields.get(name);
    if (block === undefined) return;
    const valid = Array.isArray(block) && block.length === 2 &&
      block.every((size) => Number.isInteger(size) && size > 0 && size <= MAX_BLOCK);
    if (!valid) fields.refuseValue(name, `two whole numbers from 1 to ${MAX_BLOCK}`);
    blocks.push(block as unknown as Block);
  };
  add(settings, "weight_block_size");
  for (const weights of weightGroups(settings)) {
    add(weights, "block_structure");
    if (weights.get("strategy") === "group") blocks.push([1, weights.count("group_size", MAX_BLOCK)]);
  }
  return blocks;
}

/** Returns what compressed-tensors says about each group of weights. */
function weightGroups(settings: Fields): Fields[] {
  const groups = settings.fields("config_groups");
  const names = Object.keys(groups?.object ?? {});
  return names.flatMap((name) => groups!.fields(name)?.fields("weights") ?? []);
}
