import { runBatch } from "../jobs/runner.ts";
import { diskStorage, type Storage, type StorageFile } from "../jobs/storage.ts";

/*
 * Runs a batch job on the real file system with an engine that always answers the same, for batch_kill_test.ts.
 * Arguments: folder, milliseconds per answer, and a point at which the process kills itself: `sync out.jsonl.journal 3
 * after` is after its third sync of the journal.
 */
const [folder, delay, operation, file, nth, side] = Deno.args;

let seen = 0;

async function atPoint<T>(name: string, path: string, call: () => Promise<T>): Promise<T> {
  const here = name === operation && path.endsWith(`/${file}`) && ++seen === Number(nth);
  if (here && side === "before") Deno.kill(Deno.pid, "SIGKILL");
  const result = await call();
  if (here && side === "after") Deno.kill(Deno.pid, "SIGKILL");
  return result;
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

const result = await runBatch({
  input: `${folder}/in.jsonl`,
  output: `${folder}/out.jsonl`,
  errors: `${folder}/err.jsonl`,
  parallel: 4,
  storage,
  connect: () => Promise.resolve({ settings: { model: "fake" }, execute }),
  onEvent: ({ type }) => {
    if (type === "started") Deno.stdout.writeSync(new TextEncoder().encode("started\n"));
  },
});
Deno.exit(result.state === "stopped" ? 1 : 0);

async function execute({ body }: { body: Record<string, unknown> }) {
  const n = body.n as number;
  await Deno.writeTextFile(`${folder}/executed`, `${n}\n`, { append: true });
  await new Promise((resolve) => setTimeout(resolve, Number(delay) * (0.5 + (n * 7 % 10) / 10)));
  if (n % 17 === 0) return { status: 400, body: { error: { message: `no ${n}` } } };
  return {
    status: 200,
    body: { text: `${n} `.repeat(n * 13 % 400), usage: { prompt_tokens: n, completion_tokens: 1 } },
  };
}
