/** Writes colour profiles of version 4 (ICC.1:2010) with matrices and curves. */
import { deflateSync } from "node:zlib";
import { chunk } from "../pictures.ts";
import { big, join } from "./bytes.ts";

/** A profile's colours in XYZ, one row per channel, and its curve. */
export interface Colours {
  readonly primaries: readonly (readonly number[])[];
  /** Exponent, or undefined for sRGB's curve. */
  readonly gamma?: number;
}

export const SRGB: Colours = {
  primaries: [[0.43607, 0.22249, 0.01392], [0.38515, 0.71687, 0.09708], [0.14307, 0.06061, 0.7141]],
};
export const DISPLAY_P3: Colours = {
  primaries: [[0.51512, 0.2412, -0.00105], [0.29198, 0.69225, 0.04189], [0.1571, 0.06657, 0.78407]],
};
export const ADOBE_RGB: Colours = {
  primaries: [[0.60974, 0.31111, 0.01947], [0.20528, 0.62567, 0.06087], [0.14919, 0.06322, 0.74457]],
  gamma: 563 / 256,
};

const fixed = (numbers: readonly number[]) =>
  big(4, ...numbers.map((value) => (Math.round(value * 65_536) + 2 ** 32) % 2 ** 32));
const WHITE = [0.9642, 1, 0.8249];
const xyz = (numbers: readonly number[]) => join("XYZ ", big(4, 0), fixed(numbers));
const curve = (gamma?: number) =>
  gamma === undefined
    ? join("para", big(4, 0), big(2, 3, 0), fixed([2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045]))
    : join("curv", big(4, 0, 1), big(2, Math.round(gamma * 256), 0));

/** Returns the profile's bytes. A grey profile has a curve only. */
export function profileOf({ primaries, gamma }: Colours, space: "RGB " | "GRAY" = "RGB "): Uint8Array {
  const tags: [string, Uint8Array][] = space === "GRAY" ? [["kTRC", curve(gamma)]] : [
    ...["rXYZ", "gXYZ", "bXYZ"].map((name, i): [string, Uint8Array] => [name, xyz(primaries[i])]),
    ...["rTRC", "gTRC", "bTRC"].map((name): [string, Uint8Array] => [name, curve(gamma)]),
  ];
  tags.push(["wtpt", xyz(WHITE)]);
  let at = 132 + 12 * tags.length;
  const table = tags.map(([name, { length }]) => {
    const row = join(name, big(4, at, length));
    at += length;
    return row;
  });
  const nothing = (bytes: number) => new Uint8Array(bytes);
  const kind = join(big(4, 0x04200000), "mntr", space, "XYZ ");
  const head = join(big(4, at, 0), kind, nothing(12), "acsp", nothing(28), fixed(WHITE), nothing(48));
  return join(head, big(4, tags.length), ...table, ...tags.map(([, bytes]) => bytes));
}

/** Returns the profile as a chunk of a PNG image. */
export const inPng = (profile: Uint8Array) => chunk("iCCP", join("profile\0\0", deflateSync(profile)));

/** Columns are X, Y and Z of white D50; rows are red, green and blue of sRGB. */
const TO_SRGB = [
  [3.1338561, -1.6168667, -0.4906146],
  [-0.9787684, 1.9161415, 0.033454],
  [0.0719453, -0.2289914, 1.4052427],
];
const linear = (value: number, gamma?: number) =>
  gamma !== undefined ? value ** gamma : value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const encoded = (value: number) =>
  value <= 0.0031308 ? 12.92 * value : 1.055 * Math.max(0, value) ** (1 / 2.4) - 0.055;

/** Returns a colour of the profile in sRGB, in levels from 0 to 255. */
export function inSrgb(levels: readonly number[], { primaries, gamma }: Colours): number[] {
  const light = levels.map((level) => linear(level / 255, gamma));
  const place = [0, 1, 2].map((axis) => light.reduce((sum, value, i) => sum + value * primaries[i][axis], 0));
  return TO_SRGB.map((row) => {
    const value = encoded(row.reduce((sum, factor, axis) => sum + factor * place[axis], 0));
    return 255 * Math.min(1, Math.max(0, value));
  });
}

/** Returns a level of grey in sRGB. */
export const grayInSrgb = (level: number, { gamma }: Colours) => 255 * encoded(linear(level / 255, gamma));
