import { BatchError } from "../jobs/errors.ts";
import { depthOf, MAX_JSON_DEPTH } from "../jobs/json_depth.ts";
import { readLines } from "../jobs/lines.ts";
import type { StorageFile } from "../jobs/journal/storage.ts";
import type { AnswerKind } from "./answers.ts";
import type { Cell } from "./cells.ts";
import { MAX_ROW_BYTES, type Row, type Table } from "./table.ts";

const MAX_COLUMNS = 10_000;
/** Maximum digits of a 64-bit integer; longer integers are read as doubles. */
const MAX_DIGITS = 20;

type JsonObject = Readonly<Record<string, Cell>>;

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Opens a file with one JSON object per line. The columns are the names in all rows, in order of first occurrence.
 * Missing names are null.
 */
export async function openJsonRows(file: StorageFile, name: string): Promise<Table> {
  const kinds = new Map<string, AnswerKind | undefined>();
  for await (const { object } of readObjects(file)) {
    for (const [column, cell] of Object.entries(object ?? {})) {
      kinds.set(column, widest(kinds.get(column), cell));
    }
    if (kinds.size > MAX_COLUMNS) {
      throw unreadable(name, `its rows have more than ${MAX_COLUMNS} names together`);
    }
  }
  if (kinds.size === 0) throw unreadable(name, "no line is a JSON object with a column");
  const columns = [...kinds.keys()];
  return {
    columns,
    kinds: [...kinds.values()].map((kind) => kind ?? "text"),
    async *rows(wanted = columns) {
      for await (const { number, object, fault } of readObjects(file)) {
        const cells = wanted.map((column) => object && Object.hasOwn(object, column) ? object[column] : null);
        yield { number, place: `Line ${number}`, cells, fault } satisfies Row;
      }
    },
  };
}

async function* readObjects(
  file: StorageFile,
): AsyncGenerator<{ number: number; object?: JsonObject; fault?: string }> {
  for await (const { number, bytes, length } of readLines(file, MAX_ROW_BYTES)) {
    if (bytes === undefined) {
      yield { number, fault: `must have at most ${MAX_ROW_BYTES} bytes (got ${length})` };
    } else yield { number, ...parsed(bytes) };
  }
}

function parsed(bytes: Uint8Array): { object?: JsonObject; fault?: string } {
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    return { fault: "not valid UTF-8; save the file as UTF-8" };
  }
  let value: unknown;
  try {
    value = /\d{16}/.test(text) ? JSON.parse(text, exactly) : JSON.parse(text);
  } catch (error) {
    return { fault: `not valid JSON: ${(error as Error).message.slice(0, 200)}` };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return { fault: "must be a JSON object, with the row's values by the names of its columns" };
  }
  const depth = depthOf(value) - 1;
  if (depth > MAX_JSON_DEPTH) {
    return { fault: `must be nested at most ${MAX_JSON_DEPTH} levels deep (got ${depth})` };
  }
  return { object: value as JsonObject };
}

/** Reviver of JSON.parse that keeps all digits of 64-bit integers as bigint. */
function exactly(_: string, value: unknown, context?: { source?: string }): unknown {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
  const source = context?.source ?? "";
  return /^-?\d+$/.test(source) && source.length <= MAX_DIGITS ? BigInt(source) : value;
}

/** Returns the type of a column of type `before` that also contains this cell. */
function widest(before: AnswerKind | undefined, cell: Cell): AnswerKind | undefined {
  if (cell === null) return before;
  const kind = kindOf(cell);
  if (before === undefined || before === kind) return kind;
  const isNumeric = [before, kind].every((one) => one === "integer" || one === "number");
  return isNumeric ? "number" : "text";
}

function kindOf(cell: Cell): AnswerKind {
  if (typeof cell === "boolean") return "boolean";
  if (typeof cell === "bigint") return BigInt.asIntN(64, cell) === cell ? "integer" : "text";
  if (Number.isSafeInteger(cell)) return "integer";
  return typeof cell === "number" ? "number" : typeof cell === "object" ? "json" : "text";
}

function unreadable(name: string, why: string): BatchError {
  return new BatchError("input_unreadable", `Cannot read "${name}" as rows in JSONL: ${why}`, false);
}
