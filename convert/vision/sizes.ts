/** Types and functions that the converters of vision towers share. */
import type { Fields } from "../checkpoint/json.ts";
import type { WeightFinder } from "../write/matrix_source.ts";
import type { Entry } from "../write/metadata.ts";

/** The parts of a checkpoint's configuration. */
export interface Configs {
  /** The whole config.json. */
  readonly root: Fields;
  readonly vision: Fields;
  readonly text: Fields;
  /** The image processor's configuration. */
  readonly processor: Fields;
}

/** Values of the metadata keys in a tower's file. */
export interface TowerParts {
  readonly projector: string;
  readonly activation: "gelu" | "silu";
  /** Values of the keys `clip.vision.NAME`. */
  readonly counts: Readonly<Record<string, number>>;
  readonly eps: number;
  readonly entries?: readonly Entry[];
}

export const MOST = { layers: 256, width: 16_384, heads: 256, side: 4096, patch: 64, merged: 16 };

export interface Sizes {
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
  readonly feedForward: number;
  readonly patch: number;
  /** Side length of an image in pixels. */
  readonly image: number;
  /** Width of the decoder's rows. */
  readonly projection: number;
}

/** Defaults of transformers' configuration classes, for keys that config.json lacks. */
type Usual = Omit<Sizes, "projection">;

/** Returns the sizes of a tower whose configuration uses CLIP's key names. Throws for values out of range. */
export function readSizes({ vision, text }: Configs, usual: Usual): Sizes {
  vision.mustBe("num_channels", 3, "images have three colours");
  return {
    layers: vision.count("num_hidden_layers", MOST.layers, usual.layers),
    width: vision.count("hidden_size", MOST.width, usual.width),
    heads: vision.count("num_attention_heads", MOST.heads, usual.heads),
    feedForward: vision.count("intermediate_size", 4 * MOST.width, usual.feedForward),
    patch: vision.count("patch_size", MOST.patch, usual.patch),
    image: vision.count("image_size", MOST.side, usual.image),
    projection: text.count("hidden_size", MOST.width),
  };
}

/** Returns the sizes by the NAME of their metadata key `clip.vision.NAME`. */
export function countsOf({ layers, width, heads, feedForward, patch, image, projection }: Sizes) {
  return {
    projection_dim: projection,
    image_size: image,
    patch_size: patch,
    embedding_length: width,
    feed_forward_length: feedForward,
    block_count: layers,
    "attention.head_count": heads,
  };
}

/** Returns the first prefix under which the checkpoint has the tensor. If there is none, returns `prefixes[0]`. */
export function prefixOf(finder: WeightFinder, tensor: string, prefixes: readonly string[]): string {
  return prefixes.find((prefix) => finder.has(`${prefix}${tensor}`)) ?? prefixes[0];
}
