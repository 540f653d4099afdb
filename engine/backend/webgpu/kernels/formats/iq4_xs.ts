/**
 * IQ4_XS: 256 nibbles that index IQ4_NL's values; eight sub-blocks of 32 with 6-bit scales, offset by 32,
 * under one f16. In the file: d: f16, scales_h: u16, scales_l: [u8; 4], qs: [u8; 128].
 */
import { copy, type WeightFormat } from "./format.ts";
import { VALUES } from "./iq4_nl.ts";
import { lookup } from "./lookup.ts";

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
