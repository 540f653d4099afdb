import type { JournalRecord } from "./journal/journal_format.ts";
import type { Storage } from "./journal/storage.ts";
import { readResults, type ResultLine } from "./results.ts";

/** One line of the output or error file. */
export type OutputLine = Pick<JournalRecord, "completed" | "line">;

/** How the answers of a job are written and read back. */
export interface OutputForm {
  /** Yields the bytes of the output file. `records` includes failed lines. */
  render(records: AsyncIterable<OutputLine>): AsyncIterable<Uint8Array>;
  /** Yields the good answers of an output file that `render` wrote, as records for `render`. */
  answers(storage: Storage, path: string): AsyncGenerator<ResultLine>;
}

const LF = new Uint8Array([0x0a]);

/** Output form with only the good answers, one per line. */
export const jsonLines: OutputForm = {
  render: async function* (records) {
    for await (const { completed, line } of records) {
      if (!completed) continue;
      yield line;
      yield LF;
    }
  },
  answers: readResults,
};
