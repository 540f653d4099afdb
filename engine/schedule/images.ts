/** Images of a prompt: their tokens, and the places of these tokens in the decoder's rotary tables. */
import { EngineError } from "../api/errors.ts";
import type { GenerateRequest, PromptImage } from "../api/request.ts";
import { AXES, type GivenRow, type Span } from "../backend/backend.ts";
import type { Asker } from "../grammar/types.ts";
import type { Tokenizer } from "../tokenizer/types.ts";

/** The refusal of images by a model without a tower. */
export const NO_IMAGES = "This model takes no images: it reads text only";

/** Decodes images and computes their rows. */
export interface ImageReader {
  /** Decodes an image. The bytes are handed over. Throws EngineError invalid_request. */
  read(bytes: Uint8Array<ArrayBuffer>, asker: Asker, signal?: AbortSignal): Promise<PromptImage>;
  /** Returns the image's rows, one per token of its runs, each with a part for the embedding and one for each deep layer. */
  rowsOf(image: PromptImage, asker?: Asker): Promise<Float32Array>;
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
  /** The rows of each image: one row per token of its runs. */
  readonly rows: Float32Array[];
}

/** Computes the rows of a sequence's images. Stops early if the request has ended. */
export async function computeRows(
  { images, progress }: { readonly images?: SequenceImages; readonly progress: { readonly done: boolean } },
  reader: ImageReader,
  asker: Asker,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { placed = [], rows = [] } = images ?? {};
  for (const { image } of placed) {
    if (progress.done || signal?.aborted) return;
    rows.push(await reader.rowsOf(image, asker));
  }
}

/**
 * Returns the prompt with the tokens of each image. Throws EngineError invalid_request if the given prompt does not
 * have exactly one token for each image.
 */
export function placeImages(
  prompt: readonly number[],
  images: readonly PromptImage[],
  tokenizer: Tokenizer,
): { tokens: number[]; placed: PlacedImage[] } {
  const placed: PlacedImage[] = [];
  const mark = images[0]?.mark;
  const places = prompt.filter((id) => id === mark).length;
  if (places !== images.length) {
    const message = `The prompt has places for ${places} images, but the request has ${images.length}`;
    throw new EngineError("invalid_request", message);
  }
  const text = new LineJoiner(tokenizer);
  for (const id of prompt) {
    const image = id === mark ? images[placed.length] : undefined;
    if (!image) {
      text.add(id);
      continue;
    }
    text.addLines(image.lines);
    placed.push({ image, at: text.length });
    for (const own of image.tokens) text.tokens.push(own);
    text.addLines(image.lines);
  }
  return { tokens: text.finish(), placed };
}

/** Collects tokens. Added line ends become one token with the line ends beside them, as in a text. */
class LineJoiner {
  readonly tokens: number[] = [];
  /** Number of added line ends, and of those beside them, that have no token yet. */
  #lines = 0;

  constructor(private readonly tokenizer: Tokenizer) {}

  /** Number of tokens, after line ends got theirs. */
  get length(): number {
    this.#write();
    return this.tokens.length;
  }

  add(token: number): void {
    const lines = this.#lines > 0 ? this.#linesOf(token) : 0;
    if (lines === 0) this.#write();
    if (lines === 0) this.tokens.push(token);
    this.#lines += lines;
  }

  addLines(count: number): void {
    if (count === 0) return;
    for (let last = this.tokens.at(-1); last !== undefined; last = this.tokens.at(-1)) {
      const before = this.#lines === 0 ? this.#linesOf(last) : 0;
      if (before === 0) break;
      this.tokens.pop();
      count += before;
    }
    this.#lines += count;
  }

  finish(): number[] {
    this.#write();
    return this.tokens;
  }

  #write(): void {
    if (this.#lines === 0) return;
    for (const token of this.tokenizer.encode("\n".repeat(this.#lines))) this.tokens.push(token);
    this.#lines = 0;
  }

  /** Returns the number of line ends that make up the token; 0 for other tokens. */
  #linesOf(token: number): number {
    const bytes = this.tokenizer.bytes(token);
    return bytes.every((byte) => byte === 10) ? bytes.length : 0;
  }
}

/** Returns the number of tokens of a prompt with its images. Throws like `placeImages`. */
export function promptLength(
  { prompt, images = [] }: Pick<GenerateRequest, "prompt" | "images">,
  tokenizer: Tokenizer,
): number {
  return images.length === 0 ? prompt.length : placeImages(prompt, images, tokenizer).tokens.length;
}

/** Returns the images' rows for tokens from `first` to before `end`. The token `first` has the step's row `start`. */
export function givenRows(
  { placed, rows }: SequenceImages,
  first: number,
  end: number,
  start: number,
): GivenRow[] {
  return placed.flatMap((one, index) => {
    const runs = runsOf(one);
    const width = rows[index].length / runs.reduce((sum, { first, end }) => sum + end - first, 0);
    let before = 0;
    return runs.flatMap((run) => {
      const [from, to] = [Math.max(first, run.first), Math.min(end, run.end)];
      const row = before + from - run.first;
      before += run.end - run.first;
      return Array.from({ length: Math.max(0, to - from) }, (_, i) => ({
        row: start + from - first + i,
        values: rows[index].subarray((row + i) * width, (row + i + 1) * width),
      }));
    });
  });
}

/** Returns the positions of the image's rows. */
function runsOf({ image: { runs }, at }: PlacedImage): Span[] {
  return runs.map(({ first, count }) => ({ first: at + first, end: at + first + count }));
}

/** Returns the positions of rows that attend to each other in both directions. One step must compute each span. */
function spansOf(placed: readonly PlacedImage[]): Span[] {
  return placed.flatMap((one) => one.image.together ? runsOf(one) : []);
}

/** Returns the parts of such spans from `first` to before `end`, for a step. */
export function spansWithin({ placed }: SequenceImages, first: number, end: number): Span[] {
  return spansOf(placed).filter((span) => span.end > first && span.first < end)
    .map((span) => ({ first: Math.max(span.first, first), end: span.end }));
}

/** Returns such a span that a step's end at the position would divide. */
export function dividedSpan(images: SequenceImages | undefined, position: number): Span | undefined {
  return images && spansOf(images.placed).find(({ first, end }) => first < position && position < end);
}

/** Returns the number of rows from the position on that one step must compute, if they are an image's; else 0. */
export function rowsTogether(images: SequenceImages | undefined, position: number): number {
  const span = images && spansOf(images.placed).find(({ first, end }) => first <= position && position < end);
  return span ? span.end - position : 0;
}

/**
 * Returns the places of tokens from `first` to before `end`; undefined if positions are places. A token of text has the next position on all axes. An
 * image's tokens have the image's position in time; on the other axes, a token adds its row or column to that position.
 * The text after an image continues behind the image's longer side. Source: "Qwen2-VL" (arXiv 2409.12191).
 */
export function placesOf(
  placed: readonly PlacedImage[],
  first: number,
  end: number,
): Uint32Array | undefined {
  if (!placed[0].image.grid) return undefined;
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
