/** Attention's rounding: the GPU rounds keys and values to f16, the CPU rounds all factors to 16-bit integers. */

/** Rounds heads, which are float64 arrays of the head's dimension. */
export interface KvRounding {
  key(head: Float64Array): Float64Array;
  /** Returns the scale of a value's codes. It is part of its position's weight. */
  valueScale(head: Float64Array): number;
  value(head: Float64Array): Float64Array;
  query(head: Float64Array): Float64Array;
  /** A query's weights for the positions from `first` on, with these value scales. */
  weights(weights: readonly number[], first: number, scales: readonly number[]): readonly number[];
}

/** Rounding of a KV cache that rounds nothing. */
export const EXACT: KvRounding = {
  key: (head) => head,
  valueScale: () => 1,
  value: (head) => head,
  query: (head) => head,
  weights: (weights) => weights,
};

const inF16 = (head: Float64Array): Float64Array => head.map((value) => Math.f16round(value));
/** The GPU's rounding of keys and values. */
export const F16: KvRounding = { ...EXACT, key: inF16, value: inF16 };

/** The largest code, the maximum norm of codes of 32 dimensions, and the maximum sum of 16 weights' codes. */
const [MOST, NORM, SUM] = [32_766, 46_000, 65_500];
/** Number of positions that share a weight scale, and number of positions per sum of codes. */
const [CHUNK, SUMMED] = [128, 16];

/** The CPU's rounding: codes are small enough to add their products in 32 bits. */
export const INT16: KvRounding = {
  key: (head) => inCodes(head, upperHalf(normScale(head))),
  valueScale: (head) => upperHalf(largest(head) / MOST),
  value: (head) => inCodes(head, upperHalf(largest(head) / MOST)),
  query: (head) => inCodes(head, normScale(head)),
  weights(weights, first, scales) {
    const scaled = weights.map((weight, i) => weight * scales[i]);
    const tops = new Map<number, number>();
    const sums = new Map<number, number>();
    scaled.forEach((weight, i) => {
      const [chunk, part] = [CHUNK, SUMMED].map((size) => Math.floor((first + i) / size));
      const sum = (sums.get(part) ?? 0) + weight;
      sums.set(part, sum);
      tops.set(chunk, Math.max(tops.get(chunk) ?? 0, weight / MOST, sum / SUM));
    });
    return scaled.map((weight, i) => {
      const scale = tops.get(Math.floor((first + i) / CHUNK))!;
      return scale * scales[i] === 0 ? 0 : Math.round(weight / scale) * scale / scales[i];
    });
  },
};

function normScale(head: Float64Array): number {
  const segments = Array.from(
    { length: Math.ceil(head.length / 32) },
    (_, i) => head.subarray(32 * i, 32 * i + 32),
  );
  return Math.max(...segments.map((x) => Math.hypot(...x) / NORM), largest(head) / MOST);
}

/** Returns a float rounded up to one with zeros in its lower 16 bits, because only the upper bits are stored. */
function upperHalf(scale: number): number {
  const bits = new Uint32Array(Float32Array.of(scale).buffer);
  bits[0] = (bits[0] + 0xffff) & 0xffff0000;
  return new Float32Array(bits.buffer)[0];
}

const inCodes = (head: Float64Array, scale: number): Float64Array =>
  head.map((value) => scale === 0 ? 0 : Math.round(value / scale) * scale);
const largest = (head: Float64Array): number => Math.max(...head.map(Math.abs));
