import type { StorageFile } from "../jobs/storage.ts";
import type { AnswerKind } from "./answers.ts";
import { openCsv } from "./csv.ts";
import type { Cell } from "./cells.ts";
import type { TableFormat } from "./formats.ts";
import { openJsonRows } from "./json_rows.ts";
import { openText } from "./text.ts";

/** A row is to become a line of a job, which may have as many bytes. */
export const MAX_ROW_BYTES = 16 * 1024 * 1024;

/** A file of rows, open. */
export interface Table {
  readonly columns: readonly string[];
  /** What each column holds; by default all are texts. */
  readonly kinds?: readonly AnswerKind[];
  /** Whether its columns have types of their own, and can be copied with them. */
  readonly isParquet?: boolean;
  /** The rows, from the first, with the cells of `columns`, in that order; by default of all. */
  rows(columns?: readonly string[]): AsyncGenerator<Row>;
}

export interface Row {
  /** Where it is in its file, as an editor or a reader of tables counts: lines of a text from 1, else rows from 1. */
  readonly number: number;
  /** What messages call it. */
  readonly place: string;
  /** All missing in a row that is broken. */
  readonly cells: readonly Cell[];
  /** What is wrong with it, where it cannot be read. */
  readonly fault?: string;
}

/** How a file of rows is to be read. */
export interface ReadOptions {
  readonly format: TableFormat;
  /** Between the cells of a CSV file. */
  readonly separator?: string;
}

/** Reads what the rows are called. Throws BatchError for a file that is not such a table. */
export async function openTable(
  file: StorageFile,
  name: string,
  { format, separator }: ReadOptions,
): Promise<Table> {
  if (format === "parquet") {
    // A reader that most jobs do without.
    const { openParquet } = await import("./parquet.ts");
    return await openParquet(file, name);
  }
  if (format === "jsonl") return await openJsonRows(file, name);
  return format === "csv" ? await openCsv(file, name, separator) : openText(file);
}
