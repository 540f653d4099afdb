import { openFile } from "../jobs/input.ts";
import { seeded, SimStorage } from "../tests/batch/sim_storage.ts";
import { AnswerForm } from "./answers.ts";
import { openTableInput } from "./input.ts";
import type { TableJob } from "./question.ts";
import type { Row } from "./table.ts";
import { openTable, type ReadOptions } from "./open.ts";

/** Returns a storage with a file in memory. */
export function storageWith(content: string | Uint8Array, path = "in"): SimStorage {
  const storage = new SimStorage(seeded(1));
  storage.put(path, content);
  return storage;
}

/** Returns the parts of a file joined. */
export async function joined(parts: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  return new Uint8Array(await new Blob(await Array.fromAsync(parts) as BlobPart[]).arrayBuffer());
}

export async function rowsOf(content: string | Uint8Array, options: ReadOptions): Promise<Row[]> {
  const table = await openTable(await openFile(storageWith(content), "in"), "in", options);
  return await Array.fromAsync(table.rows());
}

/** Returns a test job that reads and writes CSV by default. */
export function tableJob({ schema, prompt = "{text}", ...job }: Partial<TableJob> & {
  schema?: Record<string, unknown>;
  prompt?: string;
}) {
  return openTableInput({
    read: { format: "csv" },
    question: { prompt, fields: {} },
    form: new AnswerForm(schema),
    write: { format: "csv" },
    ...job,
  });
}
