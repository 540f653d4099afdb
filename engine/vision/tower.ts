import { EngineError } from "../api/errors.ts";
import type { PromptImage } from "../api/request.ts";
import type { Backend } from "../backend/backend.ts";
import { AXES, type GivenRow, KV_BLOCK_TOKENS, type StepInput } from "../backend/backend.ts";
import { type Asker, FairTurns } from "../pacing/fair_turns.ts";
import { finish, type Paced, withPauses } from "../pacing/pauses.ts";
import type { ImageReader } from "../schedule/images.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import { useDecoders } from "./decoders.ts";
import { tokensFor } from "./image_text.ts";
import { type Patches, placeOf } from "./patches.ts";
import { readImage } from "./read_image.ts";
import type { TowerShape } from "./kind.ts";
import { mostPatches } from "./shape.ts";
import { givenColumns } from "./tower_plan.ts";

/** Maximum bytes of images' rows that are kept for later requests. */
const MOST_KEPT = 128 * 2 ** 20;
const NOBODY: Asker = { tenant: "", batch: false };

/** The parts of a tower that its steps read. */
export interface StepParts {
  readonly shape: TowerShape;
  /** Learned position embeddings: of a grid's points, [side * side, width], or of columns and of rows, [side, width] each. */
  readonly positions: readonly Float32Array[];
}

export interface TowerParts extends StepParts {
  /** The loaded and compiled backend of the tower. The tower closes the backend. */
  readonly backend: Backend;
  /** The decoder's tokenizer. */
  readonly tokenizer: Tokenizer;
}

/** Computes the rows of images that a decoder reads: one picture at a time, beside the decoder's steps. */
export class Tower implements ImageReader {
  readonly #parts: TowerParts;
  readonly #releaseDecoders: () => void;
  /** Rows of recent images by their digests, least recently used first. */
  readonly #kept = new Map<string, Float32Array>();
  /** Rows that are being computed. */
  readonly #pending = new Map<string, Promise<Float32Array>>();
  /** Batches' images wait for other images, and tenants take turns. */
  readonly #turns = new FairTurns({ atOnce: 1, ofTenant: 1, firstAmong: 1 });
  #keptBytes = 0;
  /** The latest image to be computed. */
  #running: Promise<unknown> = Promise.resolve();

  constructor(parts: TowerParts) {
    this.#parts = parts;
    this.#releaseDecoders = useDecoders();
  }

  async read(bytes: Uint8Array<ArrayBuffer>, asker: Asker, signal?: AbortSignal): Promise<PromptImage> {
    const { shape, tokenizer } = this.#parts;
    const { patch, merged, means, deviations, scaling } = shape;
    const sizes = { patch, merged, means, deviations, scaling };
    const { patches, digest } = await readImage({ bytes, sizes }, { ...asker, signal });
    return promptImage(patches, digest, shape, tokenizer);
  }

