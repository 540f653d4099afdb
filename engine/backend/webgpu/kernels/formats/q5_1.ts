/** Q5_1: 32 codes of 5 bits under an f16 scale and min. In the file: d, m: f16, qh: [u8; 4], qs: [u8; 16]. */
import { quads } from "./codes.ts";
import { copy, type WeightFormat } from "./format.ts";
import { CODES, FIELDS, LOAD, packCodes } from "./q5_0.ts";

export const Q5_1: WeightFormat = {
  planes: [...CODES, { name: "scales", element: "u32", bytes: 4, columns: 32 }],
  sub: 32,
  pack(from, at, planes, places) {
    copy(from, at, planes[2], places[2], 4);
    packCodes(from, at + 4, planes, places);
  },
  decoder: (scalar) => ({
    body: `${LOAD}
  let dm = own.scales;
  let scale = half_of(dm & 0xffffu) * 16.0;`,
    quads: quads(scalar, FIELDS, 16, 16),
    scale: "scale",
    offset: "scale + half_of(dm >> 16u)",
  }),
};
