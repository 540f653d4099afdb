/**
 * Q5_K: 256 codes of 5 bits; scales and mins as in Q4_K. In the file: d, dmin: f16, scales: [u8; 12], qh: [u8; 32],
 * qs: [u8; 128].
 */
import { packField, quads } from "./codes.ts";
import type { WeightFormat } from "./format.ts";
import { loadScales, packNibbles, packScales, SCALES } from "./q4_k.ts";
import { CODES, FIELDS, LOAD } from "./q5_0.ts";

export const Q5_K: WeightFormat = {
  planes: [...CODES, SCALES],
  sub: 32,
  pack(from, at, [codes, high, scales], [c, h, s]) {
    packScales(from, at, scales, s);
    for (let b = 0; b < 8; b++) {
      packField((column) => (from[at + 16 + column] >> b & 1) << 4, FIELDS[1], high, h + 4 * b);
    }
    packNibbles(from, at + 48, codes, c);
  },
  decoder: (scalar) => ({
    body: `${LOAD}\n  ${loadScales(16)}`,
    quads: quads(scalar, FIELDS, 16, 16),
    scale: "scale",
    offset: "offset",
  }),
};
