/** Readers of packed integers in the formats of compressed-tensors (pack-quantized), GPTQ and AWQ. */
import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import type { Fields } from "../checkpoint/json.ts";
import type { SafeTensor } from "../checkpoint/tensors.ts";
import { inWords } from "../checkpoint/json.ts";
import { checkScaleType, readNumbers, refuseTensor, sizeOf, toNumbers, wrongShape } from "./numbers.ts";
import type { Packed } from "./packed.ts";

/** Maximum rows and columns of a matrix: twice the size of the largest vocabulary. */
const MAX_SIDE = 1 << 21;
/** Bytes of a tensor's lines to read at a time. */
const READ_BYTES = 4 * 1024 * 1024;

/** Finds the tensors of a module by suffix, such as `qweight`. */
export type Parts = (suffix: string) => SafeTensor | undefined;

/** Reads compressed-tensors' integers. A word holds the codes of adjacent columns, from its low bits on. */
export function packQuantized(
  checkpoint: Checkpoint,
  packed: SafeTensor,
  parts: Parts,
  name: string,
): Packed {
  const [rows, words] = matrixShape(packed, "I32");
  const columns = shapeIn(checkpoint, required(parts("weight_shape"), packed, "weight_shape"), rows);
  const scaleTensor = required(parts("weight_scale"), packed, "weight_scale");
  const [, groups] = scaleShape(scaleTensor, [rows, undefined]);
  const bits = bitsOf(packed, words * 32 / columns);
  const zeroTensor = parts("weight_zero_point");
  if (zeroTensor) exactShape(zeroTensor, "I32", [Math.ceil(rows * bits / 32), groups]);
  const order = parts("weight_g_idx");
  return {
    name,
    file: packed.file,
    format: `compressed-tensors int${bits}`,
    rows,
    columns,
    bits,
    groups,
    ...groupsOf(checkpoint, packed, order, columns, groups, true),
    scaleTensor,
    codes: (start, count) => unpack(read(checkpoint, packed, start * words * 4, count * words * 4), bits),
    scales: (start, count) => readNumbers(checkpoint, scaleTensor, start * groups, count * groups),
    zeros: zeroTensor && ((start, count) => {
      const per = 32 / bits;
      const first = Math.floor(start / per);
      const lines = Math.floor((start + count - 1) / per) - first + 1;
      const found = wordsOf(read(checkpoint, zeroTensor, first * groups * 4, lines * groups * 4));
      return Int32Array.from({ length: count * groups }, (_, i) => {
        const row = start + Math.floor(i / groups);
        return codeIn(found[(Math.floor(row / per) - first) * groups + i % groups], row % per, bits);
      });
    }),
  };
}

/** Reads GPTQ's tensors. A word holds the codes of adjacent columns of one row. A line holds a word for each row. */
export function gptq(
  checkpoint: Checkpoint,
  qweight: SafeTensor,
  parts: Parts,
  name: string,
  settings: Fields,
): Packed {
  const format = settings.string("checkpoint_format", "gptq");
  if (format !== "gptq" && format !== "gptq_v2") {
    settings.refuse("checkpoint_format", inWords(format), `"gptq" or "gptq_v2"`);
  }
  settings.mustBe("is_marlin_format", false, "Marlin's order of weights is not read");
  const bits = readBits(settings, [4, 8]);
  const [lines, rows] = matrixShape(qweight, "I32");
  const columns = lines * 32 / bits;
  const { scaleTensor, groups, zeroTensor } = linesOfGroups(qweight, parts, rows, bits);
  return {
    name,
    file: qweight.file,
    format: `GPTQ ${bits} bits`,
    rows,
    columns,
    bits,
    groups,
    ...groupsOf(checkpoint, qweight, parts("g_idx"), columns, groups),
    scaleTensor,
    codes(start, count) {
      const words = wordsOf(readLines(checkpoint, qweight, [lines, rows * 4], start * 4, count * 4));
      const codes = new Uint8Array(count * columns);
      const per = 32 / bits;
      for (let line = 0, at = 0; line < lines; line++) {
        for (let row = 0; row < count; row++, at++) {
          for (let i = 0; i < per; i++) codes[row * columns + line * per + i] = codeIn(words[at], i, bits);
        }
      }
      return codes;
    },
    scales: (start, count) => turnedScales(checkpoint, scaleTensor, groups, rows, start, count),
    zeros(start, count) {
      const zeros = turnedCodes(checkpoint, zeroTensor, [groups, rows], bits, start, count, (i) => i);
      if (format === "gptq_v2") return Int32Array.from(zeros);
      // Programs disagree on the largest stored zero point: some add 1, others wrap it to 0.
      const most = (1 << bits) - 1;
      if (zeros.includes(most)) {
        refuseTensor(
          zeroTensor,
          `must have zero points below ${most}, because programs read ${most} differently`,
        );
      }
      return Int32Array.from(zeros, (zero) => zero + 1);
    },
  };
}

