/** Q2_0: 64 codes of 2 bits, offset by 1, under one f16 scale. In the file: d: f16, qs: [u8; 16]. */
import { packField, quads } from "./codes.ts";
import { copy, loadHalf, type WeightFormat } from "./format.ts";
import { LOW } from "./q2_k.ts";

export const Q2_0: WeightFormat = {
  planes: [
    { name: "codes", element: "vec2<u32>", bytes: 8, columns: 32 },
    { name: "scales", element: "u32", bytes: 2, columns: 64 },
  ],
  sub: 32,
  pack(from, at, [codes, scales], [c, s]) {
    copy(from, at, scales, s, 2);
    for (let b = 0; b < 2; b++) {
      packField((i) => from[at + 2 + 8 * b + (i >> 2)] >> 2 * (i & 3) & 3, LOW, codes, c + 8 * b);
    }
  },
  decoder: (scalar) => ({
    body: `let w = own.codes;\n  ${loadHalf("d", "scales", 64)}`,
    quads: quads(scalar, [LOW], 1, 2),
    scale: "d * 2.0",
  }),
};
