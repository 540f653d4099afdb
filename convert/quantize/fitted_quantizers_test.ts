import { assert, assertEquals } from "@std/assert";
import { dequantize } from "../../testing/synth/weights.ts";
import { everyNth } from "../../testing/tier.ts";
import { iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs } from "./codebook_quantizers.ts";
import { iq4_nl, iq4_xs } from "./iq4_quantizers.ts";
import { q2_k, q4_k, q5_k } from "./scale_min_quantizers.ts";
import { q3_k, q6_k } from "./scale_quantizers.ts";
import { q1_0, q2_0 } from "./low_bit_quantizers.ts";
import type { Quantizer } from "./quantizers.ts";
import { tq1_0, tq2_0 } from "./ternary_quantizers.ts";

const COLUMNS = 256;
const half = (value: number) => Math.fround(new Float16Array([value])[0]);
/** Rounds to the nearest integer, ties to even. */
const nearest = (value: number) => {
  const down = Math.floor(value);
  return value - down === 0.5 ? down + (down & 1) : Math.round(value);
};
const clamp = (value: number, low: number, high: number) => Math.max(low, Math.min(high, value));

/*
 * ggml's quantizers for these formats, after their published description: errors are weighted by the values'
 * magnitudes, steps are tried around the whole range, and scales are rounded to the nearest integer.
 */

/** Returns ggml's scale and min for 32 values with codes up to `most`. The min is at most 0. */
function ggmlFit(x: readonly number[], most: number): [scale: number, min: number] {
  const mean = Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / x.length);
  const w = x.map((v) => mean + Math.abs(v));
  const sum = (f: (i: number) => number) => x.reduce((s, _, i) => s + w[i] * f(i), 0);
  const max = Math.max(...x);
  let min = Math.min(0, ...x);
  if (max === min) return [0, min];
  const code = (v: number, inverse: number) => clamp(nearest(inverse * (v - min)), 0, most);
  let scale = (max - min) / most;
  let best = sum((i) => (scale * code(x[i], 1 / scale) + min - x[i]) ** 2);
  for (let step = 0; step <= 20; step++) {
    const inverse = (most - 1 + 0.1 * step) / (max - min);
    const q = x.map((v) => code(v, inverse));
    const [sw, sx] = [sum(() => 1), sum((i) => x[i])];
    const [sq, sqq, sqx] = [sum((i) => q[i]), sum((i) => q[i] ** 2), sum((i) => q[i] * x[i])];
    const determinant = sw * sqq - sq * sq;
    if (determinant <= 0) continue;
    let found = [(sw * sqx - sx * sq) / determinant, (sqq * sx - sq * sqx) / determinant];
    if (found[1] > 0) found = [sqx / sqq, 0];
    const error = sum((i) => (found[0] * q[i] + found[1] - x[i]) ** 2);
    if (error < best) [best, scale, min] = [error, ...found as [number, number]];
  }
  return [scale, min];
}

const ggmlScaleMin = (codes: number) => (x: readonly number[]): number[] => {
  const subs = Array.from({ length: 8 }, (_, j) => ggmlFit(x.slice(32 * j, 32 * j + 32), codes));
  const [most, mostMin] = [Math.max(...subs.map(([s]) => s)), Math.max(...subs.map(([, m]) => -m))];
  const [d, dmin] = [half(most / 63), half(mostMin / 63)];
  return x.map((v, i) => {
    const [s, m] = subs[i >> 5];
    const scale = d * Math.min(63, most > 0 ? nearest(s * 63 / most) : 0);
    const min = dmin * Math.min(63, mostMin > 0 ? nearest(-m * 63 / mostMin) : 0);
    return scale > 0 ? scale * clamp(nearest((v + min) / scale), 0, codes) - min : -min;
  });
};

function ggmlFit6(x: readonly number[]): number {
  const extreme = x.reduce((most, v) => Math.abs(v) > Math.abs(most) ? v : most, 0);
  if (Math.abs(extreme) < 1e-15) return 0;
  let [best, scale] = [-1, 0];
  for (const step of [0, ...Array.from({ length: 19 }, (_, i) => i - 9)]) {
    const inverse = -(32 + 0.1 * step) / extreme;
    let [qx, qq] = [0, 0];
    for (const v of x) {
      const q = clamp(nearest(v * inverse), -32, 31);
      qx += v * v * q * v;
      qq += v * v * q * q;
    }
    if (qq > 0 && qx * qx > best * qq) [best, scale] = [qx * qx / qq, qx / qq];
  }
  return scale;
}

function ggmlQ6K(x: readonly number[]): number[] {
  const scales = Array.from({ length: 16 }, (_, j) => ggmlFit6(x.slice(16 * j, 16 * j + 16)));
  const extreme = scales.reduce((most, s) => Math.abs(s) > Math.abs(most) ? s : most, 0);
  if (Math.abs(extreme) < 1e-15) return x.map(() => 0);
  const d = half(extreme / -128);
  return x.map((v, i) => {
    const scale = d * Math.min(127, nearest(scales[i >> 4] * -128 / extreme));
    return scale === 0 ? 0 : scale * clamp(nearest(v / scale), -32, 31);
  });
}

