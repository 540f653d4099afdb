import { quote } from "../../engine/gguf/errors.ts";
import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import type { Fields } from "../checkpoint/json.ts";
import type { SafeTensor } from "../checkpoint/tensors.ts";
import { compressedFp4, modelOptFp4 } from "./fp4.ts";
import { CODES, refuseTensor } from "./numbers.ts";
import { packedFloats } from "./packed.ts";
import { awq, gptq, packQuantized } from "./packed_formats.ts";
import { type Block, type Scaled, scaledFloats } from "./scaled.ts";

/** Quantization methods that compy reads. Other modules read gpt-oss's "mxfp4" and MLX's formats. */
const METHODS: readonly string[] = ["mxfp4", "fp8", "modelopt", "compressed-tensors", "gptq", "awq"];

/** Ends of names of tensors to leave out. Most are scales for quantizing activations or the KV cache, in other ways. */
const UNUSED =
  /(\.|_)(input_scale|activation_scale|output_scale|k_scale|v_scale|q_scale|input_global_scale|g_idx)$/;

/**
 * Replaces the tensors of a quantized checkpoint by computed tensors with the names and shapes of the unquantized
 * checkpoint. Throws ConvertError for an unsupported method or variant.
 */
export function dequantizeCheckpoint(checkpoint: Checkpoint, config: Fields): void {
  const settings = settingsOf(config);
  const method = settings?.get("quant_method");
  if (method !== undefined && !METHODS.includes(String(method))) {
    const allowed = `${METHODS.map(quote).join(", ")} or absent, as in MLX's checkpoints`;
    settings!.refuse("quant_method", quote(String(method)), allowed);
  }
  if (settings && method === "compressed-tensors") refuseOtherFormats(settings);
  const modules = new Modules(checkpoint, settings);
  const { tensors } = checkpoint;
  const before = tensors.size;
  for (const tensor of [...tensors.values()]) modules.replace(tensor);
  const scaled: Scaled[] = [];
  for (const weight of tensors.values()) {
    const scales = scalesBeside(checkpoint, weight);
    if (scales) scaled.push({ weight, scales });
  }
  const floats = scaledFloats(checkpoint, scaled, settings ? blocksIn(settings) : []);
  for (const [i, { weight, scales }] of scaled.entries()) {
    tensors.delete(scales.name);
    tensors.set(weight.name, floats[i]);
  }
  if (tensors.size === before) return;
  for (const name of tensors.keys()) if (UNUSED.test(name)) tensors.delete(name);
}

/** compressed-tensors' formats that compy reads. */
const FORMATS: readonly unknown[] = [
  undefined,
  "dense",
  "float-quantized",
  "int-quantized",
  "naive-quantized",
  "pack-quantized",
  "nvfp4-pack-quantized",
  "mxfp4-pack-quantized",
  "mxfp8-quantized",
  "mixed-precision",
];

/** Throws ConvertError for compressed-tensors formats with another order of weights, and for transforms at run time. */
function refuseOtherFormats(settings: Fields): void {
  const groups = settings.fields("config_groups");
  const all = [settings, ...Object.keys(groups?.object ?? {}).flatMap((name) => groups!.fields(name) ?? [])];
  for (const fields of all) {
    if (!FORMATS.includes(fields.get("format"))) fields.refuseValue("format", FORMATS.slice(1).join(", "));
  }
  const transforms = settings.fields("transform_config")?.object ?? {};
  if (Object.keys(transforms).length > 0) {
    settings.refuseValue("transform_config", "absent, because transforms at run time are not computed");
  }
}

/** Replaces modules whose weight is stored as several tensors. */
class Modules {
  constructor(private readonly checkpoint: Checkpoint, private readonly settings: Fields | undefined) {}

  /** Replaces the tensor's module if the tensor holds the module's codes. */
  replace(tensor: SafeTensor): void {
    const [, module, suffix] = /^(.*\.)(weight_packed|weight|qweight)$/.exec(tensor.name) ?? [];
    if (suffix === undefined) return;
    const weight = this.#weight(tensor, module, suffix);
    if (!weight) return;
    for (const part of PARTS[suffix]) this.checkpoint.tensors.delete(module + part);
    this.checkpoint.tensors.set(weight.name, weight);
  }

  #weight(tensor: SafeTensor, module: string, suffix: string): SafeTensor | undefined {
    const { checkpoint, settings } = this;
    const parts = (suffix: string) => checkpoint.tensors.get(module + suffix);
    const name = `${module}weight`;
    if (suffix === "qweight") {
      const method = settings?.get("quant_method");
      if (!settings || (method !== "gptq" && method !== "awq")) {
        refuseTensor(tensor, 'config.json must name the quantization "gptq" or "awq"');
      }
      const read = method === "gptq" ? gptq : awq;
      return packedFloats(checkpoint, read(checkpoint, tensor, parts, name, settings));
    }
    if (suffix === "weight_packed" && tensor.dtype === "I32") {
      return packedFloats(checkpoint, packQuantized(checkpoint, tensor, parts, name));
    }
    const scales = parts("weight_scale");
    if (tensor.dtype !== "U8" || !scales) return undefined;
    return suffix === "weight_packed"
      ? compressedFp4(checkpoint, tensor, scales, parts("weight_global_scale"), name)
      : modelOptFp4(checkpoint, tensor, scales, parts("weight_scale_2"), name);
  }
}

/** Tensors of a module, by the suffix of its codes. */
const PARTS: Readonly<Record<string, readonly string[]>> = {
  qweight: ["qweight", "qzeros", "scales", "g_idx"],
  weight_packed: [
    "weight_packed",
    "weight_scale",
    "weight_shape",
    "weight_zero_point",
    "weight_g_idx",
    "weight_global_scale",
  ],
  weight: ["weight_scale", "weight_scale_2"],
};

function settingsOf(config: Fields): Fields | undefined {
  const places = [config, config.fields("text_config")];
  return places.map((place) => place?.fields("quantization_config") ?? place?.fields("compression_config"))
    .find((settings) => settings?.has("quant_method"));
}

/** Returns the scales of a matrix of 8-bit codes, if it has any. DeepSeek's `scale_inv` tensors are factors, too. */
function scalesBeside({ tensors }: Checkpoint, weight: SafeTensor): SafeTensor | undefined {
  if (!CODES[weight.dtype] || weight.dtype === "F8_E8M0" || weight.shape.length < 2) return undefined;
  const scales = tensors.get(`${weight.name}_scale_inv`) ?? tensors.get(`${weight.name}_scale`);
  // MXFP8's exponents are stored as bytes.
  return scales?.dtype === "U8" && weight.dtype !== "I8" ? { ...scales, dtype: "F8_E8M0" } : scales;
}

const MAX_BLOCK = 1 << 20;

/** Returns the block sizes that config.json mentions. */
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

/** Returns compressed-tensors' settings for each group of weights. */
function weightGroups(settings: Fields): Fields[] {
  const groups = settings.fields("config_groups");
  const names = Object.keys(groups?.object ?? {});
  return names.flatMap((name) => groups!.fields(name)?.fields("weights") ?? []);
}
