/**
 * Q3_K: 256 codes of 3 bits, offset by 4; sixteen sub-blocks of 16 with 6-bit scales, offset by 32, under one f16. In
 * the file: hmask: [u8; 32], qs: [u8; 64], scales: [u8; 12], d: f16.
 */
import { type Field, packField, quads } from "./codes.ts";
import { copy, type WeightFormat } from "./format.ts";
import { LOW, lowCode } from "./q2_k.ts";
import { loadByteScales } from "./q6_k.ts";

const FIELDS: readonly Field[] = [LOW, { words: ["h"], width: 1, shift: 2 }];

export const Q3_K: WeightFormat = {
  planes: [
    { name: "codes", element: "vec2<u32>", bytes: 8, columns: 32 },
    { name: "high", element: "u32", bytes: 4, columns: 32 },
    { name: "scales", element: "u32", bytes: 2, columns: 32 },
    { name: "factors", element: "u32", bytes: 2, columns: 256 },
  ],
  sub: 16,
  pack(from, at, [codes, high, scales, factors], [c, h, s, f]) {
    copy(from, at + 108, factors, f, 2);
    for (let j = 0; j < 16; j++) {
      const low = from[at + 96 + j % 8] >> (j >> 3) * 4 & 15;
      const top = from[at + 104 + j % 4] >> (j >> 2) * 2 & 3;
      scales[s + j] = (low | top << 4) - 32 + 128;
    }
    for (let b = 0; b < 8; b++) {
      packField((i) => lowCode(from, at + 32, b, i), LOW, codes, c + 8 * b);
      packField((i) => (from[at + i] >> b & 1) << 2, FIELDS[1], high, h + 4 * b);
    }
  },
  decoder: (scalar) => ({
    body: `let w = own.codes;\n  let h = own.high;\n  ${loadByteScales(4)}`,
    quads: quads(scalar, FIELDS, 4, 4),
    scale: "scale",
  }),
};