/** Positions in a word of the codes of eight adjacent rows, in AWQ's version "gemm". */
const AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7];

/** Reads AutoAWQ's tensors. A word holds the codes of eight adjacent rows of one column. */
export function awq(
  checkpoint: Checkpoint,
  qweight: SafeTensor,
  parts: Parts,
  name: string,
  settings: Fields,
): Packed {
  const version = settings.string("version", "gemm");
  if (version.toLowerCase() !== "gemm") {
    settings.refuse("version", inWords(version), `"gemm", because other versions order codes in another way`);
  }
  const bits = readBits(settings, [4]);
  const [columns, words] = matrixShape(qweight, "I32");
  const rows = words * 8;
  const { scaleTensor, groups, zeroTensor } = linesOfGroups(qweight, parts, rows, bits);
  const place = (i: number) => AWQ_PLACES[i];
  return {
    name,
    file: qweight.file,
    format: "AWQ 4 bits",
    rows,
    columns,
    bits,
    groups,
    ...groupsOf(checkpoint, qweight, undefined, columns, groups),
    scaleTensor,
    codes: (start, count) => turnedCodes(checkpoint, qweight, [columns, rows], bits, start, count, place),
    scales: (start, count) => turnedScales(checkpoint, scaleTensor, groups, rows, start, count),
    zeros: (start, count) =>
      Int32Array.from(turnedCodes(checkpoint, zeroTensor, [groups, rows], bits, start, count, place)),
  };
}

/** Returns the tensors of scales [groups, rows] and zero points [groups, rows x bits / 32]. */
function linesOfGroups(qweight: SafeTensor, parts: Parts, rows: number, bits: number) {
  const scaleTensor = required(parts("scales"), qweight, "scales");
  const [groups] = scaleShape(scaleTensor, [undefined, rows]);
  const zeroTensor = required(parts("qzeros"), qweight, "qzeros");
  exactShape(zeroTensor, "I32", [groups, rows * bits / 32]);
  return { scaleTensor, groups, zeroTensor };
}

function readBits(settings: Fields, allowed: readonly (4 | 8)[]): 4 | 8 {
  const bits = settings.count("bits", 32);
  return allowed.find((one) => one === bits) ?? settings.refuse("bits", String(bits), allowed.join(" or "));
}

function bitsOf(packed: SafeTensor, bits: number): 4 | 8 {
  if (bits === 4 || bits === 8) return bits;
  return refuseTensor(
    packed,
    `must have 4 or 8 bits per column, and rows of whole words (got ${bits} bits per column)`,
  );
}

function required(part: SafeTensor | undefined, { file, name }: SafeTensor, suffix: string): SafeTensor {
  return part ?? refuseTensor({ file, name } as SafeTensor, `needs a tensor "${suffix}" beside it`);
}

function matrixShape(tensor: SafeTensor, dtype: SafeTensor["dtype"]): readonly number[] {
  const { shape } = tensor;
  if (tensor.dtype !== dtype) refuseTensor(tensor, `must have dtype ${dtype} (got ${tensor.dtype})`);
  const fits = shape.length === 2 && shape.every((size) => size > 0 && size <= MAX_SIDE);
  return fits ? shape : wrongShape(tensor, `rows x columns, each from 1 to ${MAX_SIDE}`);
}

function exactShape(tensor: SafeTensor, dtype: SafeTensor["dtype"], shape: readonly number[]): void {
  if (tensor.dtype !== dtype) refuseTensor(tensor, `must have dtype ${dtype} (got ${tensor.dtype})`);
  if (String(tensor.shape) !== String(shape)) wrongShape(tensor, shape.join(" x "));
}

function scaleShape(scales: SafeTensor, allowed: readonly (number | undefined)[]): readonly number[] {
  checkScaleType(scales);
  const { shape } = scales;
  const fits = shape.length === 2 &&
    shape.every((size, i) => size > 0 && size <= MAX_SIDE && size === (allowed[i] ?? size));
  return fits ? shape : wrongShape(scales, allowed.map((size) => size ?? "groups").join(" x "));
}

/** Returns the number of columns from a tensor that holds the matrix's unpacked shape. */
function shapeIn(checkpoint: Checkpoint, tensor: SafeTensor, rows: number): number {
  if (tensor.dtype !== "I64" && tensor.dtype !== "I32") refuseTensor(tensor, "must have dtype I64 or I32");
  exactShape(tensor, tensor.dtype, [2]);
  const bytes = read(checkpoint, tensor, 0, tensor.byteLength);
  const [height, width] = tensor.dtype === "I32"
    ? new Int32Array(bytes.buffer)
    : Array.from(new BigInt64Array(bytes.buffer), Number);
  const fits = height === rows && Number.isInteger(width) && width > 0 && width <= MAX_SIDE;
  return fits ? width : refuseTensor(
    tensor,
    `must hold ${rows} rows and at most ${MAX_SIDE} columns (got ${height} x ${width})`,
  );
}

