import type { StorageFile } from "../jobs/journal/storage.ts";
import { type Cell, cellJson } from "./cells.ts";
import { csvLine } from "./csv.ts";
import type { WriteOptions } from "./formats.ts";
import type { Result, ResultColumn } from "./results.ts";
import type { Table } from "./table.ts";

const CHUNK_CHARACTERS = 64 * 1024;

/** Yields a file with the columns of the table, open in `file`, and the result columns beside them. */
export async function* renderRows(
  file: StorageFile,
  table: Table,
  columns: readonly ResultColumn[],
  results: AsyncIterable<Result>,
  { format, separator = ",", mark }: WriteOptions & { mark: boolean },
): AsyncGenerator<Uint8Array> {
  if (format === "parquet") {
    yield* renderAsParquet(file, table, columns, results);
    return;
  }
  const names = [...table.columns, ...columns.map(({ name }) => name)];
  const line = format === "csv"
    ? (cells: readonly Cell[]) => csvLine(cells, separator)
    : (cells: readonly Cell[]) => jsonLine(names, cells);
  const encoder = new TextEncoder();
  let text = format === "csv" ? `${mark ? "\ufeff" : ""}${csvLine(names, separator)}` : "";
  for await (const cells of rowsWithResults(table, results)) {
    text += line(cells);
    if (text.length < CHUNK_CHARACTERS) continue;
    yield encoder.encode(text);
    text = "";
  }
  yield encoder.encode(text);
}

async function* renderAsParquet(
  file: StorageFile,
  table: Table,
  columns: readonly ResultColumn[],
  results: AsyncIterable<Result>,
): AsyncGenerator<Uint8Array> {
  if (table.isParquet) {
    const { renderParquetBeside } = await import("./parquet_beside.ts");
    yield* renderParquetBeside(file, columns, results);
    return;
  }
  const { renderParquet } = await import("./parquet_write.ts");
  const own = table.columns.map((name, i) => ({ name, kind: table.kinds?.[i] ?? "text" }));
  yield* renderParquet([...own, ...columns], rowsWithResults(table, results));
}

/** Yields the cells of each row, then those of its result. */
async function* rowsWithResults(table: Table, results: AsyncIterable<Result>): AsyncGenerator<Cell[]> {
  const rows = table.rows();
  for await (const result of results) {
    const { value, done } = await rows.next();
    // The input has fewer rows than before, so it has changed; the end of the output reports this.
    yield [...(done ? table.columns.map(() => null) : value.cells), ...result];
  }
}

function jsonLine(names: readonly string[], cells: readonly Cell[]): string {
  return `${cellJson(Object.fromEntries(names.map((name, i) => [name, cells[i]])))}\n`;
}
