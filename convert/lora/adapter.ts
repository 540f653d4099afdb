import { join } from "@std/path";
import { quote } from "../../engine/gguf/errors.ts";
import { Checkpoint } from "../checkpoint/checkpoint.ts";
import { Fields, inWords, MAX_CONFIG_BYTES, readJson } from "../checkpoint/json.ts";
import { isFloat, type SafeTensor } from "../checkpoint/tensors.ts";
import { ConvertError, refuse } from "../errors.ts";
import { refuseTensor, wrongShape } from "../quantized/numbers.ts";

const CONFIG = "adapter_config.json";
const WEIGHTS = "adapter_model.safetensors";
const MAX_ALPHA = 1e9;
const MAX_RANK = 65_536;

/**
 * Keys of LoRA variants that are not merged, and why. An absent, false or empty value means that a variant is unused.
 */
const UNUSED: readonly (readonly [key: string, why: string])[] = [
  ["use_dora", "DoRA's magnitudes are not merged"],
  ["lora_bias", "biases are not merged"],
  ["fan_in_fan_out", "transposed matrices are not merged"],
  ["modules_to_save", "whole modules are not replaced"],
  ["trainable_token_indices", "rows of the embedding are not replaced"],
  ["target_parameters", "only linear layers are merged"],
  ["layer_replication", "layers are not repeated"],
  ["alora_invocation_tokens", "an activated adapter applies only to some of the tokens"],
  ["use_qalora", "QALoRA's groups are not merged"],
];
/** Initializations that leave the base model's weights unchanged. */
const INITIAL: readonly unknown[] = [undefined, true, false, "gaussian", "eva", "orthogonal"];

/** A low-rank change of one matrix: `scale` x `b` x `a`. */
export interface LowRank {
  readonly a: SafeTensor; // [rank, columns]
  readonly b: SafeTensor; // [rows, rank]
  /** The adapter's own copy of the matrix. PEFT saves it for output matrices. */
  readonly base?: SafeTensor; // [rows, columns]
  readonly scale: number;
}

/** A LoRA adapter in PEFT's format. Its file stays open until disposal. */
export class Adapter implements Disposable {
  private constructor(
    readonly checkpoint: Checkpoint,
    /** Low-rank changes by the base model's module, such as `model.layers.0.mlp.up_proj`. */
    readonly changes: ReadonlyMap<string, LowRank>,
  ) {}

  /** Opens the adapter in a folder. Throws ConvertError for a broken adapter or an unsupported variant. */
  static async open(folder: string): Promise<Adapter> {
    const path = join(folder, CONFIG);
    const json = await readJson(path, MAX_CONFIG_BYTES);
    if (json === undefined) {
      throw new ConvertError(`Cannot find ${path}: an adapter's folder must have this file`);
    }
    const config = Fields.of(path, json);
    refuseVariants(config);
    const checkpoint = await Checkpoint.open(folder, WEIGHTS);
    try {
      return new Adapter(checkpoint, readChanges(checkpoint, config));
    } catch (error) {
      checkpoint[Symbol.dispose]();
      throw error;
    }
  }

  [Symbol.dispose](): void {
    this.checkpoint[Symbol.dispose]();
  }
}

function refuseVariants(config: Fields): void {
  const type = config.string("peft_type");
  if (type !== "LORA") config.refuse("peft_type", quote(type), `"LORA"`);
  for (const [key, why] of UNUSED) {
    const value = config.get(key);
    const isUnused = value === undefined || value === false || (Array.isArray(value) && value.length === 0);
    if (!isUnused) config.refuse(key, inWords(value), `absent, because ${why}`);
  }
  config.mustBe("bias", "none", "biases are not merged");
  if (!INITIAL.includes(config.get("init_lora_weights"))) {
    const allowed = "true, false, gaussian, eva or orthogonal, because others change the base model too";
    config.refuse("init_lora_weights", inWords(config.get("init_lora_weights")), allowed);
  }
}

/** Names of an adapter's tensors: the module, the part, and optionally the adapter's name. */
const NAME = /^base_model\.model\.(.+)\.(lora_A|lora_B|base_layer)(\.default)?\.weight$/;
type Part = "lora_A" | "lora_B" | "base_layer";

function readChanges(checkpoint: Checkpoint, config: Fields): Map<string, LowRank> {
  const parts = new Map<string, { [part in Part]?: SafeTensor }>();
  for (const tensor of checkpoint.tensors.values()) {
    const [, module, part] = NAME.exec(tensor.name) ?? [];
    if (module === undefined) {
      refuseTensor(tensor, "only the pairs lora_A and lora_B of linear layers are merged");
    }
    if (!isFloat(tensor.dtype)) {
      refuseTensor(tensor, `must have dtype F32, F16 or BF16 (got ${tensor.dtype})`);
    }
    const pair = parts.get(module) ?? {};
    if (pair[part as Part]) refuseTensor(tensor, "there is a second tensor for this matrix");
    parts.set(module, { ...pair, [part]: tensor });
  }
  if (parts.size === 0) refuse(join(checkpoint.folder, WEIGHTS), undefined, "it has no tensors");
  return new Map([...parts].map(([module, { lora_A: a, lora_B: b, base_layer: base }]) => {
    if (!a || !b) {
      refuseTensor((a ?? b ?? base)!, `needs the other matrix of the pair, ${a ? "lora_B" : "lora_A"}`);
    }
    const rank = patternOf(config, "rank_pattern", module) ?? config.count("r", MAX_RANK);
    if (a.shape.length !== 2 || a.shape[0] !== rank) wrongShape(a, `${rank} x columns for rank ${rank}`);
    if (b.shape.length !== 2 || b.shape[1] !== rank) wrongShape(b, `rows x ${rank} for rank ${rank}`);
    const alpha = patternOf(config, "alpha_pattern", module) ?? config.positive("lora_alpha", MAX_ALPHA);
    const scale = alpha / (config.boolean("use_rslora", false) ? Math.sqrt(rank) : rank);
    return [module, { a, b, base, scale }];
  }));
}

/**
 * Returns the module's own rank or alpha; undefined without one. Like PEFT, takes the first key that is the module's
 * name or the end of its name.
 */
function patternOf(config: Fields, name: string, module: string): number | undefined {
  const patterns = config.fields(name);
  for (const key of Object.keys(patterns?.object ?? {})) {
    // PEFT reads keys as regular expressions, which may run forever, so only plain names are read. Their dots match
    // dots.
    if (!/^\^?[\w.]+$/.test(key)) patterns!.refuse(key, "a pattern", "a module's name or the end of one");
    const plain = key.replace(/^\^/, "");
    if (module === plain || (plain === key && module.endsWith(`.${key}`))) {
      return name === "rank_pattern" ? patterns!.count(key, MAX_RANK) : patterns!.positive(key, MAX_ALPHA);
    }
  }
  return undefined;
}
