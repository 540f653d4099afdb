import { join } from "@std/path";
import { ColumnWeights } from "../../convert/importance.ts";
import type { Quantizer } from "../../convert/quantize/quantizers.ts";
import { quantizerOf, type QuantizeTo, weighs } from "../../convert/quantize/quantize_to.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import { byteLengthOf, layoutOf } from "../../engine/gguf/tensor_types.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { FORMATS } from "../../engine/gguf/formats.ts";
import { type NewTensor, withTensors } from "../../testing/split_gguf.ts";
import { dequantize } from "../../testing/synth/weights.ts";
import { run } from "./programs.ts";

/** A matrix of a layer, dequantized. */
interface Matrix {
  readonly name: string;
  readonly shape: readonly number[]; // ggml order
  readonly values: Float32Array;
  /** Weights of the columns; undefined for equal weights. */
  readonly weights?: Float32Array;
}

/** A quantized matrix, and its dequantized values. */
interface Requantized {
  readonly bytes: Uint8Array;
  readonly restored: Float32Array;
}

/** Quantizes all matrices of a model file's layers to one type. */
export class Requantizer {
  readonly #kept: NewTensor[] = [];
  readonly #matrices: Matrix[] = [];

  private constructor(private readonly source: Uint8Array) {}

  /** Reads the model at `path`, and the importance matrix at `importance` if given. */
  static async open(path: string, importance?: string): Promise<Requantizer> {
    const source = await Deno.readFile(path);
    const found = new Requantizer(source);
    const weights = importance === undefined ? undefined : await ColumnWeights.read(importance);
    for (const { name, type, shape, offset, byteLength } of parseGguf(source).tensors.values()) {
      const bytes = source.subarray(offset, offset + byteLength);
      found.#kept.push({ name, type, shape, bytes });
      if (!/^blk\..*\.weight$/.test(name) || shape.length < 2 || type === "F32") continue;
      const count = shape.reduce((a, b) => a * b);
      const values = Float32Array.from(dequantize(type, bytes, count));
      found.#matrices.push({ name, shape, values, weights: weights?.of(name, shape[0], shape[2] ?? 1) });
    }
    return found;
  }

  /** Returns "N of M": N of the layers' M matrices have rows that divide into the type's blocks. */
  share(type: TensorType): string {
    return `${this.#fitting(type).length} of ${this.#matrices.length}`;
  }

  /**
   * Writes the file `model`, in which each matrix has the type if its rows divide into the type's blocks. Also writes the
   * file `exact` with the same values in F32. The library `ggml` quantizes if given, else compy's quantizers do.
   */
  async write(
    type: TensorType,
    { model, exact, ggml }: { model: string; exact: string; ggml?: string },
  ): Promise<void> {
    const matrices = this.#fitting(type);
    const made = ggml === undefined
      ? matrices.map((matrix) => requantize(matrix, type))
      : await withGgml(ggml, matrices, type);
    const of = new Map(matrices.map(({ name }, i) => [name, made[i]]));
    const values = new Map(this.#matrices.map((matrix) => [matrix.name, matrix.values]));
    const tensors = this.#kept.map((kept) => {
      const found = of.get(kept.name);
      return found ? { ...kept, type, bytes: found.bytes } : kept;
    });
    await Deno.writeFile(model, withTensors(this.source, tensors));
    const floats = this.#kept.map((kept) => {
      const found = of.get(kept.name)?.restored ?? values.get(kept.name);
      return found ? { ...kept, type: "F32" as const, bytes: new Uint8Array(found.buffer) } : kept;
    });
    await Deno.writeFile(exact, withTensors(this.source, floats));
  }

  #fitting(type: TensorType): Matrix[] {
    return this.#matrices.filter(({ shape }) => shape[0] % layoutOf(type).elements === 0);
  }
}

/** Returns whether `convert` can write the type. */
export function isWritten(type: TensorType): boolean {
  return FLOATS[type] !== undefined || quantizer(type) !== undefined;
}

function quantizer(type: TensorType): Quantizer | undefined {
  const found = quantizerOf(type.toLowerCase() as QuantizeTo, [layoutOf(type).elements]);
  return found?.type === type ? found : undefined; // may be a replacement of another type
}

const FLOATS: Partial<Record<TensorType, (values: Float32Array) => ArrayBufferView<ArrayBuffer>>> = {
  F32: (values) => values.slice(),
  F16: (values) => new Float16Array(values),
  BF16: toBf16,
};

/** Returns the values in BF16, rounded with ties to even. */
function toBf16(values: Float32Array): Uint16Array<ArrayBuffer> {
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  return Uint16Array.from(words, (word) => (word + 0x7fff + (word >>> 16 & 1)) >>> 16);
}

function requantize({ name, shape: [width, rows], values, weights }: Matrix, type: TensorType): Requantized {
  const toFloat = FLOATS[type];
  if (toFloat) {
    const { buffer } = toFloat(values);
    const bytes = new Uint8Array(buffer);
    return { bytes, restored: Float32Array.from(dequantize(type, bytes, values.length)) };
  }
  const { block, columns, bytes: size } = quantizer(type)!;
  const [bytes, restored] = [
    new Uint8Array(byteLengthOf(type, values.length)),
    new Float32Array(values.length),
  ];
  const part = new Float32Array(columns);
  const weighed = weights && weighs(type.toLowerCase() as QuantizeTo)
    ? { values: weights, at: 0 }
    : undefined;
  for (let at = 0, to = 0; at < values.length; at += columns, to += size) {
    if (weighed) weighed.at = Math.floor(at / (width * rows)) * width + at % width;
    if (!block(values, at, bytes, to, part, weighed)) {
      throw new Error(`${name} has values that ${type} cannot hold`);
    }
    restored.set(part, at);
  }
  return { bytes, restored };
}

/** Quantizes with ggml's library, in a Python script that exchanges data through files. */
async function withGgml(
  library: string,
  matrices: readonly Matrix[],
  type: TensorType,
): Promise<Requantized[]> {
  const folder = await Deno.makeTempDir({ prefix: "compy-ggml-" });
  try {
    const write = (name: string, parts: readonly Float32Array[]) =>
      Deno.writeFile(join(folder, name), new Blob(parts as Float32Array<ArrayBuffer>[]).stream());
    await write("values.f32", matrices.map(({ values }) => values));
    await write("weights.f32", matrices.flatMap(({ weights }) => weights ?? []));
    const lines = matrices.map(({ shape: [columns], values: { length }, weights }) => {
      const bytes = byteLengthOf(type, length);
      const { id } = FORMATS[type];
      return JSON.stringify({
        type,
        id,
        rows: length / columns,
        columns,
        bytes,
        weighed: weights !== undefined,
      });
    });
    const script = new URL("ggml_quantize.py", import.meta.url).pathname;
    await run("python3", [script, library, folder], folder, lines.join("\n"));
    const blocks = await Deno.readFile(join(folder, "blocks.bin"));
    const restored = new Float32Array((await Deno.readFile(join(folder, "restored.f32"))).buffer);
    let at = 0;
    return matrices.map(({ values: { length } }) => {
      const start = at;
      at += length;
      const bytes = blocks.subarray(byteLengthOf(type, start), byteLengthOf(type, at));
      return { bytes, restored: restored.slice(start, at) };
    });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