function ggmlQ1_0(x: readonly number[]): number[] {
  const scale = half(x.reduce((sum, v) => sum + Math.abs(v), 0) / x.length);
  return x.map((v) => v >= 0 ? scale : -scale);
}

function ggmlQ2_0(x: readonly number[]): number[] {
  const most = Math.max(...x.map(Math.abs));
  return x.map((v) => half(most) * clamp(Math.round(v / most), -1, 2));
}

// ---- Rows of several kinds.

/** Returns a seeded generator of numbers in 0..1. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = Math.imul(state ^ state >>> 15, 0x2c1b3c6d) + 0x9e3779b9 | 0;
    return ((state ^ state >>> 13) >>> 0) / 2 ** 32;
  };
}

const KINDS: Readonly<Record<string, (next: () => number, i: number, block: number) => number>> = {
  "normal": (next) => 0.02 * Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next()),
  "with long tails": (next) => 0.01 * Math.log(1 - next()) * (next() < 0.5 ? -1 : 1),
  "with outliers": (next, i) => (next() - 0.5) * (i % 61 === 7 ? 2 : 0.05),
  "of unlike sub-blocks": (next, i) => (next() - 0.5) * 2 ** ((i >> 4) % 7 - 6),
  "all positive": (next) => 0.3 + 0.1 * next(),
  "all negative": (next) => -0.3 - 0.1 * next(),
  "few levels": (next) => Math.floor(3 * next()) - 1,
  "tiny": (next) => 2e-6 * (next() - 0.5),
  "large": (next) => 4e5 * (next() - 0.5),
};

/** Returns test blocks of this kind. */
function blocksOf(kind: string): Float32Array[] {
  const next = random(kind.length);
  return Array.from(
    { length: 60 },
    (_, block) => Float32Array.from({ length: COLUMNS }, (_, i) => KINDS[kind](next, i, block)),
  );
}

/** Quantizes the first block of the values. */
function quantized(quantizer: Quantizer, values: Float32Array, weights?: Float32Array): Float32Array {
  const { bytes: size, columns, type } = quantizer;
  const [out, restored] = [new Uint8Array(size + 2).fill(0xff), new Float32Array(columns)];
  const weighed = weights && { values: weights, at: 0 };
  assert(quantizer.block(values, 0, out, 1, restored, weighed), "refused");
  assertEquals([out[0], out.at(-1)], [0xff, 0xff]);
  const bytes = out.slice(1, -1);
  assertEquals(restored, Float32Array.from(dequantize(type, bytes, columns)));
  return restored;
}

const squares = (a: ArrayLike<number>, b: ArrayLike<number>) =>
  Array.from(a).reduce((sum, v, i) => sum + (v - b[i]) ** 2, 0);

const GGML = [[q4_k, ggmlScaleMin(15)], [q5_k, ggmlScaleMin(31)], [q6_k, ggmlQ6K], [q2_0, ggmlQ2_0], [
  q1_0,
  ggmlQ1_0,
]] as const;

for (const [quantizer, ggml] of GGML) {
  const { columns } = quantizer;

  for (const kind of everyNth(2, Object.keys(KINDS))) {
    // Formats without integer scales cannot hold values far beyond f16.
    if (kind === "large" && columns < COLUMNS) continue;
    Deno.test(`quantizers: ${quantizer.type} has at most ggml's error on values ${kind}`, () => {
      let [ours, theirs] = [0, 0];
      for (const values of blocksOf(kind)) {
        const block = values.slice(0, columns);
        ours += squares(block, quantized(quantizer, block));
        theirs += squares(block, ggml([...block]));
      }
      assert(ours <= theirs, `${ours} and not at most ${theirs}`);
    });
  }
}

const CODEBOOKS = [iq3_s, iq3_xxs, iq2_s, iq2_xs, iq2_xxs, iq1_m, iq1_s];
const TERNARY = [tq1_0, tq2_0];

for (
  const quantizer of [
    q2_k,
    q3_k,
    iq4_xs,
    iq4_nl,
    ...CODEBOOKS,
    ...TERNARY,
    ...GGML.map(([quantizer]) => quantizer),
  ]
) {
  const { columns } = quantizer;

  Deno.test(`quantizers: ${quantizer.type} keeps zeros and rejects NaN, infinity and values beyond f16 scales`, () => {
    assertEquals(quantized(quantizer, new Float32Array(columns)), new Float32Array(columns));
    const [out, restored] = [new Uint8Array(quantizer.bytes), new Float32Array(columns)];
    for (const bad of [NaN, Infinity, -Infinity, 3e38]) {
      const values = new Float32Array(columns).fill(0.5);
      values[columns - 1] = bad;
      assertEquals(quantizer.block(values, 0, out, 0, restored), false, `${bad}`);
    }
  });
}

