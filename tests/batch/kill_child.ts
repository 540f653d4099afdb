import { openJsonLines } from "../../jobs/input.ts";
import { Retry } from "../../jobs/run/retry.ts";
import { type AnswerOrder, runBatch } from "../../jobs/run/runner.ts";
import { diskStorage, type Storage, type StorageFile } from "../../jobs/journal/storage.ts";
import { TEST_LIMITS } from "../../jobs/testing.ts";
import { AnswerForm, openTableInput } from "../../tables/tables.ts";

/*
 * Runs a batch job on the real file system with a deterministic engine, for kill_job.ts. Arguments:
 *
 * - the order of the outputs (`input`, `completed`), `table` for a Parquet file with answers beside the rows, or `retry` and
 *   `table-retry` to retry the job's failed lines, half of them with success
 * - the folder, and milliseconds per answer
 * - the point at which the process group is killed: `sync out.jsonl.journal 3 after` is after the third sync of the journal
 *
 * Prints each reported number of answered lines. The file `executed` gets each line that runs, `points` each point that is passed.
 */
const [verb, folder, delay, operation, file, nth, side] = Deno.args;

const seen = new Map<string, number>();
const points = await Deno.open(`${folder}/points`, { append: true, create: true });

async function atPoint<T>(name: string, path: string, call: () => Promise<T>): Promise<T> {
  const point = `${name} ${path.slice(path.lastIndexOf("/") + 1)}`;
  const times = (seen.get(point) ?? 0) + 1;
  seen.set(point, times);
  say(points, `${point} ${times}`);
  const here = point === `${operation} ${file}` && times === Number(nth);
  if (here && side === "before") killAll();
  const result = await call();
  if (here && side === "after") killAll();
  return result;
}

/** The parent has put this process into its own group. */
function killAll(): void {
  Deno.kill(-Deno.pid, "SIGKILL");
}

function say(to: { writeSync(bytes: Uint8Array): number }, text: string): void {
  to.writeSync(new TextEncoder().encode(`${text}\n`));
}

const storage: Storage = {
  ...diskStorage,
  rename: (from, to) => atPoint("rename", to, () => diskStorage.rename(from, to)),
  syncFolderOf: (path) => atPoint("sync-folder", path, () => diskStorage.syncFolderOf(path)),
  async open(path, mode) {
    const opened = await diskStorage.open(path, mode);
    const watched: StorageFile = {
      read: (buffer, offset) => opened.read(buffer, offset),
      write: (bytes, offset) => atPoint("write", path, () => opened.write(bytes, offset)),
      truncate: (size) => atPoint("truncate", path, () => opened.truncate(size)),
      sync: () => atPoint("sync", path, () => opened.sync()),
      size: () => opened.size(),
      tryLock: () => opened.tryLock(),
      close: () => opened.close(),
    };
    return watched;
  },
};

const isTable = verb.startsWith("table");
const ending = isTable ? "parquet" : "jsonl";
const JOB = {
  input: `${folder}/in.${ending}`,
  output: `${folder}/out.${ending}`,
  errors: `${folder}/err.jsonl`,
};
const openInput = isTable
  ? openTableInput({
    read: { format: "parquet" },
    question: { prompt: "{n}", fields: {} },
    form: new AnswerForm(),
    write: { format: "parquet" },
  })
  : undefined;

function run(files: typeof JOB, order: AnswerOrder, open = openInput) {
  return runBatch({
    ...files,
    openInput: open,
    order,
    parallel: 4,
    limits: TEST_LIMITS,
    storage,
    connect: () => Promise.resolve({ settings: { model: "fake" }, execute }),
    onEvent: (event) => {
      if (event.type !== "started" && event.type !== "progress") return;
      say(Deno.stdout, `${event.type} ${event.progress.completed + event.progress.failed}`);
    },
  });
}

async function retryErrors(): Promise<void> {
  const retry = await Retry.open(storage, JOB, TEST_LIMITS, openInput);
  if (retry.merged || !await retry.prepare()) return;
  await run(retry.files, retry.order, openJsonLines);
  await retry.merge();
}

if (verb.endsWith("retry")) await retryErrors();
else await run(JOB, isTable ? "input" : verb as AnswerOrder);
Deno.exit(0);

async function execute({ body }: { body: Record<string, unknown> }) {
  const n = isTable ? Number((body.messages as { content: string }[])[0].content) : body.n as number;
  await Deno.writeTextFile(`${folder}/executed`, `${n}\n`, { append: true });
  await new Promise((resolve) => setTimeout(resolve, Number(delay) * (0.5 + (n * 7 % 10) / 10)));
  if (n % (verb.endsWith("retry") ? 34 : 17) === 0) {
    return { status: 400, body: { error: { message: `no ${n}` } } };
  }
  const text = `${n} `.repeat(n * 13 % 400);
  const answer = isTable ? { choices: [{ message: { content: text } }] } : { text };
  return { status: 200, body: { ...answer, usage: { prompt_tokens: n, completion_tokens: 1 } } };
}
