import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import { quote } from "../../engine/gguf/errors.ts";
import { byteLengthOf } from "../../engine/gguf/tensor_types.ts";
import type { BlockType, FloatType, SafeTensor } from "../checkpoint/tensors.ts";
import { refuse } from "../errors.ts";

/** Approximate bytes of the rows that are computed together. */
const TILE_BYTES = 16 * 1024 * 1024;
/** Number of computed tiles to keep. Reordered rows of a head alternate between a few tiles. */
const TILES = 3;

/** Computes the rows from `start` on. `out` has space for whole rows. */
export type FillRows<Values> = (start: number, out: Values) => void;

/** Describes a matrix that is computed from the tensors of a checkpoint. */
export interface Computed {
  readonly name: string;
  /** File named in messages. */
  readonly file: string;
  readonly shape: readonly number[];
  /** Format in the checkpoint, for the report. */
  readonly format: string;
  readonly tileBytes?: number;
}

/** A tile of computed rows. */
interface Tile {
  readonly of: object;
  readonly index: number;
  readonly bytes: Uint8Array;
}
/** The kept tiles of each checkpoint, the newest last. */
const tiles = new WeakMap<Checkpoint, Tile[]>();

/** Returns a float tensor whose values `fill` computes. All values must be exact in the given type. */
export function computedFloats(
  checkpoint: Checkpoint,
  about: Computed,
  dtype: FloatType,
  fill: FillRows<Float32Array>,
): SafeTensor {
  const columns = about.shape.at(-1)!;
  const rowBytes = columns * (dtype === "F32" ? 4 : 2);
  return computed(checkpoint, about, dtype, rowBytes, (start, out) => {
    const values = new Float32Array(out.length / rowBytes * columns);
    fill(start, values);
    out.set(storedAs(dtype, values));
  });
}

/** Returns a tensor of GGUF blocks that `fill` writes. */
export function computedBlocks(
  checkpoint: Checkpoint,
  about: Computed,
  kind: BlockType,
  fill: FillRows<Uint8Array>,
): SafeTensor {
  return computed(checkpoint, about, "U8", byteLengthOf(kind, about.shape.at(-1)!), fill);
}

function computed(
  checkpoint: Checkpoint,
  { name, file, shape, format, tileBytes = TILE_BYTES }: Computed,
  dtype: SafeTensor["dtype"],
  rowBytes: number,
  fill: FillRows<Uint8Array>,
): SafeTensor {
  if (!(rowBytes > 0)) refuse(file, `tensor ${quote(name)}`, "must have at least one column (got none)");
  const rows = shape.slice(0, -1).reduce((product, size) => product * size, 1);
  const byteLength = rows * rowBytes;
  const each = rowBytes * Math.max(1, Math.floor(tileBytes / rowBytes));
  const tensor: SafeTensor = { name, file, shape, format, dtype, byteLength, offset: 0, compute };
  function tile(index: number): Uint8Array {
    const kept = tiles.get(checkpoint) ?? [];
    tiles.set(checkpoint, kept);
    const known = kept.findIndex((tile) => tile.of === tensor && tile.index === index);
    if (known >= 0) return kept[known].bytes;
    const bytes = new Uint8Array(Math.min(each, byteLength - index * each));
    fill(index * each / rowBytes, bytes);
    kept.push({ of: tensor, index, bytes });
    if (kept.length > TILES) kept.shift();
    return bytes;
  }
  function compute(offset: number, into: Uint8Array): void {
    for (let done = 0; done < into.length;) {
      const at = offset + done;
      const part = tile(Math.floor(at / each)).subarray(at % each, at % each + into.length - done);
      into.set(part, done);
      done += part.length;
    }
  }
  return tensor;
}

/** Returns the values' little-endian bytes. For BF16, the values must be exact in it: the lower 16 bits are dropped. */
function storedAs(dtype: FloatType, values: Float32Array): Uint8Array {
  if (dtype === "F32") return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  if (dtype === "F16") return new Uint8Array(new Float16Array(values).buffer);
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  return new Uint8Array(Uint16Array.from(words, (word) => word >>> 16).buffer);
}
