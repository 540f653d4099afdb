/** Q1_0: 128 signs under one f16 scale; a set bit is positive. In the file: d: f16, qs: [u8; 16]. */
import { type Field, packField, quads } from "./codes.ts";
import { copy, loadHalf, type WeightFormat } from "./format.ts";

/** Codes are 0 and 2. */
const SIGNS: Field = { words: ["own.codes"], width: 1, shift: 1 };

export const Q1_0: WeightFormat = {
  planes: [
    { name: "codes", element: "u32", bytes: 4, columns: 32 },
    { name: "scales", element: "u32", bytes: 2, columns: 128 },
  ],
  sub: 32,
  pack(from, at, [codes, scales], [c, s]) {
    copy(from, at, scales, s, 2);
    for (let b = 0; b < 4; b++) {
      packField((i) => 2 * (from[at + 2 + 4 * b + (i >> 3)] >> (i & 7) & 1), SIGNS, codes, c + 4 * b);
    }
  },
  decoder: (scalar) => ({
    body: loadHalf("d", "scales", 128),
    quads: quads(scalar, [SIGNS], 1, 1),
    scale: "d",
  }),
};
