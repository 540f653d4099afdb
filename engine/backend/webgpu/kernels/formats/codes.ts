/**
 * Codes in words. Quad k (columns 4k to 4k + 3 of a block) is a word whose bytes are four codes. A field of
 * `width` bits takes `width` words per block: quad k is in word k % width, from bit width * floor(k / width)
 * of each byte. At width 4 this is Q4_0's own order, so its codes are copied unchanged.
 */
import { BLOCK, NATURAL, type Scalar } from "./format.ts";

export interface Field {
  /** `width` expressions. */
  readonly words: readonly string[];
  readonly width: 1 | 2 | 4 | 8;
  /** Position of these bits in the code. */
  readonly shift: number;
}

/** Packs bits `shift` to `shift + width` of 32 codes into `to[place..]`, which must be zero. */
export function packField(
  code: (column: number) => number,
  { width, shift }: Pick<Field, "width" | "shift">,
  to: Uint8Array,
  place: number,
): void {
  const mask = (1 << width) - 1;
  for (let c = 0; c < BLOCK; c++) {
    const k = c >> 2;
    to[place + (k % width) * 4 + (c & 3)] |= (code(c) >> shift & mask) << (width * Math.floor(k / width));
  }
}

/**
 * Returns expressions for quads of (code - offset) / unit. `unit` is a power of two and codes are below 256,
 * so every step is exact. `of` makes codes from a word of four fields.
 */
export function quads(
  scalar: Scalar,
  fields: readonly Field[],
  offset: number,
  unit: number,
  of: (word: string) => string = (word) => word,
): string[] {
  const bits = Math.log2(unit);
  const mantissa = scalar === "f16" ? 10 : 23;
  // A float of this exponent counts in steps of 1 / unit. OR-ing a code into its bits gives base + code /
  // unit.
  const exponent = mantissa - bits;
  const base = 2 ** exponent + offset / unit;
  const magic = scalar === "f16" ? ((15 + exponent) << 10) * 0x10001 >>> 0 : ((127 + exponent) << 23) >>> 0;
  const suffix = scalar === "f16" ? "h" : "f";
  return Array.from({ length: 8 }, (_, k) => `quad(${of(word(fields, k))}, ${magic}u, ${base}${suffix})`);
}

/** Returns the columns of the values that `quads` gives. */
export function order(scalar: Scalar): readonly number[] {
  // Halves are made in pairs from bytes 0 and 2, then 1 and 3, of a word.
  return scalar !== "f16" ? NATURAL : NATURAL.map((c) => (c & ~3) + [0, 2, 1, 3][c & 3]);
}

/** Returns the WGSL function `quad` for the scalar. */
export function quadFunction(scalar: Scalar): string {
  if (scalar === "f32") {
    return `fn quad(w: u32, magic: u32, base: f32) -> vec4<f32> {
  return bitcast<vec4<f32>>(((vec4<u32>(w) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u)) | vec4<u32>(magic)) - base;
}`;
  }
  return `fn quad(w: u32, magic: u32, base: f16) -> vec4<f16> {
  return vec4<f16>(
    vec2<f16>(unpack2x16float((w & 0x00ff00ffu) | magic)),
    vec2<f16>(unpack2x16float(((w >> 8u) & 0x00ff00ffu) | magic)),
  ) - base;
}`;
}

/** Expression for the word of quad k, one code per byte. */
function word(fields: readonly Field[], k: number): string {
  return fields.map(({ words, width, shift }) => {
    const at = width * Math.floor(k / width);
    const source = at === 0 ? words[k % width] : `(${words[k % width]} >> ${at}u)`;
    const masked = `(${source} & ${((1 << width) - 1) * 0x01010101 >>> 0}u)`;
    return shift === 0 ? masked : `(${masked} << ${shift}u)`;
  }).join(" | ");
}

/** Returns the components of a vector by name: ["w.x", "w.y", …]. */
export function components(name: string, count: number): string[] {
  return ["x", "y", "z", "w"].slice(0, count).map((c) => `${name}.${c}`);
}
