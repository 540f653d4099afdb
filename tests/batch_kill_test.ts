import { assert, assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { seeded } from "./batch_sim_storage.ts";

/* Kills a process that runs a batch job on the real file system, and compares with a run that nobody killed. */

const CHILD = fromFileUrl(new URL("batch_kill_child.ts", import.meta.url));
const LINES = 200;

async function newJob(): Promise<string> {
  const folder = await Deno.makeTempDir({ prefix: "batch-kill-" });
  const lines = Array.from({ length: LINES }, (_, n) => {
    if (n % 50 === 3) return "{ bad";
    return JSON.stringify({
      custom_id: `id-${n}`,
      method: "POST",
      url: "/v1/completions",
      body: { n, prompt: `p${n}` },
    });
  });
  await Deno.writeTextFile(`${folder}/in.jsonl`, lines.join("\n"));
  return folder;
}

/** The exit code, or the signal that killed it. `killAfter`: milliseconds after the first line may run. */
async function run(
  folder: string,
  delay: number,
  killAfter?: number,
  point: string[] = [],
): Promise<number | string> {
  const command = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--quiet",
      "--allow-read",
      "--allow-write",
      "--allow-run",
      CHILD,
      folder,
      String(delay),
      ...point,
    ],
    stdout: "piped",
    stderr: "inherit",
  });
  const child = command.spawn();
  const reader = child.stdout.getReader();
  await reader.read();
  let timer: ReturnType<typeof setTimeout> | undefined;
  if (killAfter !== undefined) {
    timer = setTimeout(() => {
      try {
        child.kill("SIGKILL");
      } catch {
        // It has ended by itself.
      }
    }, killAfter);
  }
  const { code, signal } = await child.status;
  clearTimeout(timer);
  await reader.cancel();
  return signal ?? code;
}

async function outputs(folder: string) {
  return [await Deno.readTextFile(`${folder}/out.jsonl`), await Deno.readTextFile(`${folder}/err.jsonl`)];
}

async function names(folder: string): Promise<string[]> {
  return (await Array.fromAsync(Deno.readDir(folder), ({ name }) => name)).sort();
}

let unkilled: string[] | undefined;

async function expected(): Promise<string[]> {
  if (unkilled === undefined) {
    const folder = await newJob();
    assertEquals(await run(folder, 0), 0);
    unkilled = await outputs(folder);
    assertEquals(unkilled.map((text) => text.split("\n").length - 1), [185, 15]);
    await Deno.remove(folder, { recursive: true });
  }
  return unkilled;
}

async function assertDone(folder: string, kills: number): Promise<void> {
  assertEquals(await outputs(folder), await expected());
  assertEquals(await names(folder), ["err.jsonl", "executed", "in.jsonl", "out.jsonl", "out.jsonl.journal"]);
  const executed = (await Deno.readTextFile(`${folder}/executed`)).trim().split("\n");
  assertEquals(new Set(executed).size, LINES - 4);
  assert(executed.length <= LINES - 4 + 4 * kills, `${executed.length} lines ran in ${kills} kills`);
  await Deno.remove(folder, { recursive: true });
}

Deno.test("batch: kill -9 at random moments until done, the output is that of an unkilled run", async () => {
  const random = seeded(Date.now());
  const folder = await newJob();
  let kills = 0;
  while (await run(folder, 15, kills < 20 ? 80 * random() : undefined) !== 0) kills += 1;
  assert(kills >= 3, `only ${kills} kills`);
  await assertDone(folder, kills);
});

const POINTS = [
  "write out.jsonl.journal 1 after",
  "write out.jsonl.journal 5 after",
  "sync out.jsonl.journal 5 after",
  "write out.jsonl.partial 1 after",
  "rename err.jsonl 1 after",
  "rename out.jsonl 1 before",
  "rename out.jsonl 1 after",
  "truncate out.jsonl.journal 1 before",
  "truncate out.jsonl.journal 2 after",
];

Deno.test("batch: kill -9 at named points, the output is that of an unkilled run", async () => {
  for (const point of POINTS) {
    const folder = await newJob();
    assertEquals(await run(folder, 0, undefined, point.split(" ")), "SIGKILL", point);
    assertEquals(await run(folder, 0), 0);
    await assertDone(folder, 1);
  }
});
