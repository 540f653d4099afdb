import { components, quads } from "./codes.ts";
import { copy, loadHalf, type WeightFormat } from "./format.ts";

/** Q4_0: 32 codes of 4 bits, offset by 8, under one f16 scale. In the file: d: f16, qs: [u8; 16]. */
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

/** Q4_1: 32 codes of 4 bits under an f16 scale and min. In the file: d, m: f16, qs: [u8; 16]. */
export const Q4_1: WeightFormat = {
  planes: [
    { name: "codes", element: "vec4<u32>", bytes: 16, columns: 32 },
    { name: "scales", element: "u32", bytes: 4, columns: 32 },
  ],
  sub: 32,
  pack(from, at, [codes, scales], [c, s]) {
    copy(from, at, scales, s, 4);
    copy(from, at + 4, codes, c, 16);
  },
  decoder: (scalar) => ({
    body: `let w = own.codes;
  let dm = own.scales;
  let scale = half_of(dm & 0xffffu) * 8.0;`,
    quads: quads(scalar, [{ words: components("w", 4), width: 4, shift: 0 }], 8, 8),
    scale: "scale",
    offset: "scale + half_of(dm >> 16u)",
  }),
};
