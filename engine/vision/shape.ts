/** Reads and checks the sizes of a vision tower from the keys of its `mmproj` file. */
import { GgufError, quote } from "../gguf/errors.ts";
import { requireFloats } from "../gguf/float_tensor.ts";
import { inWords } from "../gguf/metadata.ts";
import type { GgufFile, TensorInfo } from "../gguf/types.ts";
import type { TowerKind, TowerShape } from "./kind.ts";
import { KINDS } from "./kinds.ts";
import type { ImageSizes } from "./patches.ts";
import { MOST_RATIO, type Scaling } from "./scaling.ts";

/** Limits on counts in a file. Every known model has smaller counts. */
const MOST = { layers: 256, width: 16_384, heads: 256, side: 4096, patch: 64, merged: 16, tiles: 8 };
/** Maximum patches of a picture. A step of the tower has one row per patch. */
const MOST_PATCHES = 2 ** 14;
const LEAST_PATCH = 8;
export const POSITIONS = "v.position_embd.weight";

/** Returns the kind of the tower in a file; "" if the file names none. */
export function projectorOf({ metadata }: Pick<GgufFile, "metadata">): string {
  return metadata.getString("clip.projector_type", metadata.getString("clip.vision.projector_type", ""));
}

/** Reads keys `clip.vision.*`. */
class Keys {
  constructor(private readonly file: GgufFile) {}

  refuse(name: string, detail: string): never {
    throw new GgufError("GGUF_HPARAM", detail, { field: `key ${quote(`clip.${name}`)}` });
  }

  kind(): TowerKind {
    const name = projectorOf(this.file);
    const known = [...KINDS.keys()].map(quote).join(", ");
    return KINDS.get(name) ?? this.refuse("projector_type", `must be one of ${known} (got ${quote(name)})`);
  }

  count(name: string, most: number, usual?: number): number {
    const value = this.file.metadata.getCount(`clip.vision.${name}`, usual);
    if (value >= 1 && value <= most) return value;
    return this.refuse(`vision.${name}`, `must be 1 to ${most} (got ${value})`);
  }

  /** Returns the number of each channel. */
  channels(name: string): number[] {
    const values = Array.from(this.file.metadata.getNumbers(`clip.vision.${name}`) ?? []);
    if (values.length === 3 && values.every(Number.isFinite)) return values;
    return this.refuse(`vision.${name}`, `must be three numbers (got ${values.length})`);
  }

  deepLayers(layers: number): number[] {
    const flags: unknown = this.file.metadata.entries.get("clip.vision.is_deepstack_layers");
    if (flags === undefined) return [];
    if (Array.isArray(flags) && flags.length === layers && flags.every((flag) => typeof flag === "boolean")) {
      return flags.flatMap((flag, layer) => flag ? [layer] : []);
    }
    const found = inWords(flags as never);
    return this.refuse("vision.is_deepstack_layers", `must be ${layers} booleans (got ${found})`);
  }
}

/** Returns the tower's sizes. Throws GgufError for a file that is not a supported tower. */
export function readTower(file: GgufFile): TowerShape {
  const keys = new Keys(file);
  const kind = keys.kind();
  const layers = keys.count("block_count", MOST.layers);
  const width = keys.count("embedding_length", MOST.width);
  const heads = keys.count("attention.head_count", MOST.heads);
  if (width % (8 * heads) !== 0) {
    keys.refuse(
      "vision.attention.head_count",
      `must divide ${width} into heads of 8, 16, 24, … (got ${heads})`,
    );
  }
  const patch = keys.count("patch_size", MOST.patch);
  // The smallest image must not have more patches than the largest one.
  if (patch < LEAST_PATCH) keys.refuse("vision.patch_size", `must be at least ${LEAST_PATCH} (got ${patch})`);
  const [name, usual] = kind.merged;
  const merged = keys.count(name, MOST.merged, usual);
  const [means, deviations] = [keys.channels("image_mean"), keys.channels("image_std")];
  if (deviations.some((value) => value <= 0)) keys.refuse("vision.image_std", "must be above 0");
  const scaling = scalingOf(file, keys, kind, patch * merged);
  const shape = {
    kind,
    layers,
    width,
    heads,
    feedForward: keys.count("feed_forward_length", MOST.width),
    eps: file.metadata.getNumber("clip.vision.attention.layer_norm_epsilon", 1e-6),
    side: sideOf(file, kind, scaling, { patch, merged }),
    projection: keys.count("projection_dim", MOST.width),
    deepLayers: keys.deepLayers(layers),
    patch,
    merged,
    // 2 (x - mean) / deviation - 1 = (x - (mean + deviation / 2)) / (deviation / 2)
    means: kind.centres ? means.map((mean, i) => mean + deviations[i] / 2) : means,
    deviations: kind.centres ? deviations.map((deviation) => deviation / 2) : deviations,
    scaling,
  };
  checkPatches(keys, shape);
  return shape;
}

