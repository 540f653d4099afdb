/** Cuts scaled images into patches. */
import type { Pictures, Scaling, Tiles } from "./scaling.ts";

/** How a tower's images are prepared. */
export interface ImageSizes {
  /** Pixels on a side of a patch. */
  readonly patch: number;
  /** Patches on a side of the square that becomes one token. */
  readonly merged: number;
  /** Each channel's mean and standard deviation, of values from 0 to 1. */
  readonly means: readonly number[];
  readonly deviations: readonly number[];
  readonly scaling: Scaling;
}

/** An image's patches, in rows and columns of patches. An image of several tiles has that many for each tile. */
export interface Patches {
  readonly rows: number;
  readonly columns: number;
  /** Rows and columns of tiles, which come before the whole image. */
  readonly tiles?: Tiles;
  /** The channels of each patch; a channel has the patch's pixels row by row. */
  readonly values: Float32Array<ArrayBuffer>; // [tiles, rows * columns, 3 * patch * patch]
}

/**
 * Returns the patches of pictures of one size. Patches of a token are adjacent, and tokens are in the order of
 * reading. Pixels beyond the last whole patch are left out.
 */
export function patchesOf(
  { pictures, tiles }: Pictures,
  { patch, merged, means, deviations }: ImageSizes,
): Patches {
  const [rows, columns] = [pictures[0].height, pictures[0].width].map((side) => Math.floor(side / patch));
  const values = new Float32Array(pictures.length * rows * columns * 3 * patch ** 2);
  let at = 0;
  for (const { pixels, width } of pictures) {
    for (let index = 0; index < rows * columns; index++) {
      const { row, column } = placeOf(index, columns, merged);
      for (let channel = 0; channel < 3; channel++) {
        for (let y = row * patch; y < (row + 1) * patch; y++) {
          for (let x = column * patch; x < (column + 1) * patch; x++) {
            values[at++] = (pixels[3 * (y * width + x) + channel] / 255 - means[channel]) /
              deviations[channel];
          }
        }
      }
    }
  }
  return { rows, columns, tiles, values };
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
