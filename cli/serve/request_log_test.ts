import { assert, assertEquals, assertThrows } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { join } from "@std/path";
import type { LogEntry } from "../../routes/metrics/request_record.ts";
import { openRequestLog, RequestLog } from "./request_log.ts";

const entry = (id: string): LogEntry => ({ time: "t", id, method: "GET", route: "/", status: 200, ms: 1 });

/** A disk with limited space that accepts at most seven bytes per write. */
class Disk {
  text = "";
  files = 0;

  constructor(public room: number) {}

  open = () => {
    this.files++;
    return {
      write: async (bytes: Uint8Array) => {
        await delay(0);
        const count = Math.min(bytes.length, this.room, 7);
        if (count === 0) throw new Error("No space left on device (os error 28)");
        this.room -= count;
        this.text += new TextDecoder().decode(bytes.subarray(0, count));
        return count;
      },
      close() {},
    };
  };

  get lines() {
    return this.text.trimEnd().split("\n").map((line) => JSON.parse(line));
  }
}

async function until(condition: () => boolean): Promise<void> {
  const holds = () => {
    try {
      return condition();
    } catch {
      return false; // the file does not exist yet
    }
  };
  while (!holds()) await delay(2);
}

Deno.test("request log: writes lines in order, and close() writes waiting lines", async () => {
  const disk = new Disk(Infinity);
  const log = new RequestLog({ open: disk.open, note() {} });
  for (let i = 0; i < 50; i++) {
    log.add(entry(`${i}`));
    if (i % 7 === 0) await delay(1);
  }
  await log.close();
  assertEquals(disk.lines.map(({ id }) => id), Array.from({ length: 50 }, (_, i) => `${i}`));
});

Deno.test("request log: keeps a limited number of lines on a full disk, and never tears or repeats one", async () => {
  const disk = new Disk(100);
  const notes: string[] = [];
  const size = JSON.stringify(entry("00")).length + 1;
  const options = { open: disk.open, note: (note: string) => notes.push(note), retryMs: 5 };
  const log = new RequestLog({ ...options, maxWaiting: 5 * size });
  for (let i = 10; i < 30; i++) log.add(entry(`${i}`));
  await until(() => notes.length === 1);
  for (let i = 30; i < 40; i++) log.add(entry(`${i}`));
  assert(disk.text.length === 100);
  disk.room = Infinity;
  await until(() => notes.length === 2);
  log.add(entry("50"));
  await log.close();
  const ids = disk.lines.map(({ id, dropped }) => id ?? `${dropped} dropped`);
  assertEquals(ids.filter((id) => !id.includes("dropped")), ["10", "11", "12", "13", "14", "50"]);
  const dropped = disk.lines.reduce((sum, { dropped }) => sum + (dropped ?? 0), 0);
  assertEquals(dropped, 25);
  assertEquals(notes, [
    "Cannot write the log of requests: No space left on device (os error 28); lines beyond the buffer are dropped",
    "The log of requests can be written again",
  ]);
});

Deno.test("request log: close() does not wait for a disk that stays full", async () => {
  const failed = Promise.withResolvers<void>();
  const log = new RequestLog({ open: new Disk(10).open, note: () => failed.resolve(), retryMs: 1 });
  log.add(entry("1"));
  await failed.promise;
  log.add(entry("2"));
  await log.close();
});

Deno.test("request log: loses no line when the file is moved away and reopened", async () => {
  const folder = await Deno.makeTempDir();
  const file = join(folder, "requests.log");
  try {
    await Deno.writeTextFile(file, "before\n");
    const log = openRequestLog(file, () => {});
    log.add(entry("1"));
    await until(() => Deno.readTextFileSync(file).endsWith("}\n"));
    await Deno.rename(file, `${file}.1`);
    log.add(entry("2"));
    await until(() => Deno.readTextFileSync(`${file}.1`).includes('"2"'));
    log.reopen();
    await until(() => Deno.readTextFileSync(file) === "");
    log.add(entry("3"));
    await log.close();
    const ids = (text: string) =>
      text.trimEnd().split("\n").map((line) => /"id":"(.)"/.exec(line)?.[1] ?? line);
    assertEquals(ids(await Deno.readTextFile(`${file}.1`)), ["before", "1", "2"]);
    assertEquals(ids(await Deno.readTextFile(file)), ["3"]);
    assertEquals((await Deno.stat(file)).mode! & 0o777, 0o600);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("request log: begins the new file with a whole line when reopened in the middle of one", async () => {
  const disk = new Disk(20);
  const failed = Promise.withResolvers<void>();
  const log = new RequestLog({ open: disk.open, note: () => failed.resolve(), retryMs: 10_000 });
  log.add(entry("1"));
  log.add(entry("2"));
  await failed.promise;
  assertEquals(disk.text.length, 20);
  disk.text = "";
  disk.room = Infinity;
  log.reopen();
  await log.close();
  assertEquals(disk.lines.map(({ id, dropped }) => id ?? dropped), ["2", 1]);
});

Deno.test("request log: refuses a file that cannot be opened at the start", () => {
  const error = assertThrows(() => openRequestLog("/no/such/folder/log", () => {}), Error);
  assertEquals(
    error.message,
    'Cannot write the log of requests to "/no/such/folder/log": there is no such file or folder; name another file with --log',
  );
});
