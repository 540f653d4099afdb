import { brotliDecompressSync, gunzipSync, zstdDecompressSync } from "node:zlib";
import {
  type AsyncBuffer,
  type Compressors,
  type FileMetaData,
  parquetMetadataAsync,
  type ParquetParsers,
  parquetReadObjects,
  parquetSchema,
  type RowGroup,
  type SchemaElement,
  type SchemaTree,
} from "hyparquet";
import { BatchError, ioError } from "../jobs/errors.ts";
import { readFully, type StorageFile } from "../jobs/journal/storage.ts";
import type { Cell } from "./cells.ts";
import { checkDescription, readPages } from "./parquet_pages.ts";
import type { Row, Table } from "./table.ts";

/** Opens a Parquet file. Rows are read by row group, with only the wanted columns in memory. */
export async function openParquet(file: StorageFile, name: string): Promise<Table> {
  const from = await buffer(file, name);
  const metadata = await parquetMetadataAsync(from, { geoparquet: false }).catch((error) => {
    throw unreadable(name, error);
  });
  const tree = columnTrees(metadata, name);
  const columns = tree.map(({ element }) => element.name);
  return {
    columns,
    isParquet: true,
    async *rows(wanted = columns) {
      const kinds = wanted.map((column) => cellsOf(tree[columns.indexOf(column)]));
      const raw = withoutDecimals(metadata);
      const readGroup = async (group: RowGroup, rowStart: number, rowEnd: number) => {
        if (wanted.length === 0) return [];
        return await parquetReadObjects({
          file: await readPages(from, group, wanted),
          metadata: raw,
          columns: [...new Set(wanted)],
          rowStart,
          rowEnd,
          parsers: PARSERS,
          compressors: COMPRESSORS,
          utf8: false,
        });
      };
      const cellsOfRow = (row: Record<string, unknown> | undefined): Cell[] => {
        try {
          return wanted.map((column, c) => kinds[c](row?.[column]));
        } catch (error) {
          throw unreadable(name, error); // values have a different type than the metadata says
        }
      };
      let number = 0;
      for (const group of metadata.row_groups) {
        const [rowStart, rowEnd] = [number, number + Number(group.num_rows)];
        const found = await readGroup(group, rowStart, rowEnd).catch((error) => {
          throw unreadable(name, error);
        });
        for (let i = 0; i < rowEnd - rowStart; i++) {
          number += 1;
          yield { number, place: `Row ${number}`, cells: cellsOfRow(found[i]) } satisfies Row;
        }
      }
    },
  };
}

/** Returns the table's columns. Throws BatchError for duplicate names and for unsupported types. */
function columnTrees(metadata: FileMetaData, name: string): SchemaTree[] {
  try {
    const { children } = parquetSchema(metadata);
    const names = children.map(({ element }) => element.name);
    const twice = names.find((column, i) => names.indexOf(column) !== i);
    if (twice !== undefined) throw new Error(`two columns are called "${twice}"`);
    const isEncrypted = metadata.row_groups.some(({ columns }) => columns.some((chunk) => !chunk.meta_data));
    if (isEncrypted) throw new Error("some columns are encrypted");
    checkDescription(metadata);
    return children;
  } catch (error) {
    throw unreadable(name, error);
  }
}

/** Returns a reader of the file that reads sequentially and checks bounds. */
async function buffer(file: StorageFile, name: string): Promise<AsyncBuffer> {
  const byteLength = await file.size();
  let last: Promise<unknown> = Promise.resolve();
  const read = async (start: number, end: number) => {
    if (!(start >= 0 && start <= end && end <= byteLength)) {
      throw new Error(`it names bytes ${start} to ${end}, and has ${byteLength}`);
    }
    const bytes = new Uint8Array(end - start);
    const count = await readFully(file, bytes, start).catch((error) => {
      throw ioError(`read "${name}"`, error);
    });
    if (count < bytes.length) throw new Error("it ended while it was read");
    return bytes.buffer;
  };
  return {
    byteLength,
    slice: (start, end = byteLength) => {
      const slice = last.then(() => read(start < 0 ? byteLength + start : start, end));
      last = slice.catch(() => {});
      return slice;
    },
  };
}

const COMPRESSORS: Compressors = {
  GZIP: (bytes, length) => gunzipSync(bytes, atMost(length)),
  BROTLI: (bytes, length) => brotliDecompressSync(bytes, atMost(length)),
  ZSTD: (bytes, length) => zstdDecompressSync(bytes, atMost(length)),
};

function atMost(length: number) {
  return { maxOutputLength: Math.max(1, length) };
}

const utf8 = new TextDecoder();

