/**
 * MXFP4: 32 floats of 4 bits (E2M1) under one power of two (E8M0).  Source: OCP Microscaling Formats (MX)
 * specification 1.0. In the file: e: u8, qs: [u8; 16].
 */
import { copy, type WeightFormat } from "./format.ts";
import { lookup } from "./lookup.ts";

const MAGNITUDES = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
const VALUES = [...MAGNITUDES, ...MAGNITUDES.map((v) => -v)].map((v) => v / 8);

export const MXFP4: WeightFormat = {
  planes: [
    { name: "codes", element: "vec4<u32>", bytes: 16, columns: 32 },
    { name: "scales", element: "u32", bytes: 1, columns: 32 },
  ],
  sub: 32,
  bounded: true,
  // E8M0's 255.
  isNan: (from, at) => from[at] === 255,
  blockColumns: 32,
  blockBytes: 17,
  pack(from, at, [codes, scales], [c, s]) {
    scales[s] = from[at];
    copy(from, at + 1, codes, c, 16);
  },
  decoder: (scalar) =>
    lookup(
      scalar,
      VALUES,
      `let e = (scales[row * SCALES_ROW + (b >> 2u)] >> ((b & 3u) * 8u)) & 255u;`,
      // 8 x 2^(e - 127), up to the largest that f32 holds: never subnormal, so no device flushes it to 0.
      "bitcast<f32>(min(e + 3u, 254u) << 23u)",
    ),
};
