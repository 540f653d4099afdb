/** Scales images as Pillow does, which Hugging Face's processors use. */

export interface Size {
  readonly width: number;
  readonly height: number;
}

/** An image of 8-bit red, green and blue values, row by row. */
export interface Rgb extends Size {
  readonly pixels: Uint8Array; // [height, width, 3]
}

const SHARPNESS = -0.5;

/** Interpolation kernels, and the pixels on each side that they cover unless the image shrinks. */
const FILTERS = {
  bilinear: { reach: 1, weigh: (distance: number) => Math.max(0, 1 - Math.abs(distance)) },
  bicubic: { reach: 2, weigh: cubic },
  lanczos: { reach: 3, weigh: (x: number) => Math.abs(x) < 3 ? sinc(x) * sinc(x / 3) : 0 },
};
export type Filter = keyof typeof FILTERS;

/** Returns the image in the given size. Scales rows first, then columns, and rounds in between. */
export function resize(image: Rgb, { width, height }: Size, filter: Filter): Rgb {
  const across = image.width === width ? image : scaleRows(image, width, filter);
  return across.height === height ? across : scaleColumns(across, height, filter);
}

/** The weight 1: weights are whole numbers, as in Pillow, so that results are equal. */
const ONE = 2 ** 22;

/** Returns the weight in units of 1 / ONE, rounded to a whole number. */
function fixed(weight: number): number {
  return Math.trunc(weight * ONE + (weight < 0 ? -0.5 : 0.5));
}

/** The old pixels that make a new pixel, and their weights. */
interface Taps {
  readonly first: number;
  readonly weights: Float64Array;
}

function tapsOf(from: number, to: number, filter: Filter): Taps[] {
  const scale = from / to;
  const stretch = Math.max(1, scale); // a smaller image averages all the pixels that a new one covers
  const { reach: covered, weigh } = FILTERS[filter];
  const reach = covered * stretch;
  return Array.from({ length: to }, (_, i) => {
    const centre = (i + 0.5) * scale;
    const first = Math.max(0, Math.floor(centre - reach + 0.5));
    const end = Math.min(from, Math.floor(centre + reach + 0.5));
    const weights = Float64Array.from(
      { length: end - first },
      (_, k) => weigh((first + k - centre + 0.5) * (1 / stretch)),
    );
    const sum = weights.reduce((a, b) => a + b, 0);
    return { first, weights: weights.map((weight) => fixed(weight / sum)) };
  });
}

function cubic(distance: number): number {
  const x = Math.abs(distance);
  if (x < 1) return ((SHARPNESS + 2) * x - (SHARPNESS + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * SHARPNESS;
  return 0;
}

function sinc(x: number): number {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

function scaleRows({ width: from, height, pixels }: Rgb, width: number, filter: Filter): Rgb {
  const scaled = new Uint8ClampedArray(3 * width * height);
  const taps = tapsOf(from, width, filter);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const { first, weights } = taps[x];
      for (let channel = 0; channel < 3; channel++) {
        let sum = 0;
        let at = 3 * (y * from + first) + channel;
        for (let k = 0; k < weights.length; k++, at += 3) sum += weights[k] * pixels[at];
        scaled[3 * (y * width + x) + channel] = Math.floor(sum / ONE + 0.5);
      }
    }
  }
  return { width, height, pixels: new Uint8Array(scaled.buffer) };
}

function scaleColumns({ width, height: from, pixels }: Rgb, height: number, filter: Filter): Rgb {
  const scaled = new Uint8ClampedArray(3 * width * height);
  const sums = new Float64Array(3 * width);
  for (const [y, { first, weights }] of tapsOf(from, height, filter).entries()) {
    sums.fill(ONE / 2);
    for (let k = 0; k < weights.length; k++) {
      const row = pixels.subarray(3 * width * (first + k), 3 * width * (first + k + 1));
      for (let i = 0; i < row.length; i++) sums[i] += weights[k] * row[i];
    }
    for (let i = 0; i < sums.length; i++) scaled[3 * width * y + i] = Math.floor(sums[i] / ONE);
  }
  return { width, height, pixels: new Uint8Array(scaled.buffer) };
}
