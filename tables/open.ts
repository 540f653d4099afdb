import type { StorageFile } from "../jobs/journal/storage.ts";
import { openCsv } from "./csv.ts";
import type { TableFormat } from "./formats.ts";
import { openJsonRows } from "./json_rows.ts";
import type { Table } from "./table.ts";
import { openText } from "./text.ts";

/** Options for reading a file of rows. */
export interface ReadOptions {
  readonly format: TableFormat;
  /** Separator of the cells in a CSV file. */
  readonly separator?: string;
}

/** Opens a table and reads its column names. Throws BatchError for a file of another format. */
export async function openTable(
  file: StorageFile,
  name: string,
  { format, separator }: ReadOptions,
): Promise<Table> {
  if (format === "parquet") {
    // Imported on demand, because most jobs do not read Parquet.
    const { openParquet } = await import("./parquet.ts");
    return await openParquet(file, name);
  }
  if (format === "jsonl") return await openJsonRows(file, name);
  return format === "csv" ? await openCsv(file, name, separator) : openText(file);
}
