import { readFully, type StorageFile } from "../jobs/journal/storage.ts";
import type { Cell } from "./cells.ts";
import { ParquetParts, type WrittenColumn } from "./parquet_write.ts";
import { decodeStruct, encodeStruct, ThriftStruct } from "./thrift.ts";

/*
 * Adds columns to a Parquet file without decoding the existing ones. Their bytes are copied group by group, and the
 * metadata (FileMetaData in parquet.thrift) gets their new offsets. Existing columns thus keep their types, encodings
 * and compression.
 */

/** Field ids of the structs in parquet.thrift that change. */
const FILE = { schema: 2, rows: 3, rowGroups: 4, keyValues: 5, columnOrders: 7 };
const GROUP = { columns: 1, totalBytes: 2, rows: 3, fileOffset: 5, compressedBytes: 6 };
const CHUNK = { fileOffset: 2, metadata: 3, indexes: [4, 5, 6, 7] };
const COLUMN = { compressedBytes: 7, dataPage: 9, indexPage: 10, dictionaryPage: 11, bloomFilter: [14, 15] };
const ELEMENT_CHILDREN = 5;
const KEY = 1;
/** Key of Arrow's own schema in the metadata. It is dropped, because it would have to name the new columns too. */
const ARROW_SCHEMA = "ARROW:schema";

const COPY_BYTES = 1024 * 1024;
const END_BYTES = 8;

/**
 * Error of rows that were not run. The output copies whole row groups, so a row group may have answered rows and rows
 * that were not run.
 */
const NOT_ASKED = "Not run yet, because the run was limited to the first rows";

/**
 * Yields a copy of the file with more columns. `rows` yields their cells. If `rows` ends early, the copy ends
 * with the current row group, and the last new column, a text, says that the group's other rows were not run.
 */
export async function* renderParquetBeside(
  file: StorageFile,
  columns: readonly WrittenColumn[],
  rows: AsyncIterable<readonly Cell[]>,
): AsyncGenerator<Uint8Array> {
  const description = await readDescription(file);
  const groups = description.structs(FILE.rowGroups).filter((group) => group.integer(GROUP.rows) !== 0n);
  const parts = new ParquetParts(columns);
  const results = rows[Symbol.asyncIterator]();
  let used = 0;
  let rowCount = 0n;
  for (const group of groups) {
    const cells: (readonly Cell[])[] = [];
    while (cells.length < Number(group.integer(GROUP.rows))) {
      const { value, done } = await results.next();
      if (done) break;
      cells.push(value);
    }
    if (cells.length === 0) break;
    used += 1;
    rowCount += group.integer(GROUP.rows)!;
    const missing = columns.map((_, i) => i === columns.length - 1 ? NOT_ASKED : null);
    while (cells.length < Number(group.integer(GROUP.rows))) cells.push(missing);
    for (const chunk of group.structs(GROUP.columns)) {
      const { start, length } = extentOf(chunk);
      move(chunk, BigInt(parts.offset - start));
      for (let done = 0; done < length; done += COPY_BYTES) {
        yield parts.copied(await readExactly(file, start + done, Math.min(COPY_BYTES, length - done)));
      }
    }
    yield parts.group(cells);
  }
  // The last call lets the producer of the rows run to its end.
  await results.next();
  description.replaceItems(FILE.rowGroups, groups.slice(0, used));
  description.replace(FILE.rows, rowCount);
  graft(description, footerOf(parts.end()));
  yield footerBytes(description);
}

async function readDescription(file: StorageFile): Promise<ThriftStruct> {
  const size = await file.size();
  const length = new DataView((await readExactly(file, size - END_BYTES, END_BYTES)).buffer).getUint32(
    0,
    true,
  );
  return decodeStruct(await readExactly(file, size - END_BYTES - length, length));
}

async function readExactly(
  file: StorageFile,
  offset: number,
  length: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(length);
  if (offset < 0 || await readFully(file, bytes, offset) < length) {
    throw new Error("It ends before the position that its footer names");
  }
  return bytes;
}

/** Returns the byte range of a column's pages. */
function extentOf(chunk: ThriftStruct): { start: number; length: number } {
  const column = metadataOf(chunk);
  const pages = [COLUMN.dictionaryPage, COLUMN.indexPage, COLUMN.dataPage].map((id) => column.integer(id));
  const starts = pages.filter((start) => start !== undefined && start > 0n).map(Number);
  return { start: Math.min(...starts), length: Number(column.integer(COLUMN.compressedBytes)) };
}

function metadataOf(chunk: ThriftStruct): ThriftStruct {
  const metadata = chunk.struct(CHUNK.metadata);
  if (metadata === undefined) throw new Error("One of its columns is encrypted");
  return metadata;
}

/**
 * Moves a column's offsets by `by` bytes. Removes references to indexes and filters, which are not copied.
 */
function move(chunk: ThriftStruct, by: bigint): void {
  const column = metadataOf(chunk);
  for (const id of [COLUMN.dictionaryPage, COLUMN.indexPage, COLUMN.dataPage]) {
    const start = column.integer(id);
    if (start !== undefined && start > 0n) column.replace(id, start + by);
  }
  chunk.replace(CHUNK.fileOffset, 0n);
  for (const id of CHUNK.indexes) chunk.remove(id);
  for (const id of COLUMN.bloomFilter) column.remove(id);
}

/** Adds the columns of `more`, which must have the same row groups. */
function graft(description: ThriftStruct, more: ThriftStruct): void {
  const [root, ...elements] = description.structs(FILE.schema);
  const [otherRoot, ...added] = more.structs(FILE.schema);
  root.replace(ELEMENT_CHILDREN, root.integer(ELEMENT_CHILDREN)! + otherRoot.integer(ELEMENT_CHILDREN)!);
  description.replaceItems(FILE.schema, [root, ...elements, ...added]);

  const others = more.structs(FILE.rowGroups);
  for (const [i, group] of description.structs(FILE.rowGroups).entries()) {
    group.replaceItems(GROUP.columns, [...group.structs(GROUP.columns), ...others[i].structs(GROUP.columns)]);
    for (const id of [GROUP.totalBytes, GROUP.compressedBytes]) {
      group.replace(id, (group.integer(id) ?? 0n) + (others[i].integer(id) ?? 0n));
    }
    group.remove(GROUP.fileOffset);
  }
  const orders = description.structs(FILE.columnOrders);
  description.replaceItems(
    FILE.columnOrders,
    orders.length === 0 ? [] : [...orders, ...more.structs(FILE.columnOrders)],
  );
  const decoder = new TextDecoder();
  const isKept = (pair: ThriftStruct) => decoder.decode(pair.get(KEY) as Uint8Array) !== ARROW_SCHEMA;
  description.replaceItems(FILE.keyValues, description.structs(FILE.keyValues).filter(isKept));
}

/** Returns the metadata at the end of a file. */
function footerOf(file: Uint8Array): ThriftStruct {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const end = file.length - END_BYTES;
  return decodeStruct(file.subarray(end - view.getUint32(end, true), end));
}

function footerBytes(description: ThriftStruct): Uint8Array {
  const encoded = encodeStruct(description);
  const bytes = new Uint8Array(encoded.length + END_BYTES);
  bytes.set(encoded);
  new DataView(bytes.buffer).setUint32(encoded.length, encoded.length, true);
  bytes.set(new TextEncoder().encode("PAR1"), encoded.length + 4);
  return bytes;
}
