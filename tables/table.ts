import type { AnswerKind } from "./answers.ts";
import type { Cell } from "./cells.ts";

/** A row becomes a line of a job, which has the same limit. */
export const MAX_ROW_BYTES = 16 * 1024 * 1024;

/** An open file of rows. */
export interface Table {
  readonly columns: readonly string[];
  /** The type of each column; by default text. */
  readonly kinds?: readonly AnswerKind[];
  /** Whether its columns have types and can be copied with them. */
  readonly isParquet?: boolean;
  /** Yields all rows with the cells of `columns`, in that order; by default of all columns. */
  rows(columns?: readonly string[]): AsyncGenerator<Row>;
}

export interface Row {
  /** Its position as shown by editors and table readers: the line of a text from 1, or the row from 1. */
  readonly number: number;
  /** Its position for messages. */
  readonly place: string;
  /** All null in a broken row. */
  readonly cells: readonly Cell[];
  /** Why the row cannot be read. */
  readonly fault?: string;
}
