import type { AsyncBuffer, ColumnChunk, FileMetaData, RowGroup } from "hyparquet";
import { decodeStructAt, type ThriftStruct } from "./thrift.ts";

/*
 * Checks a Parquet file's page headers before they are read. The reader trusts them, so a page that claims
 * two thousand million values would take gigabytes or hours.
 */

const MAX_PAGE_BYTES = 2 ** 30;
/** Maximum lines of a job. Larger tables are refused before their rows are counted. */
const MAX_ROWS = 10_000_000;
/** Maximum list values of a row group, because a few bytes can claim thousands of millions. */
const MAX_VALUES = 50_000_000;
/** Maximum scale of decimals. The widest decimals in use have 76 digits. */
const MAX_SCALE = 1000;

/** Field ids of PageHeader in parquet.thrift. */
const PAGE = { bytes: 2, storedBytes: 3, data: 5, dictionary: 7, dataV2: 8 };
const VALUES = 1;
const V2 = { nulls: 2, definitionBytes: 5, repetitionBytes: 6 };

/** Throws Error if the metadata is implausible. */
export function checkDescription({ row_groups, schema }: FileMetaData): void {
  const leaves = schema.filter(({ type }) => type !== undefined).length;
  for (const { name, scale = 0 } of schema) {
    if (Math.abs(scale) <= MAX_SCALE) continue;
    throw new Error(`column "${name}" claims decimals with a scale of ${scale}`);
  }
  let rows = 0n;
  for (const { columns, num_rows } of row_groups) {
    rows += num_rows;
    if (num_rows < 0n || rows > MAX_ROWS) throw new Error(`it must have at most ${MAX_ROWS} rows; split it`);
    if (columns.length !== leaves) throw new Error("a row group lacks some columns");
    for (const { meta_data } of columns) {
      const { path_in_schema: path, num_values } = meta_data!;
      if (num_values >= 0n && (path.length > 1 || num_values === num_rows)) continue;
      throw new Error(`column "${path.join(".")}" has ${num_values} values for ${num_rows} rows`);
    }
  }
}

/**
 * Returns a buffer with the checked pages of the wanted columns. All other bytes read as zeros. Throws Error.
 */
export async function readPages(
  file: AsyncBuffer,
  { columns }: RowGroup,
  wanted: readonly string[],
): Promise<AsyncBuffer> {
  const read: { start: number; bytes: Uint8Array }[] = [];
  for (const chunk of columns) {
    const { path_in_schema, dictionary_page_offset, data_page_offset, total_compressed_size } = chunk
      .meta_data!;
    if (!wanted.includes(path_in_schema[0])) continue;
    const start = Number(dictionary_page_offset || data_page_offset);
    const bytes = new Uint8Array(await file.slice(start, start + Number(total_compressed_size)));
    checkPages(bytes, chunk);
    read.push({ start, bytes });
  }
  return {
    byteLength: file.byteLength,
    slice: (from, to = file.byteLength) => {
      const slice = new Uint8Array(to - from);
      for (const { start, bytes } of read) {
        const [first, last] = [Math.max(from, start), Math.min(to, start + bytes.length)];
        if (first < last) slice.set(bytes.subarray(first - start, last - start), first - from);
      }
      return slice.buffer;
    },
  };
}

/** Throws Error if a column's pages, which are all of `bytes`, contradict their headers. */
function checkPages(bytes: Uint8Array, { meta_data }: ColumnChunk): void {
  const { num_values, path_in_schema } = meta_data!;
  const wrong = (what: string) => new Error(`column "${path_in_schema.join(".")}" is damaged: ${what}`);
  if (num_values > MAX_VALUES) {
    throw new Error(
      `column "${
        path_in_schema.join(".")
      }" must have at most ${MAX_VALUES} values in a row group (got ${num_values}); write ` +
        "the file with smaller row groups",
    );
  }
  let values = 0n;
  for (let at = 0; at < bytes.length - 1;) {
    const { struct: header, end } = decodeStructAt(bytes, at);
    const stored = header.integer(PAGE.storedBytes) ?? -1n;
    const size = header.integer(PAGE.bytes) ?? -1n;
    if (stored < 0n || stored > BigInt(bytes.length - end)) {
      throw wrong(`a page claims to have ${stored} bytes`);
    }
    if (size < 0n || size > MAX_PAGE_BYTES) {
      throw wrong(`a page claims to have ${size} bytes without compression`);
    }
    const dictionary = header.struct(PAGE.dictionary);
    const page = header.struct(PAGE.data) ?? header.struct(PAGE.dataV2);
    const count = (dictionary ?? page)?.integer(VALUES) ?? 0n;
    // A dictionary may have values that only other row groups use. Each occupies at least a byte.
    const most = dictionary ? size : num_values;
    if (count < 0n || count > most) throw wrong(`a page claims to have ${count} of ${num_values} values`);
    if (header.struct(PAGE.dataV2) && !isLevelled(header.struct(PAGE.dataV2)!, count, stored)) {
      throw wrong("a page's levels differ from its header");
    }
    if (page !== undefined) values += count;
    at = end + Number(stored);
  }
  if (values !== num_values) throw wrong(`its pages have ${values} of ${num_values} values`);
}

function isLevelled(page: ThriftStruct, values: bigint, stored: bigint): boolean {
  const nulls = page.integer(V2.nulls) ?? 0n;
  const [definition, repetition] = [V2.definitionBytes, V2.repetitionBytes].map((id) =>
    page.integer(id) ?? 0n
  );
  return nulls >= 0n && nulls <= values && definition >= 0n && repetition >= 0n &&
    definition + repetition <= stored;
}
