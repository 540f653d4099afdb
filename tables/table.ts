import type { AnswerKind } from "./answers.ts";
import type { Cell } from "./cells.ts";

/** Maximum bytes of a row, which becomes a line of a job with the same limit. */
export const MAX_ROW_BYTES = 16 * 1024 * 1024;

/** An open file of rows. */
export interface Table {
  readonly columns: readonly string[];
  /** The type of each column; by default text. */
  readonly kinds?: readonly AnswerKind[];
  /** Whether the table is a Parquet file, whose columns have types and can be copied. */
  readonly isParquet?: boolean;
  /** Yields all rows with the cells of `columns`, in the given order; by default of all columns. */
  rows(columns?: readonly string[]): AsyncGenerator<Row>;
}

export interface Row {
  /** Position of the row as editors and table readers show it: the line of a text, or the row, from 1. */
  readonly number: number;
  /** Position of the row in words, for messages. */
  readonly place: string;
  /** Cells of the row; all null in a broken row. */
  readonly cells: readonly Cell[];
  /** Reason why the row cannot be read. */
  readonly fault?: string;
}
