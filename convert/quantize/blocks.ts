import { quantizerFor, type QuantizeTo } from "./quantize_to.ts";

/** Weights of the columns of one or more matrices, one matrix after the other. Each matrix has `rows` rows. */
export interface RowWeights {
  readonly values: Float32Array; // [matrices * columns]
  readonly columns: number;
  readonly rows: number;
}

/** Whole rows to quantize, as a message to a worker. */
export interface QuantizeTask {
  readonly to: QuantizeTo;
  readonly values: Float32Array<ArrayBuffer>;
  /** Weights of all rows. `first` is the index of the first value among all values of the matrices. */
  readonly weights?: RowWeights & { readonly first: number };
}

/** Quantized rows, the sums of their squared values and squared errors, and their largest absolute error. */
export interface Quantized {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly squares: number;
  readonly errors: number;
  readonly max: number;
}

/** Quantizes rows. Returns undefined if the type cannot hold a value. */
export function quantizeBlocks({ to: type, values, weights: weighed }: QuantizeTask): Quantized | undefined {
  const { columns, bytes: size, block } = quantizerFor(type);
  const bytes = new Uint8Array(values.length / columns * size);
  const weights = weighed && { values: weighed.values, at: 0 };
  const restored = new Float32Array(columns);
  // Local variables are used, because each write to a number in an object or closure allocates.
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

/** Returns the index of the weight for a value. `value` is the value's index over all matrices. */
function placeOf(value: number, { columns, rows }: RowWeights): number {
  const matrix = Math.floor(value / (columns * rows));
  return matrix * columns + value % columns;
}
