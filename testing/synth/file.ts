import { dequantize } from "../../engine/backend/webgpu/kernels/testing_dequantize.ts";
import type { ValueType } from "../../engine/gguf/key_values.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { Random, seedOf } from "../random.ts";
import { weights, withFactors } from "./weights.ts";

type Scalar = number | boolean | string;
type ScalarType = Exclude<ValueType, "ARRAY">;

/** Where a model goes: into memory, or onto a disk tensor by tensor. */
export interface Sink {
  set(key: string, type: ScalarType, value: Scalar): void;
  array(key: string, type: ScalarType, values: ArrayLike<Scalar>): void;
  /** `make` may be called later. */
  tensor(name: string, type: TensorType, shape: readonly number[], make: () => ArrayBufferView): void;
}

/** How matrices are written. */
export interface MatrixStyle {
  /** What the values are drawn by: the same words give the same model. */
  readonly seed: string;
  /** The type of the matrix of that number, name (without `.weight`) and shape. */
  readonly typeOf: (index: number, name: string, shape: readonly number[]) => TensorType;
  /** Writes what the matrices stand for in F32: the same model for arithmetic that rounds no activations. */
  readonly dequantized?: boolean;
  /** NVFP4 comes with a number beside each matrix, or one an expert, that its values are multiplied by. */
  readonly factors?: boolean;
}

/** A model file as a family writes it. Shapes are in ggml's order, columns first. */
export class SynthFile {
  #matrices = 0;

  constructor(
    readonly sink: Sink,
    /** `general.architecture`. */
    readonly architecture: string,
    private readonly style: MatrixStyle,
  ) {}

  /** Numbers that depend on the model's seed and on that name. */
  random(name: string): Random {
    return new Random(seedOf(`${this.style.seed} ${name}`));
  }

  /** A key of the architecture. */
  key(name: string, type: ScalarType, value: Scalar): void {
    this.sink.set(`${this.architecture}.${name}`, type, value);
  }

  keys(name: string, type: ScalarType, values: ArrayLike<Scalar>): void {
    this.sink.array(`${this.architecture}.${name}`, type, values);
  }

  counts(values: Readonly<Record<string, number>>): void {
    for (const [name, value] of Object.entries(values)) this.key(name, "UINT32", value);
  }

  /** The tensor NAME.weight of the model's formats, with a standard deviation near 0.02. */
  matrix(name: string, ...shape: number[]): void {
    const type = this.style.typeOf(this.#matrices++, name, shape);
    const count = shape.reduce((product, n) => product * n);
    const make = () => weights(type, count, this.random(name));
    if (this.style.factors && type === "NVFP4") {
      const make = () => withFactors(weights(type, count, this.random(name)), shape[2] ?? 1);
      this.sink.tensor(`${name}.weight`, type, shape, () => make()[0]);
      this.sink.tensor(`${name}.scale`, "F32", [shape[2] ?? 1], () => make()[1]);
      return this.sink.tensor(`${name}.input_scale`, "F32", [shape[2] ?? 1], () => make()[1]);
    }
    if (!this.style.dequantized) return this.sink.tensor(`${name}.weight`, type, shape, make);
    this.sink.tensor(`${name}.weight`, "F32", shape, () => {
      const { buffer, byteOffset, byteLength } = make();
      return Float32Array.from(dequantize(type, new Uint8Array(buffer, byteOffset, byteLength), count));
    });
  }

  /** The tensor NAME.weight that has the same type in all of the model's formats; values are drawn as `matrix` draws them. */
  plain(name: string, type: "F32" | "F16", ...shape: number[]): void {
    const count = shape.reduce((product, n) => product * n);
    this.sink.tensor(`${name}.weight`, type, shape, () => weights(type, count, this.random(name)));
  }

  /** A tensor of F32 by its whole name, of normally distributed values. */
  vector(name: string, length: number, mean = 1, spread = 0.1): void {
    this.floats(name, [length], (random) => mean + spread * random.normal());
  }

  /** A tensor of F32 by its whole name; `next` gives value after value. */
  floats(
    name: string,
    shape: readonly number[],
    next: (random: Random, i: number) => number,
    seed: string = name,
  ): void {
    const length = shape.reduce((product, n) => product * n);
    this.sink.tensor(name, "F32", shape, () => {
      const random = this.random(seed);
      return Float32Array.from({ length }, (_, i) => next(random, i));
    });
  }
}
