/** LoRA adapters of synthetic models, and the models with the adapters merged into their weights. */
import { parseGguf } from "../../engine/gguf/reader.ts";
import { GgufBuilder } from "../../engine/gguf/testing.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { Random, seedOf } from "../../testing/random.ts";
import { dequantize, weights } from "../../testing/synth/weights.ts";

export interface AdapterOptions {
  readonly seed: number;
  readonly rank: number;
  /** By default alpha makes the changes about as large as the weights; 0 leaves the key out. */
  readonly alpha?: number;
  readonly type?: TensorType;
  /** Chooses the matrices that change, by the name of their tensor; by default all of attention and feed-forward. */
  readonly targets?: RegExp;
}

const LAYERS = /^blk\.\d+\.(attn_(q|k|v|qkv|output)|ffn_(gate|up|down))\.weight$/;

/** Returns an adapter's file for a model, as llama.cpp's converter writes it. */
export function synthAdapter(model: Uint8Array, options: AdapterOptions): Uint8Array<ArrayBuffer> {
  return adapterBuilder(model, options).build().bytes;
}

/** Returns the same before it is written, for tests that change it. */
export function adapterBuilder(model: Uint8Array, options: AdapterOptions): GgufBuilder {
  const { seed, rank, alpha = 16 * rank, type = "F32", targets = LAYERS } = options;
  const file = parseGguf(model);
  const builder = new GgufBuilder()
    .set("general.type", "STRING", "adapter")
    .set("general.architecture", "STRING", file.metadata.getString("general.architecture"))
    .set("adapter.type", "STRING", "lora");
  if (alpha !== 0) builder.set("adapter.lora.alpha", "FLOAT32", alpha);
  for (const { name, shape } of file.tensors.values()) {
    if (!targets.test(name)) continue;
    const [columns, rows] = shape;
    const add = (half: string, shape: number[]) => {
      const values = weights(
        type,
        shape[0] * shape[1],
        new Random(seedOf(`adapter ${seed} ${name} ${half}`)),
      );
      builder.tensor(`${name}.lora_${half}`, type, shape, values);
    };
    add("a", [columns, rank]);
    add("b", [rank, rows]);
  }
  return builder;
}

/** Returns the F32 model with adapters merged into its weights, computed in float64. */
export function merged(
  model: Uint8Array,
  adapters: readonly (readonly [adapter: Uint8Array, scale: number])[],
): Uint8Array<ArrayBuffer> {
  const bytes = model.slice();
  const file = parseGguf(bytes);
  const sums = new Map<string, Float64Array>();
  for (const [adapter, scale] of adapters) {
    const { metadata, tensors } = parseGguf(adapter);
    const alpha = metadata.getNumber("adapter.lora.alpha", 0);
    const valuesOf = (name: string) => {
      const { type, offset, byteLength, shape } = tensors.get(name)!;
      return dequantize(type, adapter.subarray(offset, offset + byteLength), shape[0] * shape[1]);
    };
    for (const [half, { shape: [columns, rank] }] of tensors) {
      if (!half.endsWith(".lora_a")) continue;
      const name = half.slice(0, -".lora_a".length);
      const { offset, shape: [, rows] } = file.tensors.get(name)!;
      const base = new Float32Array(bytes.buffer, offset, rows * columns);
      const sum = sums.get(name) ?? Float64Array.from(base);
      sums.set(name, sum);
      const [a, b] = [valuesOf(half), valuesOf(`${name}.lora_b`)];
      const factor = scale * (alpha === 0 ? 1 : alpha / rank);
      for (let row = 0; row < rows; row++) {
        for (let k = 0; k < rank; k++) {
          const by = factor * b[row * rank + k];
          for (let i = 0; i < columns; i++) sum[row * columns + i] += by * a[k * columns + i];
        }
      }
    }
  }
  for (const [name, sum] of sums) {
    new Float32Array(bytes.buffer, file.tensors.get(name)!.offset, sum.length).set(sum);
  }
  return bytes;
}
