import { quote } from "../../engine/gguf/errors.ts";
import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import { refuse } from "../errors.ts";
import { nvfp4Floats } from "../quantized/fp4.ts";
import type { Fields } from "../checkpoint/json.ts";
import {
  FLOATS,
  type FloatType,
  isFloat,
  type MatrixSource,
  type SafeTensor,
} from "../checkpoint/tensors.ts";

/** MLX's quantization modes that can be converted. Source: the documentation of mlx.core.quantize. */
type Mode = "mxfp4" | "nvfp4" | "affine";

const AFFINE_BITS: readonly number[] = [4, 8];
const AFFINE_GROUPS: readonly number[] = [32, 64, 128];

/** Finds a checkpoint's matrices and vectors by name, with the shapes that config.json implies. */
export class WeightFinder {
  /** Names of the tensors that conversion has used. */
  readonly used = new Set<string>();

  /** `config`: the whole config.json, in which MLX describes the quantization of each module. */
  constructor(private readonly checkpoint: Checkpoint, private readonly config: Fields) {}

  get folder(): string {
    return this.checkpoint.folder;
  }

  /**
   * Returns a float tensor of that shape, which may have additional dimensions of 1. Throws ConvertError for another
   * type or shape.
   */
  floats(name: string, shape: readonly number[]): SafeTensor {
    const tensor = this.#tensor(name);
    if (!isFloat(tensor.dtype)) wrongType(tensor, FLOATS.join(", "));
    if (!sameShape(tensor.shape.filter((n) => n !== 1), shape.filter((n) => n !== 1))) {
      wrongShape(tensor, shape);
    }
    return tensor;
  }

  has(name: string): boolean {
    return this.checkpoint.tensors.has(name);
  }

  /**
   * Returns the weight of a module, e.g. `model.layers.0.mlp.up_proj`. Throws ConvertError if it is none of the
   * supported kinds.
   */
  matrix(module: string, rows: number, columns: number): MatrixSource {
    const weight = this.#tensor(`${module}.weight`);
    const scales = this.#optional(`${module}.scales`);
    if (!scales) {
      if (!FLOATS.includes(weight.dtype)) {
        wrongType(weight, `${FLOATS.join(", ")}, or U32 with "${module}.scales" beside it`);
      }
      if (!sameShape(weight.shape, [rows, columns])) wrongShape(weight, [rows, columns]);
      return { kind: weight.dtype as FloatType, weight };
    }
    const mode = this.#mode(module, weight, scales, columns);
    if (weight.dtype !== "U32") wrongType(weight, `U32, as there are scales`);
    if (mode === "nvfp4") return this.#nvfp4(weight, scales, rows, columns);
    return mode === "mxfp4"
      ? mxfp4(weight, scales, rows, columns)
      : affine(weight, scales, this.#tensor(`${module}.biases`), rows, columns);
  }

  #nvfp4(weight: SafeTensor, scales: SafeTensor, rows: number, columns: number): MatrixSource {
    if (scales.dtype !== "U8") wrongType(scales, "U8, E4M3's codes");
    if (!sameShape(weight.shape, [rows, columns / 8])) wrongShape(weight, [rows, columns / 8]);
    if (!sameShape(scales.shape, [rows, columns / 16])) wrongShape(scales, [rows, columns / 16]);
    const matrix = { name: weight.name, format: "MLX NVFP4", codes: weight, scales, factor: 1 };
    return { kind: "F32", weight: nvfp4Floats(this.checkpoint, matrix) };
  }

  /** Returns a float tensor [experts, rows, columns]. */
  stack(name: string, shape: readonly number[]): MatrixSource {
    const weight = this.floats(name, shape);
    return { kind: weight.dtype as FloatType, weight };
  }

  /**
   * Returns gpt-oss's experts: `NAME_blocks` [experts, rows, columns / 32, 16] with two codes per byte, and
   * `NAME_scales` with an exponent per 32 columns.
   */
  blocks(name: string, [experts, rows, columns]: readonly number[]): MatrixSource {
    const [weight, scales] = [this.#tensor(`${name}_blocks`), this.#tensor(`${name}_scales`)];
    for (const part of [weight, scales]) if (part.dtype !== "U8") wrongType(part, "U8");
    const groups = [experts, rows, columns / 32];
    if (!sameShape(weight.shape, [...groups, 16])) wrongShape(weight, [...groups, 16]);
    if (!sameShape(scales.shape, groups)) wrongShape(scales, groups);
    return { kind: "MXFP4", weight, scales };
  }

  #tensor(name: string): SafeTensor {
    const tensor = this.#optional(name);
    if (!tensor) refuse(this.folder, `tensor ${quote(name)}`, "it is in none of the files");
    return tensor;
  }

