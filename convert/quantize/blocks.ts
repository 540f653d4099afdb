import { quantizerFor, type QuantizeTo } from "./quantize_to.ts";

/** Importance weights of columns, for one or more matrices in order. Each matrix has `rows` rows. */
export interface RowWeights {
  readonly values: Float32Array; // [matrices * columns]
  readonly columns: number;
  readonly rows: number;
}

/** A message to a worker: complete rows to quantize. */
export interface QuantizeTask {
  readonly to: QuantizeTo;
  readonly values: Float32Array<ArrayBuffer>;
  /** Column weights of all matrices. `first` is the index of `values[0]` among all values of the matrices. */
  readonly weights?: RowWeights & { readonly first: number };
}

/** Quantized rows, the sums of their squared values and squared errors, and their largest absolute error. */
export interface Quantized {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly squares: number;
  readonly errors: number;
  readonly max: number;
}

/** A worker's answer: the rows, undefined if the type cannot hold a value, or an exception's message. */
export interface Outcome {
  readonly rows?: Quantized;
  readonly error?: string;
}

/** Quantizes rows. Never throws. */
export function tryQuantize(task: QuantizeTask): Outcome {
  try {
    return { rows: quantizeBlocks(task) };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) };
  }
}

/** Quantizes rows. Returns undefined if the type cannot hold a value. */
function quantizeBlocks({ to: type, values, weights: weighed }: QuantizeTask): Quantized | undefined {
  const { columns, bytes: size, block } = quantizerFor(type);
  const bytes = new Uint8Array(values.length / columns * size);
  const weights = weighed && { values: weighed.values, at: 0 };
  const restored = new Float32Array(columns);
  // Sums are local variables, because each write to a number in an object or closure allocates.
  let [squares, errors, max] = [0, 0, 0];
  for (let at = 0, to = 0; at < values.length; at += columns, to += size) {
    if (weights) weights.at = placeOf(weighed!.first + at, weighed!);
    if (!block(values, at, bytes, to, restored, weights)) return undefined;
    for (let i = 0; i < columns; i++) {
      const value = values[at + i];
      const error = Math.abs(value - restored[i]);
      squares += value * value;
      errors += error * error;
      if (error > max) max = error;
    }
  }
  return Number.isFinite(squares) ? { bytes, squares, errors, max } : undefined;
}

/** Returns the index of a value's weight. `value` is the index among all values of the matrices. */
function placeOf(value: number, { columns, rows }: RowWeights): number {
  const matrix = Math.floor(value / (columns * rows));
  return matrix * columns + value % columns;
}
