/** Quantized matrices for tests, alone in a checkpoint or in place of a model's linear layers. */
import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { Random, seedOf } from "../../testing/random.ts";
import {
  safetensors,
  type StoredTensor,
  storeFloats,
  type TinyCheckpoint,
} from "../../testing/checkpoints.ts";
import { dequantize } from "../../testing/synth/weights.ts";
import { Checkpoint } from "../checkpoint/checkpoint.ts";
import { Fields } from "../checkpoint/json.ts";
import { type Dtype, DTYPES, isFloat } from "../checkpoint/tensors.ts";
import { ConvertError } from "../errors.ts";
import { keepRows, partsOf } from "../quantize/row_encoders.ts";
import { readNumbers } from "./numbers.ts";
import { dequantizeCheckpoint } from "./quantized.ts";

/** A quantized matrix: its tensors by the suffix of the module's name, and its values. */
export interface QuantizedMatrix {
  readonly parts: Readonly<Record<string, StoredTensor>>;
  readonly values: Float32Array;
}

export type QuantizeMatrix = (
  random: Random,
  rows: number,
  columns: number,
  module: string,
) => QuantizedMatrix;

/** The weight that was read from a checkpoint with one module. */
export interface Read {
  readonly shape: readonly number[];
  readonly values: Float32Array;
  /** Format in the checkpoint, type of the values, and type of the exact blocks if any. */
  readonly kind: string;
  /** Values of the exact blocks. */
  readonly exact?: Float32Array;
  /** Factor by which the blocks' values are multiplied. */
  readonly factor?: number;
}

/** Stores the parts as tensors of a module `m` and reads its weight. Throws like `dequantizeCheckpoint`. */
export async function readMatrix(parts: QuantizedMatrix["parts"], settings: unknown): Promise<Read> {
  const folder = await Deno.makeTempDir({ prefix: "compy-quantized-" });
  try {
    const tensors = Object.entries(parts).map(([suffix, part]) => [`m.${suffix}`, part] as const);
    await Deno.writeFile(join(folder, "model.safetensors"), safetensors(tensors));
    using checkpoint = await Checkpoint.open(folder);
    dequantizeCheckpoint(checkpoint, Fields.of("config.json", { quantization_config: settings }));
    const weight = checkpoint.tensors.get("m.weight");
    // In a whole model, the converter refuses the missing tensor.
    if (!weight || !(weight.compute || isFloat(weight.dtype))) throw new ConvertError("not quantized");
    const { shape, format, dtype, blocks } = weight;
    const kind = [format, dtype, ...blocks ? [blocks.kind] : []].join(" ");
    const values = readNumbers(checkpoint, weight);
    if (!blocks) return { shape, values, kind };
    const bytes = await keepRows(blocks).encode(
      partsOf(blocks).map((part) => {
        const bytes = new Uint8Array(part.byteLength);
        checkpoint.read(part, 0, bytes);
        return bytes;
      }),
    );
    const exact = Float32Array.from(dequantize(blocks.kind, bytes, values.length));
    return { shape, values, kind, exact, factor: "factor" in blocks ? blocks.factor : undefined };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/**
 * Checks that a module with one random change gives as many values as its shape says, or a ConvertError, `count` times.
 */
export async function assertRobust(
  parts: QuantizedMatrix["parts"],
  settings: unknown,
  count: number,
): Promise<void> {
  const random = new Random(seedOf(Object.keys(parts).join()));
  const names = Object.keys(parts);
  for (let i = 0; i < count; i++) {
    const name = names[random.below(names.length)];
    const changed = { ...parts, [name]: mutated(parts[name], random) };
    if (random.below(8) === 0) delete (changed as Record<string, StoredTensor>)[name];
    try {
      const { shape, values } = await readMatrix(changed, settings);
      assertEquals(values.length, shape.reduce((product, size) => product * size, 1));
    } catch (error) {
      assert(error instanceof ConvertError, `${name}: ${error}`);
    }
  }
}

/** Returns the tensor with another type, another shape or other bytes. The bytes still match type and shape. */
function mutated(tensor: StoredTensor, random: Random): StoredTensor {
  const { dtype, shape, bytes } = tensor;
  const size = DTYPES[dtype];
  switch (random.below(3)) {
    case 0: {
      const others = Object.keys(DTYPES).filter((other) => DTYPES[other as Dtype] === size);
      return { ...tensor, dtype: others[random.below(others.length)] as Dtype };
    }
    case 1: {
      const shapes = [shape.toReversed(), [...shape, 1], [1, ...shape], [bytes.length / size], [0, ...shape]];
      const other = shapes[random.below(shapes.length)];
      return { dtype, shape: other, bytes: other.includes(0) ? new Uint8Array() : bytes };
    }
    default: {
      const other = bytes.slice();
      for (let i = 0; i < 4 && other.length > 0; i++) other[random.below(other.length)] = random.below(256);
      return { ...tensor, bytes: other };
    }
  }
}

/** Modules that are quantized: linear layers, but not the embedding and the output matrix. */
const LINEAR = /^(.*_proj)\.weight$/;

/**
 * Returns a function that quantizes the linear layers of a BF16 checkpoint. If `plain`, it stores their quantized
 * values in F32 instead.
 */
export function quantized(quantize: QuantizeMatrix, settings: unknown, plain: boolean) {
  return ({ config, tensors }: TinyCheckpoint) => {
    for (const [name, { shape: [rows, columns] }] of [...tensors]) {
      const module = LINEAR.exec(name)?.[1];
      if (!module) continue;
      const { parts, values } = quantize(new Random(seedOf(module)), rows, columns, module);
      tensors.delete(name);
      if (plain) tensors.set(name, storeFloats("F32", [rows, columns], values));
      else for (const [suffix, part] of Object.entries(parts)) tensors.set(`${module}.${suffix}`, part);
    }
    if (!plain) config.quantization_config = settings;
  };
}
