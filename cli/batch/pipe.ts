import { createHash } from "node:crypto";
import { diskStorage } from "../../lib/batch/jobs.ts";
import { tableFormatOf } from "../../lib/tables.ts";
import type { BatchWorld } from "./world.ts";
import type { TABLE_SETTINGS } from "./table.ts";
import { type Flags, UsageError } from "../shared/flags.ts";
import { text, type Values } from "../shared/settings.ts";

const PIPE = "-";

export const JOB = text("NAME", {
  help:
    "the job's name, for pipes: IN may be - (standard input, stored in NAME.in.jsonl before anything runs), and --out may " +
    "be - (answers go to NAME.out.jsonl, and to standard output when all lines are done)",
});

/** Command options that name a job's files. */
interface GivenFiles extends Pick<Flags, "json" | "operand"> {
  readonly values: Partial<Values<Pick<typeof TABLE_SETTINGS, "inFormat" | "outFormat">>> & {
    readonly out?: string;
    readonly job?: string;
    readonly dryRun: boolean;
  };
}

/** The files of a job, and how to print its answers on standard output if that was requested. */
export interface NamedFiles {
  readonly input: string;
  readonly output: string | undefined;
  readonly show: () => Promise<void>;
}

/**
 * Returns the files that a command names. A resumed job reads its input again, so piped input is stored in a file with
 * the job's name. Throws if that file already holds other input.
 */
export async function namedFiles(
  { values, json, operand }: GivenFiles,
  world: BatchWorld,
): Promise<NamedFiles> {
  const { out, job, dryRun } = values;
  const given = operand("IN");
  if (given !== PIPE && out !== PIPE) {
    if (job !== undefined) throw new UsageError("--job names the files of pipes: give - as IN or as --out");
    if (out === undefined && !dryRun) {
      throw new UsageError("--out is missing: the file for the answers");
    }
    return { input: given, output: out, show: () => Promise.resolve() };
  }
  if (job === undefined) {
    throw new UsageError(
      "A pipe cannot be read or written again after a stop. Give --job NAME, which keeps the lines in NAME.in.jsonl and the " +
        "answers in NAME.out.jsonl, or name files",
    );
  }
  if (dryRun) {
    throw new UsageError("--dry-run writes nothing, but a pipe must be stored in a file: name a file");
  }
  const named = given === PIPE ? undefined : tableFormatOf(given);
  const format = values.inFormat ?? named ?? "jsonl";
  const written = values.outFormat ?? (format === "text" ? "jsonl" : format);
  if (out === PIPE && (json || written === "parquet")) {
    const what = json ? "the events of --json" : "a Parquet file";
    throw new UsageError(
      `--out - is for answers as text, and standard output cannot have ${what}: name a file`,
    );
  }
  const input = given === PIPE ? `${job}.in.${format === "text" ? "txt" : format}` : given;
  const output = out === undefined || out === PIPE ? `${job}.out.${written}` : out;
  if (given === PIPE) await keep(input, world.host.input());
  const show = () => out === PIPE ? copyOut(output, world) : Promise.resolve();
  return { input, output, show };
}

/** Stores the piped bytes durably at `path`. An earlier run may already have stored the same bytes. */
async function keep(path: string, bytes: ReadableStream<Uint8Array>): Promise<void> {
  const partial = `${path}.partial`;
  using file = await Deno.open(partial, { read: true, write: true, create: true });
  if (!await file.tryLock(true)) throw new Error(`Another process keeps its standard input in "${partial}"`);
  await file.truncate(0);
  const hash = createHash("sha256");
  let size = 0;
  for await (const chunk of bytes) {
    hash.update(chunk);
    size += chunk.length;
    for (let done = 0; done < chunk.length;) done += await file.write(chunk.subarray(done));
  }
  const before = await diskStorage.stat(path);
  if (before === undefined && size > 0) {
    await file.sync();
    await Deno.rename(partial, path);
    await diskStorage.syncFolderOf(path);
    return;
  }
  await Deno.remove(partial);
  if (before === undefined) throw new Error("Standard input has no lines");
  // The pipe is empty if the user only resumes the job.
  if (size === 0 || size === before.size && hash.digest("hex") === await digestOf(path)) return;
  throw new Error(
    `"${path}" has the lines of an earlier run of this job, and standard input has different lines: give another --job, or remove the ` +
      "files of the old one",
  );
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash("sha256");
  using file = await Deno.open(path);
  for await (const chunk of file.readable) hash.update(chunk);
  return hash.digest("hex");
}

async function copyOut(path: string, { host }: BatchWorld): Promise<void> {
  using file = await Deno.open(path);
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  for await (const chunk of file.readable) host.out(decoder.decode(chunk, { stream: true }));
}