/** Squared errors of ggml 0.5.0's quantizers in the first 6 blocks of each of three kinds, with equal column weights. */
const GGML_ERRORS = [
  [iq3_s, 0.0109, 1.256, 0.4641],
  [iq3_xxs, 0.02087, 1.545, 0.8021],
  [iq2_s, 0.03562, 5.516, 1.196],
  [iq2_xs, 0.0524, 6.039, 1.873],
  [iq2_xxs, 0.0693, 10.83, 3.397],
  [iq1_m, 0.1173, 4.227, 3.633],
  [iq1_s, 0.1386, 6.896, 4.841],
] as const;

for (const [quantizer, ...errors] of GGML_ERRORS) {
  Deno.test(`quantizers: ${quantizer.type}'s squared error is at most that of ggml's quantizer`, () => {
    for (const [i, kind] of ["normal", "with outliers", "of unlike sub-blocks"].entries()) {
      const blocks = blocksOf(kind).slice(0, 6);
      const ours = blocks.reduce((sum, values) => sum + squares(values, quantized(quantizer, values)), 0);
      assert(ours <= errors[i], `${kind}: ${ours} and not at most ${errors[i]}`);
    }
  });
}

Deno.test("quantizers: Q2_0 and Q1_0 keep weights exactly that are already ternary or binary", () => {
  const next = random(3);
  for (const scale of [1, half(0.0173), -half(3.1), 2 ** -24, 65504]) {
    const levels = (count: number, first: number) =>
      Float32Array.from({ length: count }, () => scale * (Math.floor(3 * next()) + first));
    for (const first of [-1, 0]) {
      const values = levels(64, first);
      assertEquals(squares(quantized(q2_0, values), values), 0, `${scale}, from ${first}`);
    }
    const signs = levels(128, 0).map((v, i) => (i & 1 || v > 0) ? scale : -scale);
    assertEquals(squares(quantized(q1_0, signs), signs), 0, `${scale}`);
  }
});

Deno.test("quantizers: TQ1_0 and TQ2_0 keep ternary weights exactly", () => {
  const next = random(5);
  for (const quantizer of TERNARY) {
    const values = Float32Array.from({ length: COLUMNS }, () => half(0.0173) * (Math.floor(3 * next()) - 1));
    assertEquals(squares(quantized(quantizer, values), values), 0, quantizer.type);
  }
});

/** Returns the sum of squared errors over blocks of normal values, in the first 256 columns. */
function normalError(quantizer: Quantizer): number {
  const errors = blocksOf("normal").flatMap((values) =>
    Array.from({ length: COLUMNS / quantizer.columns }, (_, i) => {
      const block = values.subarray(i * quantizer.columns, (i + 1) * quantizer.columns);
      return squares(block, quantized(quantizer, block));
    })
  );
  return errors.reduce((sum, error) => sum + error, 0);
}

Deno.test("quantizers: formats with more bits have smaller errors", () => {
  const errors = [q2_k, q3_k, iq4_nl, iq4_xs, q4_k, q5_k, q6_k].map(normalError);
  const shares = errors.slice(1).map((error, i) => error / errors[i]);
  // The errors of IQ4_XS and IQ4_NL are nearly equal, and so are those of IQ4_XS and Q4_K.
  const most = [0.3, 0.35, 1.1, 1.1, 0.35, 0.35];
  assert(shares.every((share, i) => share < most[i]), shares.join());
});

for (const quantizer of [q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, ...CODEBOOKS, ...TERNARY]) {
  Deno.test(`quantizers: ${quantizer.type} makes smaller errors in values with larger weights`, () => {
    const next = random(9);
    let [plain, weighed] = [0, 0];
    // The codebook search is slow, so it gets few blocks. In ternary formats, weights hardly change more than the scale.
    const count = CODEBOOKS.includes(quantizer) ? 6 : 60;
    const most = TERNARY.includes(quantizer) ? 0.96 : 0.85;
    const kinds = ["normal", "of unlike sub-blocks"].flatMap((kind) => blocksOf(kind).slice(0, count));
    for (const values of kinds) {
      const block = values.subarray(0, quantizer.columns);
      const weights = block.map(() => next() < 0.2 ? 0 : next() ** 4);
      const error = (restored: Float32Array) =>
        block.reduce((sum, value, i) => sum + weights[i] * (value - restored[i]) ** 2, 0);
      plain += error(quantized(quantizer, block));
      weighed += error(quantized(quantizer, block, weights));
    }
    assert(weighed < most * plain, `${weighed / plain}`);
    const block = blocksOf("normal")[0].subarray(0, quantizer.columns);
    for (const weight of [0, 3]) {
      assertEquals(
        quantized(quantizer, block, block.map(() => weight)),
        quantized(quantizer, block),
        "equal weights",
      );
    }
  });
}
