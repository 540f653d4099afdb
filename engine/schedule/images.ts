/** Images of a prompt: their tokens, and the places of these tokens in the decoder's rotary tables. */
import { EngineError } from "../api/errors.ts";
import type { PromptImage } from "../api/request.ts";
import { AXES, type GivenRow } from "../backend/backend.ts";

/** The refusal of images by a model without a tower. */
export const NO_IMAGES = "This model takes no images: it reads text only";

/** Decodes images and computes their rows. */
export interface ImageReader {
  /** The token that stands for an image in a prompt. */
  readonly token: number;
  /** Decodes an image. The bytes are handed over. Throws EngineError invalid_request. */
  read(bytes: Uint8Array<ArrayBuffer>, signal?: AbortSignal): Promise<PromptImage>;
  /** Returns the image's rows, one per token, each with a part for the embedding and one for each deep layer. */
  rowsOf(image: PromptImage): Promise<Float32Array>;
  close(): void;
}

/** An image's place in a sequence. */
export interface PlacedImage {
  readonly image: PromptImage;
  /** Position of the image's first token. */
  readonly at: number;
}

/** A sequence's images in order, and the rows of the images that are already computed. */
export interface SequenceImages {
  readonly placed: readonly PlacedImage[];
  /** The rows of each image: one row per token. */
  readonly rows: Float32Array[];
}

/** Computes the rows of a sequence's images. Stops early if `left` returns true: the request has ended. */
export async function computeRows(
  { placed, rows }: SequenceImages,
  reader: ImageReader,
  left: () => boolean | undefined,
): Promise<void> {
  for (const { image } of placed) {
    if (left()) return;
    rows.push(await reader.rowsOf(image));
  }
}

export function tokensOf({ rows, columns }: PromptImage): number {
  return rows * columns;
}

/**
 * Returns the prompt with one token for each row of an image. Throws EngineError invalid_request if the given prompt
 * does not have exactly one token for each image.
 */
export function placeImages(
  prompt: readonly number[],
  images: readonly PromptImage[],
  token: number | undefined,
): { tokens: number[]; placed: PlacedImage[] } {
  const tokens: number[] = [];
  const placed: PlacedImage[] = [];
  if (token === undefined) throw new EngineError("not_supported", NO_IMAGES);
  const places = prompt.filter((id) => id === token).length;
  if (places !== images.length) {
    const message = `The prompt has places for ${places} images, but the request has ${images.length}`;
    throw new EngineError("invalid_request", message);
  }
  for (const id of prompt) {
    const image = id === token ? images[placed.length] : undefined;
    if (!image) {
      tokens.push(id);
      continue;
    }
    placed.push({ image, at: tokens.length });
    for (let i = 0; i < tokensOf(image); i++) tokens.push(token);
  }
  return { tokens, placed };
}

/** Returns the images' rows for tokens from `first` to before `end`. The token `first` has the step's row `start`. */
export function givenRows(
  { placed, rows }: SequenceImages,
  first: number,
  end: number,
  start: number,
): GivenRow[] {
  return placed.flatMap(({ image, at }, index) => {
    const width = rows[index].length / tokensOf(image);
    const [from, to] = [Math.max(first, at), Math.min(end, at + tokensOf(image))];
    return Array.from({ length: Math.max(0, to - from) }, (_, i) => ({
      row: start + from - first + i,
      values: rows[index].subarray((from + i - at) * width, (from + i + 1 - at) * width),
    }));
  });
}

/**
 * Returns the places of tokens from `first` to before `end`. A token of text has the next position on all axes. An
 * image's tokens have the image's position in time; on the other axes, a token adds its row or column to that position.
 * The text after an image continues behind the image's longer side. Source: "Qwen2-VL" (arXiv 2409.12191).
 */
export function placesOf(placed: readonly PlacedImage[], first: number, end: number): Uint32Array {
  const places = new Uint32Array((end - first) * AXES);
  let next = 0; // the next image
  let position = 0; // of the token at `index`, or of the image that begins there
  for (let index = 0; index < end;) {
    const at = placed[next]?.at ?? Infinity;
    if (index < at) {
      const until = Math.min(at, end);
      for (let i = Math.max(index, first); i < until; i++) {
        places.fill(position + i - index, (i - first) * AXES, (i - first + 1) * AXES);
      }
      position += until - index;
      index = until;
      continue;
    }
    const { rows, columns } = placed[next++].image;
    const until = Math.min(index + rows * columns, end);
    for (let i = Math.max(index, first); i < until; i++) {
      const inside = i - index;
      const place = [position, position + Math.floor(inside / columns), position + inside % columns];
      places.set(place, (i - first) * AXES);
    }
    position += Math.max(rows, columns);
    index += rows * columns;
  }
  return places;
}

/** Returns the key of a sequence's prefix. Sequences with the same salt and the same images have the same key. */
export function prefixKey(salt: string, images: readonly PromptImage[]): string {
  return images.length === 0 ? salt : `${images.map(({ digest }) => digest).join("")}\0${salt}`;
}
