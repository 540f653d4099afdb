/**
 * MXFP4: 32 floats of 4 bits (E2M1) under one power of two (E8M0). Source: OCP Microscaling Formats (MX)
 * specification 1.0. In the file: e: u8, qs: [u8; 16].
 */
import { components, quads } from "./codes.ts";
import { copy, load8, type WeightFormat } from "./format.ts";

/** Twice the largest magnitude. Decoded codes count halves from minus this value. */
const LARGEST = 12;

/**
 * Decodes four codes, one per byte, to twice their values + 12. With u the lower two bits, twice the
 * magnitude is u for 0, 1, 2, 3, and 4 + 2 u + 2 (both bits set) for 4, 6, 8, 12. No byte overflows into the
 * next.
 */
const E2M1 = `fn e2m1(codes: u32) -> u32 {
  let u = codes & 0x03030303u;
  let both = codes & (codes >> 1u) & 0x01010101u;
  let large = ((codes >> 2u) & 0x01010101u) * 255u;
  let negative = ((codes >> 3u) & 0x01010101u) * 255u;
  let twice = u + ((u + 2u * both + 0x04040404u) & large);
  return ((0x0c0c0c0cu - twice) & negative) | ((0x0c0c0c0cu + twice) & ~negative);
}`;

export const MXFP4: WeightFormat = {
  planes: [
    { name: "codes", element: "vec4<u32>", bytes: 16, columns: 32 },
    { name: "scales", element: "u32", bytes: 1, columns: 32, byStrand: true },
  ],
  sub: 32,
  // 255 in E8M0 is NaN.
  isNan: (from, at) => from[at] === 255,
  pack(from, at, [codes, scales], [c, s]) {
    scales[s] = from[at];
    copy(from, at + 1, codes, c, 16);
  },
  decoder: (scalar) => ({
    body: `let w = own.codes;
  let e = ${load8("scales")};`,
    quads: quads(
      scalar,
      [{ words: components("w", 4), width: 4, shift: 0 }],
      LARGEST,
      16,
      (word) => `e2m1(${word})`,
    ),
    // 8 x 2^(e - 127), at most the largest power of two in f32. The scale is never subnormal, so no device flushes it
    // to 0.
    scale: "bitcast<f32>(min(e + 3u, 254u) << 23u)",
    globals: E2M1,
  }),
};
