/** Tensors and formulas in float64, written from the papers. */
import { openGguf } from "../../../engine/gguf/reader.ts";
import type { GgufFile } from "../../../engine/gguf/types.ts";
import type { Rgb } from "../../../engine/vision/resize.ts";
import { dequantize } from "../../../testing/synth/weights.ts";

export type Rows = Float64Array[];
export type Place = readonly [row: number, column: number];

/** A model file's tensors in float64. */
export class Tensors {
  readonly #bytes: Uint8Array;
  readonly #values = new Map<string, Float64Array>();

  private constructor(private readonly file: GgufFile) {
    this.#bytes = Deno.readFileSync(file.path);
  }

  static async open(path: string): Promise<Tensors> {
    return new Tensors(await openGguf(path));
  }

  get(name: string): Float64Array {
    const info = this.file.tensors.get(name)!;
    const known = this.#values.get(name);
    if (known) return known;
    const bytes = this.#bytes.slice(info.offset, info.offset + info.byteLength);
    const values = dequantize(info.type, bytes, info.shape.reduce((a, b) => a * b));
    this.#values.set(name, values);
    return values;
  }

  has(name: string): boolean {
    return this.file.tensors.has(name);
  }

  /** Adds the bias if the file has one. */
  affine(x: Rows, name: string): Rows {
    const bias = this.has(`${name}.bias`) ? this.get(`${name}.bias`) : undefined;
    return product(x, this.get(`${name}.weight`), bias);
  }

  layerNorm(x: Rows, name: string, eps: number): Rows {
    const [weight, bias] = [this.get(`${name}.weight`), this.get(`${name}.bias`)];
    return x.map((row) => {
      const mean = sum(row) / row.length;
      const scale = 1 / Math.sqrt(sum(row.map((v) => (v - mean) ** 2)) / row.length + eps);
      return row.map((v, i) => (v - mean) * scale * weight[i] + bias[i]);
    });
  }

  rmsNorm(row: Float64Array, name: string, eps = 1e-6): Float64Array {
    const weight = this.get(`${name}.weight`);
    const scale = 1 / Math.sqrt(sum(row.map((v) => v * v)) / row.length + eps);
    return row.map((v, i) => v * scale * weight[i]);
  }
}

export const sum = (values: Float64Array) => values.reduce((a, b) => a + b, 0);

export function product(x: Rows, weight: Float64Array, bias?: Float64Array): Rows {
  const columns = x[0].length;
  const rows = weight.length / columns;
  return x.map((row) =>
    Float64Array.from({ length: rows }, (_, r) => {
      let total = bias?.[r] ?? 0;
      for (let i = 0; i < columns; i++) total += weight[r * columns + i] * row[i];
      return total;
    })
  );
}

export const plus = (a: Rows, b: Rows) => a.map((row, i) => row.map((v, j) => v + b[i][j]));
export const tanhGelu = (x: number) =>
  x / 2 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
export const erfGelu = (x: number) => x / 2 * (1 + erf(x / Math.SQRT2));

/** The error function, by its series. */
function erf(x: number): number {
  if (Math.abs(x) > 5) return Math.sign(x);
  let [term, total] = [x, x];
  for (let n = 1; n < 120; n++) total += (term *= -x * x / n) / (2 * n + 1);
  return 2 / Math.sqrt(Math.PI) * total;
}

/** Rotates a head by one angle per pair: (i, i + half), or (2i, 2i + 1) if interleaved. */
export function rotated(head: Float64Array, angles: readonly number[], interleaved = false): Float64Array {
  if (interleaved) {
    return head.map((v, i) => {
      const [angle, other] = [angles[i >> 1], i % 2 === 0 ? -head[i + 1] : head[i - 1]];
      return v * Math.cos(angle) + other * Math.sin(angle);
    });
  }
  const half = head.length / 2;
  return head.map((v, i) => {
    const [angle, other] = [angles[i % half], i < half ? -head[i + half] : head[i - half]];
    return v * Math.cos(angle) + other * Math.sin(angle);
  });
}

/** Returns softmax(scale q K) V of one head over the given keys. */
export function attend(
  q: Float64Array,
  keys: Rows,
  values: Rows,
  scale = 1 / Math.sqrt(q.length),
): Float64Array {
  const scores = keys.map((key) => scale * sum(q.map((v, i) => v * key[i])));
  const most = Math.max(...scores);
  const weights = scores.map((score) => Math.exp(score - most));
  const total = weights.reduce((a, b) => a + b);
  return q.map((_, i) => values.reduce((all, value, t) => all + weights[t] * value[i], 0) / total);
}

/** Returns the pixels of each patch of a picture, from -1 to 1. */
export function pixelsOf({ width, pixels }: Rgb, places: readonly Place[], patch: number): Rows {
  return places.map(([row, column]) =>
    Float64Array.from({ length: 3 * patch ** 2 }, (_, i) => {
      const [channel, y, x] = [Math.floor(i / patch ** 2), Math.floor(i / patch) % patch, i % patch];
      return (pixels[3 * ((row * patch + y) * width + column * patch + x) + channel] / 255 - 0.5) / 0.5;
    })
  );
}

/** Returns one row per square of patches, with the rows of its patches concatenated. */
export function squares(x: Rows, across: number, merged: number): Rows {
  const tokens: Rows = [];
  for (let row = 0; row < x.length / across; row += merged) {
    for (let column = 0; column < across; column += merged) {
      const square = Array.from(
        { length: merged ** 2 },
        (_, i) => x[(row + Math.floor(i / merged)) * across + column + i % merged],
      );
      tokens.push(Float64Array.from(square.flatMap((row) => [...row])));
    }
  }
  return tokens;
}
