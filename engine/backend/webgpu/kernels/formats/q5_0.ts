import { components, type Field, packField, quads } from "./codes.ts";
import { copy, loadHalf, type Plane, type WeightFormat } from "./format.ts";

export const CODES: readonly Plane[] = [
  { name: "codes", element: "vec4<u32>", bytes: 16, columns: 32 },
  { name: "high", element: "u32", bytes: 4, columns: 32 },
];
export const FIELDS: readonly Field[] = [
  { words: components("w", 4), width: 4, shift: 0 },
  { words: ["h"], width: 1, shift: 4 },
];
export const LOAD = `let w = own.codes;\n  let h = own.high;`;

/** Packs the high bits at `from[at]`, one per column, and the nibbles behind them. */
function packCodes(
  from: Uint8Array,
  at: number,
  [codes, high]: readonly Uint8Array[],
  [c, h]: readonly number[],
): void {
  packField((column) => from[at + (column >> 3)] >> (column & 7) << 4, FIELDS[1], high, h);
  copy(from, at + 4, codes, c, 16);
}

/** Q5_0: 32 codes of 5 bits, offset by 16, under one f16 scale. In the file: d: f16, qh: [u8; 4], qs: [u8; 16]. */
export const Q5_0: WeightFormat = {
  planes: [...CODES, { name: "scales", element: "u32", bytes: 2, columns: 32 }],
  sub: 32,
  pack(from, at, planes, places) {
    copy(from, at, planes[2], places[2], 2);
    packCodes(from, at + 2, planes, places);
  },
  decoder: (scalar) => ({
    body: `${LOAD}\n  ${loadHalf("d", "scales")}`,
    quads: quads(scalar, FIELDS, 16, 16),
    scale: "d * 16.0",
  }),
};

/** Q5_1: 32 codes of 5 bits under an f16 scale and min. In the file: d, m: f16, qh: [u8; 4], qs: [u8; 16]. */
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
