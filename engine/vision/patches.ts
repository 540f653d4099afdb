/** Prepares an image's pixels for a tower as Hugging Face's Qwen2VLImageProcessor does. */
import { resize, type Rgb } from "./resize.ts";

/** How a tower's images are prepared. */
export interface ImageSizes {
  /** Pixels on a side of a patch. */
  readonly patch: number;
  /** Patches on a side of the square that becomes one token. */
  readonly merged: number;
  /** Each channel's mean and standard deviation, of values from 0 to 1. */
  readonly means: readonly number[];
  readonly deviations: readonly number[];
  /** Bounds on the pixels of a scaled image. */
  readonly leastPixels: number;
  readonly mostPixels: number;
}

/** An image's patches, in rows and columns of patches. */
export interface Patches {
  readonly rows: number;
  readonly columns: number;
  /** The channels of each patch; a channel has the patch's pixels row by row. */
  readonly values: Float32Array<ArrayBuffer>; // [rows * columns, 3 * patch * patch]
}

/** Maximum ratio of an image's longer side to its shorter side, as in the family's processor. */
export const MOST_RATIO = 200;

/**
 * Returns the size to which an image is scaled: sides are multiples of a token's side, the pixels are within bounds, and
 * the ratio of the sides stays about the same.
 */
export function scaledSize(
  { width, height }: { readonly width: number; readonly height: number },
  { patch, merged, leastPixels, mostPixels }: ImageSizes,
): { width: number; height: number } {
  const factor = patch * merged;
  const sides = [height, width].map((side) => roundHalfEven(side / factor) * factor);
  const area = sides[0] * sides[1];
  if (area > mostPixels) {
    const by = Math.sqrt(height * width / mostPixels);
    const [h, w] = [height, width].map((side) => Math.max(factor, Math.floor(side / by / factor) * factor));
    return { height: h, width: w };
  }
  if (area < leastPixels) {
    const by = Math.sqrt(leastPixels / (height * width));
    const [h, w] = [height, width].map((side) => Math.ceil(side * by / factor) * factor);
    return { height: h, width: w };
  }
  return { height: sides[0], width: sides[1] };
}

/** Rounds as Python does. */
function roundHalfEven(value: number): number {
  const floor = Math.floor(value);
  if (value - floor !== 0.5) return Math.round(value);
  return floor % 2 === 0 ? floor : floor + 1;
}

/** Returns the image's patches. Patches of a token are adjacent, and tokens are in the order of reading. */
export function patchesOf(image: Rgb, sizes: ImageSizes): Patches {
  const { patch, merged, means, deviations } = sizes;
  const { width, height, pixels } = resize(image, scaledSize(image, sizes));
  const [rows, columns] = [height / patch, width / patch];
  const values = new Float32Array(3 * width * height);
  let at = 0;
  for (let index = 0; index < rows * columns; index++) {
    const { row, column } = placeOf(index, columns, merged);
    for (let channel = 0; channel < 3; channel++) {
      for (let y = row * patch; y < (row + 1) * patch; y++) {
        for (let x = column * patch; x < (column + 1) * patch; x++) {
          values[at++] = (pixels[3 * (y * width + x) + channel] / 255 - means[channel]) / deviations[channel];
        }
      }
    }
  }
  return { rows, columns, values };
}

/** Returns the row and column of the patch with the given index. */
export function placeOf(index: number, columns: number, merged: number): { row: number; column: number } {
  const [token, inside] = [Math.floor(index / merged ** 2), index % merged ** 2];
  const across = columns / merged;
  return {
    row: Math.floor(token / across) * merged + Math.floor(inside / merged),
    column: token % across * merged + inside % merged,
  };
}