/** Returns the side of the grid of learned positions, or the maximum number of rows that an image needs of each axis' table. */
function sideOf(
  file: GgufFile,
  { positions }: TowerKind,
  scaling: Scaling,
  { patch, merged }: Pick<ImageSizes, "patch" | "merged">,
): number {
  if (!positions) return 0;
  if (positions !== "by axis") return Math.sqrt(file.tensors.get(POSITIONS)?.shape[1] ?? 0);
  const patches = "most" in scaling ? scaling.most / patch ** 2 : 0;
  return Math.floor(Math.sqrt(MOST_RATIO * patches) / merged) * merged;
}

function scalingOf({ metadata }: GgufFile, keys: Keys, kind: TowerKind, factor: number): Scaling {
  const longest = metadata.entries.has("clip.vision.preproc_image_size")
    ? keys.count("preproc_image_size", MOST.side)
    : undefined;
  return kind.scaling({ side: () => keys.count("image_size", MOST.side), longest }, factor);
}

/** Checks that a picture has whole tokens, an embedding for each patch, and not too many patches. */
function checkPatches(keys: Keys, shape: TowerShape): void {
  const { scaling, patch, merged, kind, side } = shape;
  const most = mostPatches(shape);
  if (most > MOST_PATCHES) {
    keys.refuse("vision.image_size", `must give at most ${MOST_PATCHES} patches (got ${most})`);
  }
  if (!("side" in scaling)) return;
  if (scaling.to === "tiles" && scaling.longest > MOST.tiles * scaling.side) {
    keys.refuse(
      "vision.preproc_image_size",
      `must be at most ${MOST.tiles * scaling.side} (got ${scaling.longest})`,
    );
  }
  const across = Math.floor(scaling.side / patch);
  if (across === 0 || across % merged !== 0) {
    keys.refuse(
      "vision.image_size",
      `must hold a multiple of ${merged} patches of ${patch} pixels (got ${scaling.side})`,
    );
  }
  if (kind.positions === "at points" && side !== across) {
    throw new GgufError("GGUF_HPARAM", `must have ${across ** 2} rows, one for each patch`, {
      field: `tensor ${quote(POSITIONS)}`,
    });
  }
}

/** Returns the maximum number of patches of a scaled picture. */
export function mostPatches({ scaling, patch, merged }: ImageSizes): number {
  switch (scaling.to) {
    case "pixels":
    case "fill":
      return scaling.most / patch ** 2;
    case "longest":
      return (Math.ceil(scaling.longest / (patch * merged)) * merged) ** 2;
    default:
      return Math.floor(scaling.side / patch) ** 2;
  }
}

/** Returns the minimum and maximum number of rows of an image. */
export function imageTokens(shape: ImageSizes): [least: number, most: number] {
  const { scaling, patch, merged } = shape;
  const each = mostPatches(shape) / merged ** 2;
  switch (scaling.to) {
    case "pixels":
      return [Math.ceil(scaling.least / (patch * merged) ** 2), each];
    case "fill":
      // An image that is just too flat for two rows of tokens gets one row with about half of the tokens.
      return [Math.ceil(each / 2) - 1, each];
    case "longest":
      return [1, each];
    case "tiles": {
      const across = Math.ceil(scaling.longest / scaling.side);
      return across === 1 ? [each, each] : [(across + 1) * each, (across ** 2 + 1) * each];
    }
    default:
      return [each, each];
  }
}

/** Returns the tensors of learned position embeddings: one of [width, side x side], or one of [width, side] per axis. Throws GgufError. */
export function positionTensors(file: GgufFile, { kind, width, side }: TowerShape): TensorInfo[] {
  if (!kind.positions) return [];
  if (kind.positions === "by axis") return axisTables(file, width, side);
  if (Number.isInteger(side) && side > 1 && side <= MOST.side) {
    return [requireFloats(file, POSITIONS, [width, side ** 2])];
  }
  throw new GgufError("GGUF_HPARAM", "must have a square number of rows, at least 4", {
    field: `tensor ${quote(POSITIONS)}`,
  });
}

/** Returns the first `side` rows of the tables for columns and for rows. */
function axisTables(file: GgufFile, width: number, side: number): TensorInfo[] {
  const rows = file.tensors.get(POSITIONS)?.shape[1] ?? 0;
  const both = requireFloats(file, POSITIONS, [width, rows, 2]);
  if (rows < side) {
    throw new GgufError("GGUF_HPARAM", `must have at least ${side} rows for each axis (got ${rows})`, {
      field: `tensor ${quote(POSITIONS)}`,
    });
  }
  const byteLength = 4 * width * side;
  return [0, 1].map((axis) => ({
    ...both,
    shape: [width, side],
    byteLength,
    offset: both.offset + axis * 4 * width * rows,
  }));
}
