import { components, packField, quads } from "./codes.ts";
import { copy, type Plane, type WeightFormat } from "./format.ts";
import { CODES, FIELDS, LOAD } from "./q5_0.ts";

/**
 * Holds d and dmin, four bits of each scale, four bits of each min, and the upper two bits of each scale and
 * min.
 */
const SCALES: Plane = { name: "scales", element: "vec4<u32>", bytes: 16, columns: 256 };

/** Packs the file's first 16 bytes into the plane. */
function packScales(from: Uint8Array, at: number, to: Uint8Array, place: number): void {
  copy(from, at, to, place, 4);
  for (let j = 0; j < 8; j++) {
    const packed = (i: number) => from[at + 4 + i];
    const scale = j < 4 ? packed(j) & 63 : packed(j + 4) & 15 | packed(j - 4) >> 6 << 4;
    const min = j < 4 ? packed(j + 4) & 63 : packed(j + 4) >> 4 | packed(j) >> 6 << 4;
    const [byte, shift] = [place + 4 + (j >> 1), (j & 1) * 4];
    to[byte] |= (scale & 15) << shift;
    to[byte + 4] |= (min & 15) << shift;
    to[byte + 8] |= (scale >> 4 | min >> 4 << 2) << shift;
  }
}

/** Statements: the `scale` of (code - unit) / unit and the `offset` of sub-block b. */
function loadScales(unit: number): string {
  return `let s = (words.scales >> vec4<u32>(0u, vec3<u32>(4u * (b & 7u))));
  let scale = half_of(s.x & 0xffffu) * ${unit}.0 * f32((s.y & 15u) | ((s.w & 3u) << 4u));
  let offset = scale - half_of(s.x >> 16u) * f32((s.z & 15u) | ((s.w & 12u) << 2u));`;
}

/**
 * Packs nibbles by runs of 32 columns. Runs 2i and 2i + 1 are the low and high nibbles of bytes 32 i to 32 i
 * + 31.
 */
function packNibbles(from: Uint8Array, at: number, to: Uint8Array, place: number): void {
  for (let i = 0; i < 4; i++) {
    for (let j = 0; j < 16; j++) {
      const [a, b] = [from[at + 32 * i + j], from[at + 32 * i + j + 16]];
      to[place + 32 * i + j] = a & 15 | (b & 15) << 4;
      to[place + 32 * i + 16 + j] = a >> 4 | b & 0xf0;
    }
  }
}

/**
 * Q4_K: 256 codes of 4 bits; eight sub-blocks of 32 with 6-bit scales and mins under two f16 factors. In the file:
 * d, dmin: f16, scales: [u8; 12], qs: [u8; 128].
 */
export const Q4_K: WeightFormat = {
  planes: [{ name: "codes", element: "vec4<u32>", bytes: 16, columns: 32 }, SCALES],
  sub: 32,
  pack(from, at, [codes, scales], [c, s]) {
    packScales(from, at, scales, s);
    packNibbles(from, at + 16, codes, c);
  },
  decoder: (scalar) => ({
    body: `let w = own.codes;\n  ${loadScales(8)}`,
    quads: quads(scalar, [{ words: components("w", 4), width: 4, shift: 0 }], 8, 8),
    scale: "scale",
    offset: "offset",
  }),
};

/**
 * Q5_K: 256 codes of 5 bits; scales and mins as in Q4_K. In the file: d, dmin: f16, scales: [u8; 12], qh: [u8; 32],
 * qs: [u8; 128].
 */
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
