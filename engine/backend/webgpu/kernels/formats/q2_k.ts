/**
 * Q2_K: 256 codes of 2 bits; sixteen sub-blocks of 16 with 4-bit scales and mins under two f16 factors. In the file:
 * scales: [u8; 16], qs: [u8; 64], d, dmin: f16.
 */
import { components, type Field, packField, quads } from "./codes.ts";
import { copy, load16, type WeightFormat } from "./format.ts";

/**
 * Returns the code of column i of block b. Each half of the block holds four runs of 32, two bits of 32 bytes
 * each.
 */
export function lowCode(qs: Uint8Array, at: number, b: number, i: number): number {
  return qs[at + 32 * (b >> 2) + i] >> 2 * (b & 3) & 3;
}

export const LOW: Field = { words: components("w", 2), width: 2, shift: 0 };

export const Q2_K: WeightFormat = {
  planes: [
    { name: "codes", element: "vec2<u32>", bytes: 8, columns: 32 },
    { name: "scales", element: "u32", bytes: 2, columns: 32 },
    { name: "factors", element: "u32", bytes: 4, columns: 256 },
  ],
  sub: 16,
  pack(from, at, [codes, scales, factors], [c, s, f]) {
    copy(from, at, scales, s, 16);
    copy(from, at + 80, factors, f, 4);
    for (let b = 0; b < 8; b++) packField((i) => lowCode(from, at + 16, b, i), LOW, codes, c + 8 * b);
  },
  decoder: (scalar) => ({
    body: `let w = own.codes;
  let s = ${load16("scales")};
  let f = words.factors;
  let scale = half_of(f & 0xffffu) * 2.0 * vec2<f32>(f32(s & 15u), f32((s >> 8u) & 15u));
  let offset = scale - half_of(f >> 16u) * vec2<f32>(f32((s >> 4u) & 15u), f32(s >> 12u));`,
    quads: quads(scalar, [LOW], 2, 2),
    scale: "scale",
    offset: "offset",
  }),
};
