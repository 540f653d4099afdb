/** Scales images for towers as the processors of Hugging Face's transformers do. */
import { resize, type Rgb, type Size } from "./resize.ts";

/** The size to which a tower scales images. */
export type Scaling =
  /** To sides that are multiples of a token's side, with bounds on the pixels. */
  | { readonly to: "pixels"; readonly least: number; readonly most: number }
  /** To the largest size of at most `most` pixels, with sides that are multiples of a token's side. */
  | { readonly to: "fill"; readonly most: number }
  /** To a square, whatever the ratio of the sides. */
  | { readonly to: "square"; readonly side: number }
  /** To at most `longest` pixels on the longer side, then up to multiples of a token's side. */
  | { readonly to: "longest"; readonly longest: number }
  /** To `longest` pixels on the longer side, then up to whole squares of `side` pixels: tiles. The whole image follows as one square. */
  | { readonly to: "tiles"; readonly longest: number; readonly side: number };

/** Rows and columns of tiles that an image is split into. */
export interface Tiles {
  readonly rows: number;
  readonly columns: number;
}

/** Pictures of one size: the scaled image, or its tiles and then the whole image. */
export interface Pictures {
  readonly pictures: readonly Rgb[];
  readonly tiles?: Tiles;
}

/** Maximum ratio of an image's longer side to its shorter side. */
export const MOST_RATIO = 200;

/** Returns the scaled image, or its tiles and the whole image in a tile's size. `factor` is a token's side in pixels. */
export function scaled(image: Rgb, scaling: Scaling, factor: number): Pictures {
  switch (scaling.to) {
    case "pixels":
      return { pictures: [resize(image, sizeWithin(image, scaling, factor), "bicubic")] };
    case "fill":
      return { pictures: [resize(image, sizeFilling(image, scaling.most, factor), "bicubic")] };
    case "square":
      return { pictures: [resize(image, square(scaling.side), "bilinear")] };
    case "longest":
      return { pictures: [resize(image, sizeBelow(image, scaling.longest, factor), "bicubic")] };
    case "tiles":
      return tilesOf(image, scaling);
  }
}

const square = (side: number): Size => ({ width: side, height: side });

/** As Qwen2VLImageProcessor: the ratio of the sides stays about the same. */
function sizeWithin(
  { width, height }: Size,
  { least, most }: { readonly least: number; readonly most: number },
  factor: number,
): Size {
  const sides = [height, width].map((side) => roundHalfEven(side / factor) * factor);
  const area = sides[0] * sides[1];
  if (area > most) {
    const by = Math.sqrt(height * width / most);
    const [h, w] = [height, width].map((side) => Math.max(factor, Math.floor(side / by / factor) * factor));
    return { height: h, width: w };
  }
  if (area < least) {
    const by = Math.sqrt(least / (height * width));
    const [h, w] = [height, width].map((side) => Math.ceil(side * by / factor) * factor);
    return { height: h, width: w };
  }
  return { height: sides[0], width: sides[1] };
}

/** Like Gemma4ImageProcessor: images of all sizes get about the same number of tokens. MOST_RATIO keeps sides above 0. */
function sizeFilling({ width, height }: Size, most: number, factor: number): Size {
  const by = Math.sqrt(most / (height * width));
  const [h, w] = [height, width].map((side) => Math.floor(by * side / factor) * factor);
  return { height: h, width: w };
}

/** Rounds as Python does. */
function roundHalfEven(value: number): number {
  const floor = Math.floor(value);
  if (value - floor !== 0.5) return Math.round(value);
  return floor % 2 === 0 ? floor : floor + 1;
}

/** As PixtralImageProcessor: only larger images shrink. */
function sizeBelow({ width, height }: Size, longest: number, factor: number): Size {
  const by = Math.max(1, height / longest, width / longest);
  const [h, w] = [height, width].map((side) =>
    Math.ceil(Math.max(1, Math.floor(side / by)) / factor) * factor
  );
  return { height: h, width: w };
}

/** As Idefics3ImageProcessor. An image of one tile has no further picture. */
function tilesOf(
  image: Rgb,
  { longest, side }: { readonly longest: number; readonly side: number },
): Pictures {
  const first = resize(image, withLongest(image, longest), "lanczos");
  const whole = resize(first, wholeTiles(first, side), "lanczos");
  const [rows, columns] = [whole.height / side, whole.width / side];
  if (rows * columns === 1) return { pictures: [whole] };
  const pictures = Array.from(
    { length: rows * columns },
    (_, i) => cut(whole, Math.floor(i / columns) * side, i % columns * side, side),
  );
  return { pictures: [...pictures, resize(whole, square(side), "lanczos")], tiles: { rows, columns } };
}

/** Returns the size whose longer side is `longest`, and whose shorter side is even unless equal. */
function withLongest({ width, height }: Size, longest: number): Size {
  const ratio = width / height;
  const even = (side: number) => Math.max(1, side + side % 2);
  if (width >= height) return { width: longest, height: even(Math.trunc(longest / ratio)) };
  return { height: longest, width: even(Math.trunc(longest * ratio)) };
}

/** Returns the size of whole tiles that covers the image, and keeps the ratio of its sides as far as tiles allow. */
function wholeTiles({ width, height }: Size, side: number): Size {
  const ratio = width / height;
  const whole = (pixels: number) => Math.ceil(pixels / side) * side;
  if (width >= height) return { width: whole(width), height: whole(Math.trunc(whole(width) / ratio)) };
  return { height: whole(height), width: whole(Math.trunc(whole(height) * ratio)) };
}

function cut({ width, pixels }: Rgb, top: number, left: number, side: number): Rgb {
  const part = new Uint8Array(3 * side * side);
  for (let y = 0; y < side; y++) {
    const from = 3 * ((top + y) * width + left);
    part.set(pixels.subarray(from, from + 3 * side), 3 * side * y);
  }
  return { ...square(side), pixels: part };
}
