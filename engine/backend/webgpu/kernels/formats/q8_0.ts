/** Q8_0: 32 signed bytes under one f16 scale. In the file: d: f16, qs: [i8; 32]. */
import { components, quads } from "./codes.ts";
import { copy, loadHalf, type WeightFormat } from "./format.ts";

export const Q8_0: WeightFormat = {
  planes: [
    { name: "codes", element: "vec4<u32>", bytes: 32, columns: 32 },
    { name: "scales", element: "u32", bytes: 2, columns: 32 },
  ],
  sub: 32,
  pack(from, at, [codes, scales], [c, s]) {
    copy(from, at, scales, s, 2);
    // The stored code is the byte + 128, unsigned.
    for (let i = 0; i < 32; i++) codes[c + i] = from[at + 2 + i] ^ 0x80;
  },
  decoder: (scalar) => ({
    body: `let lo = own.codes[0];
  let hi = own.codes[1];
  ${loadHalf("d", "scales")}`,
    quads: quads(
      scalar,
      [{ words: [...components("lo", 4), ...components("hi", 4)], width: 8, shift: 0 }],
      128,
      128,
    ),
    scale: "d * 128.0",
  }),
};