  #optional(name: string): SafeTensor | undefined {
    const tensor = this.checkpoint.tensors.get(name);
    if (tensor) this.used.add(name);
    return tensor;
  }

  /**
   * Returns the quantization mode from config.json or, if missing, from the scales. Throws ConvertError for an
   * unsupported or contradictory mode, because a wrong one would silently give wrong values.
   */
  #mode(module: string, weight: SafeTensor, scales: SafeTensor, columns: number): Mode {
    const settings = this.config.fields("quantization") ?? this.config.fields("quantization_config");
    if (!settings) {
      refuse(
        scales.file,
        `tensor ${quote(scales.name)}`,
        "there are scales, but no quantization in config.json",
      );
    }
    const own = typeof settings.get(module) === "object" ? settings.fields(module)! : settings;
    const biased = this.has(`${module}.biases`);
    const isNvfp4 = scales.dtype === "U8" && scales.shape[1] === columns / 16;
    const unsaid = settings.string("mode", isNvfp4 ? "nvfp4" : "affine");
    const mode = own.string("mode", biased ? "affine" : unsaid);
    if (mode !== "mxfp4" && mode !== "affine" && mode !== "nvfp4") {
      const detail = `the quantization mode must be "mxfp4", "nvfp4" or "affine" (got ${quote(mode)})`;
      refuse(weight.file, `tensor ${quote(weight.name)}`, detail);
    }
    if (mode !== "affine" && biased) {
      refuse(weight.file, `tensor ${quote(`${module}.biases`)}`, `must be absent with the mode ${mode}`);
    }
    return mode;
  }
}

function mxfp4(weight: SafeTensor, scales: SafeTensor, rows: number, columns: number): MatrixSource {
  if (scales.dtype !== "U8") wrongType(scales, "U8, E8M0's exponents");
  if (!sameShape(weight.shape, [rows, columns / 8])) wrongShape(weight, [rows, columns / 8]);
  if (!sameShape(scales.shape, [rows, columns / 32])) wrongShape(scales, [rows, columns / 32]);
  return { kind: "MXFP4", weight, scales };
}

function affine(
  weight: SafeTensor,
  scales: SafeTensor,
  biases: SafeTensor,
  rows: number,
  columns: number,
): MatrixSource {
  // Bits and group size follow from the tensors' shapes and the known number of columns.
  const bits = 32 * (weight.shape[1] ?? 0) / columns;
  const group = columns / (scales.shape[1] ?? 0);
  for (const part of [weight, scales, biases]) {
    if (part.shape.length !== 2 || part.shape[0] !== rows) wrongShape(part, [rows, part.shape[1] ?? 0]);
  }
  const field = `tensor ${quote(weight.name)}`;
  if (!AFFINE_BITS.includes(bits)) {
    refuse(weight.file, field, `must have ${AFFINE_BITS.join(", ")} bits a column (got ${bits})`);
  }
  if (!AFFINE_GROUPS.includes(group)) {
    refuse(
      weight.file,
      field,
      `must have a scale for ${AFFINE_GROUPS.join(", ")} columns (got one for ${group})`,
    );
  }
  for (const part of [scales, biases]) {
    if (!FLOATS.includes(part.dtype)) wrongType(part, FLOATS.join(", "));
    if (!sameShape(part.shape, [rows, columns / group])) wrongShape(part, [rows, columns / group]);
  }
  return { kind: "affine", bits, group, weight, scales, biases };
}

function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((size, i) => size === b[i]);
}

function wrongShape({ file, name, shape }: SafeTensor, allowed: readonly number[]): never {
  const detail = `must have shape ${allowed.join(" x ")}, as config.json says (got ${shape.join(" x ")})`;
  refuse(file, `tensor ${quote(name)}`, detail);
}

function wrongType({ file, name, dtype }: SafeTensor, allowed: string): never {
  refuse(file, `tensor ${quote(name)}`, `must have dtype ${allowed} (got ${dtype})`);
}
