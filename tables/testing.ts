import { openFile } from "../jobs/input.ts";
import { seeded, SimStorage } from "../tests/batch_sim_storage.ts";
import { AnswerForm } from "./answers.ts";
import { openTableInput, type TableJob } from "./input.ts";
import { openTable, type ReadOptions, type Row } from "./table.ts";

/** A file in memory, in its storage. */
export function storageWith(content: string | Uint8Array, path = "in"): SimStorage {
  const storage = new SimStorage(seeded(1));
  storage.put(path, content);
  return storage;
}

/** The bytes of a file that comes in parts. */
export async function joined(parts: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  return new Uint8Array(await new Blob(await Array.fromAsync(parts) as BlobPart[]).arrayBuffer());
}

export async function rowsOf(content: string | Uint8Array, options: ReadOptions): Promise<Row[]> {
  const table = await openTable(await openFile(storageWith(content), "in"), "in", options);
  return await Array.fromAsync(table.rows());
}

/** A job that reads CSV and writes CSV, but for what is given otherwise. */
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
