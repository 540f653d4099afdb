/**
 * Codes of 4 bits that index values. A table in workgroup memory has a pair of values for every byte of two
 * codes.
 */
import { copy, type Decoder, loadHalf, type Scalar, type WeightFormat } from "./format.ts";
import { Q4_0 } from "./q4_0.ts";

/** Returns the decoder of `codes` (in Q4_0's order) with the values `values[code]`, all within [-1, 1]. */
function lookup(
  scalar: Scalar,
  values: readonly number[],
  body: string,
  scale: string,
): Decoder {
  const pair = (word: number, byte: number) => `pairs[(w[${word}] >> ${8 * byte}u) & 255u]`;
  return {
    body: `let w = own.codes;\n  ${body}`,
    quads: Array.from({ length: 8 }, (_, q) => {
      const [word, byte] = [q >> 1, (q & 1) * 2];
      const [first, second] = [pair(word, byte), pair(word, byte + 1)];
      return `vec4<${scalar}>(${first}, ${second})`;
    }),
    // A byte holds column c and column c + 16.
    order: Array.from({ length: 16 }, (_, c) => [c, c + 16]).flat(),
    scale,
    globals: `var<workgroup> pairs: array<vec2<${scalar}>, 256>;`,
    setup: `var values = array<f32, 16>(${values.map((v) => `${v}f`).join(", ")});
  for (var i = lane_in_group; i < 256u; i += SIZE) {
    pairs[i] = vec2<${scalar}>(vec2<f32>(values[i & 15u], values[i >> 4u]));
  }
  workgroupBarrier();`,
  };
}

/** The values of the nibbles. Source: https://github.com/ggml-org/llama.cpp, kvalues_iq4nl. */
const VALUES = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113].map((v) => v / 128);

/** IQ4_NL: 32 nibbles that index a table of signed bytes, under one f16 scale. File layout as Q4_0. */
export const IQ4_NL: WeightFormat = {
  ...Q4_0,
  decoder: (scalar) => lookup(scalar, VALUES, loadHalf("d", "scales"), "d * 128.0"),
};

/**
 * IQ4_XS: 256 nibbles that index IQ4_NL's values; eight sub-blocks of 32 with 6-bit scales, offset by 32,
 * under one f16. In the file: d: f16, scales_h: u16, scales_l: [u8; 4], qs: [u8; 128].
 */
export const IQ4_XS: WeightFormat = {
  planes: [
    { name: "codes", element: "vec4<u32>", bytes: 16, columns: 32 },
    { name: "scales", element: "vec2<u32>", bytes: 8, columns: 256 },
  ],
  sub: 32,
  pack(from, at, [codes, scales], [c, s]) {
    copy(from, at, scales, s, 8);
    copy(from, at + 8, codes, c, 128);
  },
  decoder: (scalar) =>
    lookup(
      scalar,
      VALUES,
      `let s = words.scales;
  let j = b & 7u;
  let code = ((s.y >> (4u * j)) & 15u) | (((s.x >> (16u + 2u * j)) & 3u) << 4u);`,
      "half_of(s.x & 0xffffu) * 128.0 * (f32(code) - 32.0)",
    ),
};
