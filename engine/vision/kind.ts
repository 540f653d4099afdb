/** Descriptions of vision towers: what a kind of tower defines, and the sizes of a file's tower. */
import type { GgufFile } from "../gguf/types.ts";
import type { PlanBuilder, Value } from "../plan/builder.ts";
import type { layerNorm } from "../plan/ops/layer_norm.ts";
import type { rmsNorm } from "../plan/ops/rms_norm.ts";
import type { ImageText } from "./image_text.ts";
import type { Made } from "./made.ts";
import type { ImageSizes } from "./patches.ts";
import type { Scaling } from "./scaling.ts";

/** Sizes of images in pixels, from the file's keys. */
export interface FileSizes {
  /** Throws GgufError for a file without this key. */
  readonly side: () => number;
  readonly longest?: number;
}

export interface TowerKind {
  /** The key of the patches on a side of the square that becomes one token, and the key's default value. */
  readonly merged: readonly [key: string, usual?: number];
  /** Whether the tower expects pixels from -1 to 1 although its file describes pixels from 0 to 1. */
  readonly centres?: boolean;
  /** Returns how images are scaled. `factor` is a token's side in pixels. */
  readonly scaling: (sizes: FileSizes, factor: number) => Scaling;
  /** Number of equal frames that a still image has. */
  readonly frames: 1 | 2;
  /** Source of learned position embeddings: points of a grid, interpolation between points, or the sum of a column table and a row table. */
  readonly positions?: "at points" | "between points" | "by axis";
  readonly norm: typeof layerNorm | typeof rmsNorm;
  /** Whether a norm comes before the first layer. */
  readonly normsFirst?: boolean;
  /** Whether one tensor holds the matrices of queries, keys and values. */
  readonly joined?: boolean;
  /** Whether a SiLU gate multiplies the hidden rows of the feed-forward block; by default a GELU without a gate. */
  readonly gated?: boolean;
  /** Exponents of the rotary base, one per pair of `pairs`; the first half turns by rows. */
  readonly rotary?: {
    readonly interleaved: boolean;
    readonly exponent: (i: number, pairs: number) => number;
  };
  /** Returns a function that adds the layer whose tensors have a prefix. Only for towers with layers unlike those of other towers. */
  readonly layers?: (b: PlanBuilder, shape: TowerShape) => (x: Value, prefix: string) => void;
  /** Tensors whose values are laid out in another order than products need. */
  readonly made?: (shape: TowerShape) => Readonly<Record<string, Made>>;
  /** Returns the file with additional tensors that are computed from several of its tensors. Throws GgufError. */
  readonly prepare?: (file: GgufFile, shape: TowerShape) => GgufFile;
  /** Returns the rows that the decoder reads, from the last layer's rows. */
  readonly project: (b: PlanBuilder, x: Value, shape: TowerShape) => Value;
  readonly text: ImageText;
}

/** Sizes of a tower, from the file's keys. */
export interface TowerShape extends ImageSizes {
  readonly kind: TowerKind;
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
  readonly feedForward: number;
  readonly eps: number;
  /** Side of the grid with a learned position embedding at each point, or number of rows of each axis' table; 0 without learned positions. */
  readonly side: number;
  /** Width of the decoder that reads the image's rows. */
  readonly projection: number;
  /** The deep layers: their output is merged too, for the decoder's first layers. */
  readonly deepLayers: readonly number[];
}