/**
 * Returns how columns form groups. `order` holds each column's group, which means act-order unless each group's columns
 * are adjacent.
 */
function groupsOf(
  checkpoint: Checkpoint,
  weight: SafeTensor,
  order: SafeTensor | undefined,
  columns: number,
  groups: number,
  mayBeUnset = false,
): Pick<Packed, "group" | "groupsOf"> {
  const group = columns / groups;
  if (!order) {
    if (Number.isInteger(group)) return { group };
    refuseTensor(
      weight,
      `must have columns that divide into groups (got ${columns} columns and ${groups} groups)`,
    );
  }
  exactShape(order, "I32", [columns]);
  const readOrder = () => new Int32Array(read(checkpoint, order, 0, 4 * columns).buffer);
  const found = readOrder();
  // compressed-tensors writes -1 for "no order".
  if (mayBeUnset && found.every((of) => of === -1) && Number.isInteger(group)) return { group };
  const wrong = found.find((of) => of < 0 || of >= groups);
  if (wrong !== undefined) refuseTensor(order, `must have groups from 0 to ${groups - 1} (got ${wrong})`);
  const second = found.findIndex((of) => of !== 0);
  const size = second < 0 ? columns : second;
  const isAdjacent = found.every((of, i) => of === Math.floor(i / size));
  return isAdjacent ? { group: size } : { groupsOf: readOrder };
}

function read(
  checkpoint: Checkpoint,
  tensor: SafeTensor,
  offset: number,
  length: number,
): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  checkpoint.read(tensor, offset, bytes);
  return bytes;
}

const wordsOf = (bytes: Uint8Array<ArrayBuffer>) => new Uint32Array(bytes.buffer);
const codeIn = (word: number, place: number, bits: number) => word >>> place * bits & (1 << bits) - 1;

/** Returns the codes that the words hold, from the low bits on. */
function unpack(bytes: Uint8Array, bits: 4 | 8): Uint8Array {
  if (bits === 8) return bytes;
  const codes = new Uint8Array(2 * bytes.length);
  for (let i = 0; i < bytes.length; i++) {
    codes[2 * i] = bytes[i] & 15;
    codes[2 * i + 1] = bytes[i] >> 4;
  }
  return codes;
}

/** Returns bytes `from` to `from + length` of each line, concatenated. Reads several lines at a time. */
function readLines(
  checkpoint: Checkpoint,
  tensor: SafeTensor,
  [lines, lineBytes]: readonly [number, number],
  from: number,
  length: number,
): Uint8Array<ArrayBuffer> {
  if (length === lineBytes) return read(checkpoint, tensor, 0, lines * lineBytes);
  const out = new Uint8Array(lines * length);
  const most = Math.max(1, Math.floor(READ_BYTES / lineBytes));
  for (let line = 0; line < lines; line += most) {
    const count = Math.min(most, lines - line);
    const bytes = read(checkpoint, tensor, line * lineBytes, count * lineBytes);
    for (let i = 0; i < count; i++) {
      out.set(bytes.subarray(i * lineBytes + from, i * lineBytes + from + length), (line + i) * length);
    }
  }
  return out;
}

/**
 * Returns codes [count, lines] of the `count` rows from `start` on. The tensor is [lines, rows], and a word holds the
 * codes of adjacent rows.
 */
function turnedCodes(
  checkpoint: Checkpoint,
  tensor: SafeTensor,
  [lines, rows]: readonly [number, number],
  bits: number,
  start: number,
  count: number,
  place: (row: number) => number,
): Uint8Array {
  const per = 32 / bits;
  const first = Math.floor(start / per);
  const width = Math.floor((start + count - 1) / per) - first + 1;
  const words = wordsOf(readLines(checkpoint, tensor, [lines, rows / per * 4], first * 4, width * 4));
  const codes = new Uint8Array(count * lines);
  for (let row = 0; row < count; row++) {
    const [word, at] = [Math.floor((start + row) / per) - first, place((start + row) % per)];
    for (let line = 0; line < lines; line++) {
      codes[row * lines + line] = codeIn(words[line * width + word], at, bits);
    }
  }
  return codes;
}

/** Returns scales [count, groups] of the `count` rows from `start` on. The tensor is [groups, rows]. */
function turnedScales(
  checkpoint: Checkpoint,
  tensor: SafeTensor,
  groups: number,
  rows: number,
  start: number,
  count: number,
): Float32Array {
  const size = sizeOf(tensor);
  const found = toNumbers(
    tensor,
    readLines(checkpoint, tensor, [groups, rows * size], start * size, count * size),
  );
  return Float32Array.from(
    { length: found.length },
    (_, i) => found[i % groups * count + Math.floor(i / groups)],
  );
}
