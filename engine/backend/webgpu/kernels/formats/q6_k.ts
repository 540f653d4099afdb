/**
 * Q6_K: 256 codes of 6 bits, offset by 32; sixteen sub-blocks of 16 with signed byte scales under one f16. In the file:
 * ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: f16.
 */
import { components, type Field, packField, quads } from "./codes.ts";
import { copy, load16, loadHalf, type WeightFormat } from "./format.ts";

/**
 * Statement: `scale`, which is unit * d * the two scales of block b, stored as bytes offset by 128. Q3_K uses
 * it too.
 */
export function loadByteScales(unit: number): string {
  return `let s = ${load16("scales")};
  ${loadHalf("d", "factors", 256)}
  let scale = d * ${unit}.0 * (vec2<f32>(f32(s & 255u), f32(s >> 8u)) - 128.0);`;
}

const FIELDS: readonly Field[] = [
  { words: components("w", 4), width: 4, shift: 0 },
  { words: components("h", 2), width: 2, shift: 4 },
];

export const Q6_K: WeightFormat = {
  planes: [
    { name: "codes", element: "vec4<u32>", bytes: 16, columns: 32 },
    { name: "high", element: "vec2<u32>", bytes: 8, columns: 32 },
    { name: "scales", element: "u32", bytes: 2, columns: 32 },
    { name: "factors", element: "u32", bytes: 2, columns: 256 },
  ],
  sub: 16,
  pack(from, at, [codes, high, scales, factors], [c, h, s, f]) {
    copy(from, at + 208, factors, f, 2);
    for (let i = 0; i < 16; i++) scales[s + i] = from[at + 192 + i] ^ 0x80;
    for (let b = 0; b < 8; b++) {
      // Each half of the block holds four runs of 32: nibbles of 64 bytes, and above them two bits of 32
      // bytes.
      const [half, run] = [b >> 2, b & 3];
      const low = at + 64 * half + (run & 1) * 32;
      const top = at + 128 + 32 * half;
      const code = (i: number) => from[low + i] >> (run >> 1) * 4 & 15 | (from[top + i] >> 2 * run & 3) << 4;
      packField(code, FIELDS[0], codes, c + 16 * b);
      packField(code, FIELDS[1], high, h + 8 * b);
    }
  },
  decoder: (scalar) => ({
    body: `let w = own.codes;\n  let h = own.high;\n  ${loadByteScales(32)}`,
    quads: quads(scalar, FIELDS, 32, 32),
    scale: "scale",
  }),
};