/** Parsers that keep all digits of dates and times. */
const PARSERS: Partial<ParquetParsers> = {
  timestampFromMilliseconds: (value) => timestamp(value, 3),
  timestampFromMicroseconds: (value) => timestamp(value, 6),
  timestampFromNanoseconds: (value) => timestamp(value, 9),
  dateFromDays: (days) =>
    (days ?? null) === null ? null : isoTime(BigInt(days) * 86_400n, 0n, 0).slice(0, -10),
  jsonFromBytes: (bytes) => bytes && utf8.decode(bytes),
};

/** Returns a time in units of 10^-digits seconds as ISO 8601 text. */
function timestamp(value: bigint | undefined | null, digits: number): string | null {
  if (value === undefined || value === null) return null;
  const unit = 10n ** BigInt(digits);
  const part = ((value % unit) + unit) % unit;
  return isoTime((value - part) / unit, part, digits);
}

/** Returns a time as `2024-05-01T12:00:00.25Z`. A time outside JavaScript's dates stays a number of seconds. */
function isoTime(seconds: bigint, part: bigint, digits: number): string {
  const date = new Date(Number(seconds) * 1000);
  if (Number.isNaN(date.getTime())) return String(seconds);
  return `${date.toISOString().slice(0, -5)}${fraction(part, digits)}Z`;
}

function fraction(part: bigint, digits: number): string {
  return part === 0n ? "" : `.${String(part).padStart(digits, "0").replace(/0+$/, "")}`;
}

/**
 * Returns metadata that reads a column's decimals as their stored integers, because doubles would round them.
 */
function withoutDecimals(metadata: FileMetaData): FileMetaData {
  const top = new Set(parquetSchema(metadata).children.map(({ element }) => element));
  const schema = metadata.schema.map((element) =>
    top.has(element) && isDecimal(element)
      ? { ...element, converted_type: undefined, logical_type: undefined }
      : element
  );
  return { ...metadata, schema };
}

function isDecimal({ converted_type, logical_type }: SchemaElement): boolean {
  return converted_type === "DECIMAL" || logical_type?.type === "DECIMAL";
}

/** Returns the function that converts a column's values to cells. */
function cellsOf({ element, children }: SchemaTree): (value: unknown) => Cell {
  const isPlain = children.length === 0 && element.repetition_type !== "REPEATED";
  if (!isPlain) return cell;
  const kind = element.logical_type?.type;
  if (isDecimal(element)) return present((value) => decimal(value, element.scale ?? 0));
  if (element.type === "FLOAT") return present((value) => shortest(value as number));
  const isLocal = element.logical_type?.type === "TIMESTAMP" && !element.logical_type.isAdjustedToUTC;
  if (isLocal) return present((value) => String(value).replace(/Z$/, ""));
  if (kind === "TIME" || element.converted_type?.startsWith("TIME_")) {
    const unit = element.logical_type?.type === "TIME" ? element.logical_type.unit : undefined;
    const digits = unit === "NANOS"
      ? 9
      : unit === "MICROS" || element.converted_type === "TIME_MICROS"
      ? 6
      : 3;
    return present((value) => timestamp(BigInt(value as bigint), digits)!.slice(11, -1));
  }
  return cell;
}

function present(convert: (value: unknown) => Cell): (value: unknown) => Cell {
  return (value) => value === undefined || value === null ? null : convert(value);
}

function cell(value: unknown): Cell {
  return value === undefined ? null : value as Cell;
}

/** Returns a number with the fewest digits that identify its 32-bit float. */
function shortest(value: number): number {
  for (let digits = 6; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return short;
  }
  return value;
}

function decimal(value: unknown, scale: number): string {
  const whole = value instanceof Uint8Array ? bigEndian(value) : BigInt(value as bigint | number);
  if (scale <= 0) return String(whole * 10n ** BigInt(-scale));
  const digits = String(whole < 0n ? -whole : whole).padStart(scale + 1, "0");
  return `${whole < 0n ? "-" : ""}${digits.slice(0, -scale)}.${digits.slice(-scale)}`;
}

function bigEndian(bytes: Uint8Array): bigint {
  const value = bytes.reduce((sum, byte) => sum * 256n + BigInt(byte), 0n);
  return BigInt.asIntN(8 * bytes.length, value);
}

/** Returns the error for a damaged file, in place of the library's. */
function unreadable(name: string, cause: unknown): BatchError {
  if (cause instanceof BatchError) return cause;
  const why = cause instanceof Error ? cause.message.replace(/^parquet /, "") : String(cause);
  return new BatchError("input_unreadable", `Cannot read "${name}" as Parquet: ${why}`, false, { cause });
}
