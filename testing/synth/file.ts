import type { ValueType } from "../../engine/gguf/key_values.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { Random, seedOf } from "../random.ts";
import { dequantize, weights, withFactors } from "./weights.ts";

type Scalar = number | boolean | string;
type ScalarType = Exclude<ValueType, "ARRAY">;

/** Receives a model's keys and tensors: in memory, or tensor by tensor on disk. */
export interface Sink {
  set(key: string, type: ScalarType, value: Scalar): void;
  array(key: string, type: ScalarType, values: ArrayLike<Scalar>): void;
  /** Adds a tensor. `make` returns its data, and may be called later. */
  tensor(name: string, type: TensorType, shape: readonly number[], make: () => ArrayBufferView): void;
}

/** Options for writing matrices. */
export interface MatrixStyle {
  /** Seed of all values; the same text gives the same model. */
  readonly seed: string;
  /** Returns the type of a matrix, from its number, name (without `.weight`) and shape. */
  readonly typeOf: (index: number, name: string, shape: readonly number[]) => TensorType;
  /** Whether to write the matrices' values in F32. The model is the same, but kernels do not round activations. */
  readonly dequantized?: boolean;
  /** Whether to write NVFP4 with a factor on the values of each matrix or expert, in a separate tensor. */
  readonly factors?: boolean;
}

/** Writes a seeded model file. Shapes are in ggml's order, columns first. */
export class SynthFile {
  #matrices = 0;

  constructor(
    readonly sink: Sink,
    /** Value of `general.architecture`. */
    readonly architecture: string,
    private readonly style: MatrixStyle,
  ) {}

  /** Returns random numbers that depend on the model's seed and on `name`. */
  random(name: string): Random {
    return new Random(seedOf(`${this.style.seed} ${name}`));
  }

  /** Writes the key `{architecture}.{name}`. */
  key(name: string, type: ScalarType, value: Scalar): void {
    this.sink.set(`${this.architecture}.${name}`, type, value);
  }

  keys(name: string, type: ScalarType, values: ArrayLike<Scalar>): void {
    this.sink.array(`${this.architecture}.${name}`, type, values);
  }

  counts(values: Readonly<Record<string, number>>): void {
    for (const [name, value] of Object.entries(values)) this.key(name, "UINT32", value);
  }

  /** Writes the matrix NAME.weight in the model's format, with a standard deviation near 0.02. */
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

  /**
   * Writes the tensor NAME.weight with the given type instead of the model's format. Values are drawn as in `matrix`.
   */
  plain(name: string, type: "F32" | "F16", ...shape: number[]): void {
    const count = shape.reduce((product, n) => product * n);
    this.sink.tensor(`${name}.weight`, type, shape, () => weights(type, count, this.random(name)));
  }

  /** Writes an F32 tensor of normally distributed values. `name` is its full name. */
  vector(name: string, length: number, mean = 1, spread = 0.1): void {
    this.floats(name, [length], (random) => mean + spread * random.normal());
  }

  /** Writes an F32 tensor. `name` is its full name, and `next` returns one value after the other. */
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
