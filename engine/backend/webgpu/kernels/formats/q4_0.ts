/** Q4_0: 32 codes of 4 bits, offset by 8, under one f16 scale. In the file: d: f16, qs: [u8; 16]. */
import { components, quads } from "./codes.ts";
import { copy, loadHalf, type WeightFormat } from "./format.ts";

export const Q4_0: WeightFormat = {
  planes: [
    { name: "codes", element: "vec4<u32>", bytes: 16, columns: 32 },
    { name: "scales", element: "u32", bytes: 2, columns: 32 },
  ],
  sub: 32,
  pack(from, at, [codes, scales], [c, s]) {
    copy(from, at, scales, s, 2);
    copy(from, at + 2, codes, c, 16);
  },
  decoder: (scalar) => ({
    body: `let w = own.codes;\n  ${loadHalf("d", "scales")}`,
    quads: quads(scalar, [{ words: components("w", 4), width: 4, shift: 0 }], 8, 8),
    scale: "d * 8.0",
  }),
};
