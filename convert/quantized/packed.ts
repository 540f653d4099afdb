import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import type { ExactBlocks, SafeTensor } from "../checkpoint/tensors.ts";
import { putHalf } from "../quantize/quantizers.ts";
import { computedBlocks, computedFloats } from "./computed.ts";
import { checkScales, fitHalf, refuseTensor } from "./numbers.ts";

/**
 * A matrix of unsigned codes. A value is (code - zero point) x scale. Columns of a group share zero point and scale.
 */
export interface Packed {
  readonly name: string;
  readonly file: string;
  /** Format in the checkpoint, for the report. */
  readonly format: string;
  readonly rows: number;
  readonly columns: number;
  readonly bits: 4 | 8;
  readonly groups: number;
  /** Columns per group; undefined if `groupsOf` lists each column's group (act-order). */
  readonly group?: number;
  readonly groupsOf?: () => Int32Array;
  readonly scaleTensor: SafeTensor;
  /** Returns codes [count, columns] of the rows from `start` on. */
  codes(start: number, count: number): Uint8Array;
  /** Returns scales [count, groups]. */
  scales(start: number, count: number): Float32Array;
  /** Returns zero points [count, groups]; undefined if each is the middle of the codes. */
  zeros?(start: number, count: number): Int32Array;
}

/** Number of scales to check at a time. */
const CHUNK = 1 << 18;
const BLOCK = 32;

/** Returns an F32 tensor with the values. It also has Q4_0 or Q8_0 blocks if these hold the same values. */
export function packedFloats(checkpoint: Checkpoint, packed: Packed): SafeTensor {
  const { name, file, format, rows, columns, bits, groups } = packed;
  const about = { name, file, format, shape: [rows, columns] };
  const middle = 1 << bits - 1;
  const floats = computedFloats(checkpoint, about, "F32", (start, out) => {
    const count = out.length / columns;
    const codes = packed.codes(start, count);
    const scales = packed.scales(start, count);
    const zeros = packed.zeros?.(start, count);
    const ofColumn = packed.groupsOf?.() ??
      Int32Array.from({ length: columns }, (_, i) => Math.floor(i / packed.group!));
    checkScales(packed.scaleTensor, scales.map(Math.abs));
    for (let row = 0, at = 0; row < count; row++) {
      for (let column = 0; column < columns; column++, at++) {
        const of = row * groups + ofColumn[column];
        out[at] = (codes[at] - (zeros ? zeros[of] : middle)) * scales[of];
      }
    }
    if (!out.every(Number.isFinite)) {
      refuseTensor(packed.scaleTensor, "its products with the codes are not finite");
    }
  });
  return { ...floats, blocks: isExact(packed) ? asBlocks(checkpoint, packed) : undefined };
}

/**
 * Returns whether Q4_0 or Q8_0 holds all values: each block has one f16 scale, and its zero point is the middle code.
 */
function isExact({ rows, columns, bits, group, groups, scales, zeros }: Packed): boolean {
  if (columns % BLOCK !== 0 || group === undefined || (groups > 1 && group % BLOCK !== 0)) return false;
  const each = Math.max(1, Math.floor(CHUNK / groups));
  for (let start = 0; start < rows; start += each) {
    const count = Math.min(each, rows - start);
    if (!fitHalf(scales(start, count))) return false;
    if (zeros?.(start, count).some((zero) => zero !== 1 << bits - 1)) return false;
  }
  return true;
}

function asBlocks(checkpoint: Checkpoint, packed: Packed): ExactBlocks {
  const { name, file, format, rows, columns, bits, groups } = packed;
  const kind = bits === 4 ? "Q4_0" : "Q8_0";
  const size = bits === 4 ? 18 : 34;
  const weight = computedBlocks(
    checkpoint,
    { name, file, format, shape: [rows, columns] },
    kind,
    (start, out) => {
      const blocks = out.length / size;
      const count = blocks * BLOCK / columns;
      const codes = packed.codes(start, count);
      const scales = packed.scales(start, count);
      for (let block = 0; block < blocks; block++) {
        const [at, to] = [block * BLOCK, block * size];
        const of = Math.floor(at / columns) * groups + Math.floor(at % columns / packed.group!);
        putHalf(scales[of], out, to);
        if (bits === 8) { for (let i = 0; i < BLOCK; i++) out[to + 2 + i] = codes[at + i] - 128; }
        else for (let i = 0; i < 16; i++) out[to + 2 + i] = codes[at + i] | codes[at + i + 16] << 4;
      }
    },
  );
  return { kind, weight };
}
