/** Helpers for the kinds of images. */
import { concat } from "@std/bytes/concat.js";

/** What a decoder must do: return an image of these pixels, refuse the file, or either of both. */
export type Outcome = readonly [width: number, height: number] | "refused" | "either";
export type Kind = readonly [name: string, bytes: Uint8Array, outcome: Outcome];

export const utf8 = (text: string) => new TextEncoder().encode(text);
export const join = (...parts: (Uint8Array | readonly number[] | string)[]) =>
  concat(parts.map((part) => typeof part === "string" ? utf8(part) : Uint8Array.from(part)));

/** Returns numbers as bytes, the highest byte first. */
export function big(width: 2 | 4, ...values: number[]): Uint8Array {
  return Uint8Array.from(
    values.flatMap((value) =>
      Array.from({ length: width }, (_, i) => Math.floor(value / 256 ** (width - 1 - i)) % 256)
    ),
  );
}

export const little = (width: 2 | 4, ...values: number[]) =>
  concat(values.map((value) => big(width, value).reverse()));

/** Returns EXIF data with an orientation. */
export function exif(
  orientation: number,
  order: "MM" | "II" = "MM",
  { count = 1, next = 0, at = 8 } = {},
): Uint8Array {
  const [two, four] = order === "MM"
    ? [(...v: number[]) => big(2, ...v), (...v: number[]) => big(4, ...v)]
    : [(...v: number[]) => little(2, ...v), (...v: number[]) => little(4, ...v)];
  return join(order, two(42), four(at), two(1), two(0x112, 3), four(count), two(orientation, 0), four(next));
}
