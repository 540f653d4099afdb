/** Quantized matrices for tests, alone in a checkpoint or in place of a model's linear layers. */
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

/** What a checkpoint of one module says about its weight. */
export interface Read {
  readonly shape: readonly number[];
  readonly values: Float32Array;
  /** Format in the checkpoint, type of the values, and type of the exact blocks if any. */
  readonly kind: string;
  /** Values of the exact blocks. */
  readonly exact?: Float32Array;
  /** Factor on these values. */
  readonly factor?: number;
}

/** Reads the weight of the module `m`, whose tensors are the parts. Throws as `dequantizeCheckpoint`. */
export async function readMatrix(parts: QuantizedMatrix["parts"], settings: unknown): Promise<Read> {
  const folder = await Deno.makeTempDir({ prefix: "compy-quantized-" });
  try {
    const tensors = Object.entries(parts).map(([suffix, part]) => [`m.${suffix}`, part] as const);
    await Deno.writeFile(join(folder, "model.safetensors"), safetensors(tensors));
    using checkpoint = await Checkpoint.open(folder);
    dequantizeCheckpoint(checkpoint, Fields.of("config.json", { quantization_config: settings }));
    const weight = checkpoint.tensors.get("m.weight")!;
    const { shape, format, dtype, blocks } = weight;
    const kind = [format, dtype, ...blocks ? [blocks.kind] : []].join(" ");
    const values = readNumbers(checkpoint, weight);
    if (!blocks) return { shape, values, kind };
    const bytes = keepRows(blocks).encode(
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

/** Modules that are quantized: linear layers, but not the embedding and the output matrix. */
const LINEAR = /^(.*_proj)\.weight$/;

/** Returns a change of a BF16 checkpoint that quantizes its linear layers, or stores their quantized values in F32. */
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