  async rowsOf(image: PromptImage, asker: Asker = NOBODY): Promise<Float32Array> {
    const { digest } = image;
    const kept = this.#kept.get(digest);
    if (kept) {
      this.#kept.delete(digest);
      this.#kept.set(digest, kept);
      return kept;
    }
    const pending = this.#pending.get(digest);
    if (pending) return await pending;
    const rows = this.#turns.run(asker, () => {
      const run = this.#run(image);
      this.#running = run.catch(() => {});
      return run;
    });
    this.#pending.set(digest, rows);
    try {
      this.#keep(digest, await rows);
    } finally {
      this.#pending.delete(digest);
    }
    return await rows;
  }

  #keep(digest: string, rows: Float32Array): void {
    this.#kept.set(digest, rows);
    this.#keptBytes += rows.byteLength;
    for (const [oldest, { byteLength }] of this.#kept) {
      if (this.#keptBytes <= MOST_KEPT) return;
      this.#kept.delete(oldest);
      this.#keptBytes -= byteLength;
    }
  }

  close(): void {
    this.#releaseDecoders();
    void this.#running.then(() => this.#parts.backend.close());
  }

  async #run(image: PromptImage): Promise<Float32Array> {
    const rows: Float32Array[] = [];
    for await (const step of stepsOf(image, this.#parts)) {
      rows.push(...(await this.#parts.backend.step(step)).pooled!);
    }
    return await withPauses(() => finish(joined(rows)));
  }
}

/** The grid of an image's tokens, and its patches. */
type Grid = Pick<PromptImage, "rows" | "columns" | "patches">;

/** Returns a step for each of the image's pictures. */
export async function* stepsOf(image: Grid, parts: StepParts): AsyncGenerator<StepInput> {
  const { rows, columns, patches } = image;
  const each = rows * columns * parts.shape.merged ** 2 * givenColumns(parts.shape).pixels;
  for (let at = 0; at < patches.length; at += each) {
    const picture = { rows, columns, patches: patches.subarray(at, at + each) };
    yield stepOf(await withPauses(() => finish(givenOf(picture, parts))), picture, parts.shape);
  }
}

/** Returns the image of the patches, with its tokens. */
export function promptImage(
  { rows, columns, tiles, values }: Patches,
  digest: string,
  { merged, kind }: TowerShape,
  tokenizer: Tokenizer,
): PromptImage {
  const grid = { rows: rows / merged, columns: columns / merged };
  return { ...grid, ...tokensFor({ ...grid, tiles }, kind.text, tokenizer), digest, patches: values };
}

/** Returns the rows as one array. Throws EngineError for a number that is not finite. */
function* joined(rows: readonly Float32Array[]): Paced<Float32Array> {
  const all = new Float32Array(rows.length * rows[0].length);
  for (const [i, row] of rows.entries()) {
    if (!row.every(Number.isFinite)) {
      throw new EngineError(
        "engine_failed",
        "The vision tower gave no usable rows: its weights may be damaged",
      );
    }
    all.set(row, i * row.length);
    yield;
  }
  return all;
}

/** Returns a step over the image's patches. */
function stepOf(given: readonly GivenRow[], { columns }: Grid, { merged }: TowerShape): StepInput {
  const { length } = given;
  const places = new Uint32Array(length * AXES);
  for (let i = 0; i < length; i++) {
    const { row, column } = placeOf(i, columns * merged, merged);
    places.set([0, row, column], i * AXES);
  }
  return {
    tokens: new Int32Array(length),
    // No layer has a cache, so all blocks may be the same.
    sequences: [{
      start: 0,
      length,
      cached: 0,
      blockTable: new Int32Array(Math.ceil(length / KV_BLOCK_TOKENS)),
      places,
    }],
    logits: [],
    pools: new Array(length / merged ** 2).fill(0),
    given,
  };
}

/** Returns each patch's pixels, followed by its position embedding if the tower has learned ones. */
function* givenOf(
  { rows, columns, patches }: Grid,
  { shape, positions }: StepParts,
): Paced<GivenRow[]> {
  const { width, merged } = shape;
  const { pixels, width: inRow } = givenColumns(shape);
  const [down, across] = [rows * merged, columns * merged];
  const pointsAt = pointsOf(shape, down, across);
  const given: GivenRow[] = [];
  for (let index = 0; index < down * across; index++) {
    const values = new Float32Array(inRow);
    values.set(patches.subarray(index * pixels, (index + 1) * pixels));
    const { row, column } = placeOf(index, across, merged);
    for (const { table, weight, point } of pointsAt(row, column)) {
      const from = point * width;
      for (let i = 0; i < width; i++) values[pixels + i] += weight * positions[table][from + i];
    }
    given.push({ row: index, values });
    if (index % 16 === 15) yield;
  }
  return given;
}

/** A row of a table of learned position embeddings, and its weight in a sum. */
interface Point {
  readonly table: number;
  readonly weight: number;
  readonly point: number;
}

/** Returns a function from a patch's row and column to the points whose weighted sum is its position embedding. */
function pointsOf(
  { kind, side }: TowerShape,
  down: number,
  across: number,
): (row: number, column: number) => Point[] {
  if (!kind.positions) return () => [];
  if (kind.positions === "by axis") {
    return (row, column) => [column, row].map((point, table) => ({ table, weight: 1, point }));
  }
  const [ys, xs] = [down, across].map((count) => nearestPoints(count, side));
  return (row, column) =>
    ys[row].flatMap((y) =>
      xs[column].map((x) => ({ table: 0, weight: y.weight * x.weight, point: y.point * side + x.point }))
    ).filter(({ weight }) => weight !== 0);
}

/** Returns for each of `count` places between the ends of the grid the two nearest points, and their weights. */
function nearestPoints(count: number, side: number): { point: number; weight: number }[][] {
  return Array.from({ length: count }, (_, i) => {
    const at = count === 1 ? 0 : i * (side - 1) / (count - 1);
    const point = Math.floor(at);
    return [
      { point, weight: 1 - (at - point) },
      { point: Math.min(point + 1, side - 1), weight: at - point },
    ];
  });
}

/** The sizes that the tower's plan is compiled for. */
export function towerSize(shape: TowerShape) {
  return { kvBlocks: 1, maxRows: mostPatches(shape), maxLogitRows: 1 };
}
