import { BatchError } from "../jobs/errors.ts";
import { openFile } from "../jobs/input.ts";
import { readLines } from "../jobs/lines.ts";
import type { OutputLine } from "../jobs/output_form.ts";
import type { ResultLine } from "../jobs/results.ts";
import type { Storage } from "../jobs/journal/storage.ts";
import type { AnswerForm, AnswerKind } from "./answers.ts";
import { type Cell, cellJson } from "./cells.ts";
import type { WriteOptions } from "./formats.ts";
import { openTable } from "./open.ts";

/** A result column beside the input's columns. The last one holds the error of a row without an answer. */
export interface ResultColumn {
  /** The column's name before a number was added to resolve a conflict. */
  readonly from: string;
  readonly name: string;
  readonly kind: AnswerKind;
}

/** The results of a row: a cell for each result column. */
export type Result = readonly Cell[];

/** Maximum bytes of an output line; no line is longer. */
const MAX_LINE_BYTES = 2 ** 28;

/** Returns the answers' columns, then `error`. A name that is taken gets a number. */
export function resultColumns(taken: readonly string[], form: AnswerForm, prefix = ""): ResultColumn[] {
  // Some table readers ignore case, so names are compared in lower case.
  const names = new Set(taken.map((name) => name.toLowerCase()));
  return [...form.columns, { name: "error", kind: "text" as const }].map(({ name, kind }) => {
    const from = `${prefix}${name}`;
    let free = from;
    for (let n = 2; names.has(free.toLowerCase()); n++) free = `${from}_${n}`;
    names.add(free.toLowerCase());
    return { from, name: free, kind };
  });
}

/** Yields the results of each row from a job's output lines. */
export async function* answeredRows(
  records: AsyncIterable<OutputLine>,
  form: AnswerForm,
): AsyncGenerator<Result> {
  const decoder = new TextDecoder();
  const missing = form.columns.map(() => null);
  for await (const { completed, line } of records) {
    const { kept, response, error } = JSON.parse(decoder.decode(line));
    if (kept !== undefined) yield kept;
    else if (completed) yield [...form.read(response.body), null];
    else yield [...missing, errorText(error ?? response?.body?.error)];
  }
}

function errorText(error: { message?: unknown; code?: unknown } | undefined): string {
  const { message, code } = error ?? {};
  return typeof message === "string" && message !== "" ? message : String(code ?? "failed");
}

/**
 * Yields the output rows that have an answer, as lines for `answeredRows`. Throws BatchError if the output lacks these
 * columns.
 */
export async function* keptRows(
  storage: Storage,
  path: string,
  columns: readonly ResultColumn[],
  options: WriteOptions,
): AsyncGenerator<ResultLine> {
  const encoder = new TextEncoder();
  let row = 0;
  for await (const cells of resultCells(storage, path, columns.map(({ name }) => name), options)) {
    row += 1;
    if (cells.at(-1) !== null) continue;
    const bytes = encoder.encode(cellJson({ kept: cells }));
    yield { bytes, customId: `row-${row}`, refusedLine: undefined };
  }
}

async function* resultCells(
  storage: Storage,
  path: string,
  names: readonly string[],
  { format, separator }: WriteOptions,
): AsyncGenerator<Result> {
  const file = await openFile(storage, path);
  try {
    if (format === "jsonl") {
      const decoder = new TextDecoder();
      for await (const { bytes } of readLines(file, MAX_LINE_BYTES)) {
        const object = JSON.parse(decoder.decode(bytes));
        yield names.map((name) => object[name] ?? null);
      }
      return;
    }
    const table = await openTable(file, path, { format, separator });
    const lost = names.find((name) => !table.columns.includes(name));
    if (lost !== undefined) {
      throw new BatchError("output_missing", [
        `"${path}" has no column "${lost}": it was changed since the job ended, or the job had another `,
        { prefix: undefined },
        ", ",
        { schema: undefined },
        ", ",
        { outputFormat: undefined },
        " or ",
        { separator: undefined },
      ], false);
    }
    for await (const { cells } of table.rows(names)) yield cells;
  } finally {
    file.close();
  }
}
