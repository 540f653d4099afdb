import { readLines } from "../jobs/lines.ts";
import type { StorageFile } from "../jobs/journal/storage.ts";
import { MAX_ROW_BYTES, type Table } from "./table.ts";

/** Name of a text's only column. */
export const TEXT_COLUMN = "text";

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Opens a text whose lines are rows. Blank lines are skipped. */
export function openText(file: StorageFile): Table {
  return {
    columns: [TEXT_COLUMN],
    async *rows(columns = [TEXT_COLUMN]) {
      for await (const { number, bytes, length } of readLines(file, MAX_ROW_BYTES)) {
        const row = { number, place: `Line ${number}` };
        const missing = columns.map(() => null);
        if (bytes === undefined) {
          yield { ...row, cells: missing, fault: `must have at most ${MAX_ROW_BYTES} bytes (got ${length})` };
          continue;
        }
        try {
          const text = utf8.decode(bytes);
          yield { ...row, cells: columns.map(() => text) };
        } catch {
          yield { ...row, cells: missing, fault: "not valid UTF-8; save the file as UTF-8" };
        }
      }
    },
  };
}
