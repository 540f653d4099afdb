/**
 * Answers the rows of a Parquet file with the demo model, and kills the run repeatedly (`deno task batch:tables --rows
 * 10000 --kills 100`). The output must equal that of an undisturbed run byte for byte. Stops at the first fault.
 */
import { assert, assertEquals } from "@std/assert";
import { parseArgs } from "@std/cli/parse_args.js";
import { fromFileUrl } from "@std/path";
import { diskStorage } from "../../jobs/journal/storage.ts";
import { renderParquet } from "../../tables/parquet_write.ts";
import { openTable } from "../../tables/open.ts";
import { seeded } from "../batch/sim_storage.ts";
import { say } from "../../testing/campaign.ts";

const HELP =
  `Kill a batch of the rows of a Parquet file over and over, and compare its output with an undisturbed one.

Usage: deno task batch:tables [--rows N] [--kills N] [--seed N]

  --rows N    rows of the file (default 10000)
  --kills N   kill -9 of the process group: while it starts, answers and writes (default 100)
  --seed N    what chance begins with (default 1)
`;

const ROOT = fromFileUrl(new URL("../..", import.meta.url));
const QUESTION = [
  "--prompt",
  "Say something about {topic}, number {n}.",
  "--max-tokens",
  "4",
  "--ctx",
  "256",
];
const TOPICS = ["the sea", "a cat", "rain", "bread", "the moon", "a train", "music"];

interface Told {
  readonly event: string;
  readonly done?: number;
  readonly message?: string;
}

/**
 * When to kill a run: `after` milliseconds from its start, but not after its first answer; once its journal has grown
 * by `growth` bytes; or `after` milliseconds from its last answer.
 */
type Kill =
  | { readonly from: "start" | "finishing"; readonly after: number }
  | { readonly from: "started"; readonly growth: number };

/** State of a run when it ended or was killed. */
interface Ended {
  readonly killed: boolean;
  readonly phase: string;
}

const POLL_MS = 10;

class TableJob {
  /** Number of rows that a run has reported as answered. */
  private done = 0;
  /** Largest size of the run's journal in bytes. */
  longestJournal = 0;

  constructor(private readonly folder: string) {}

  async run(kill?: Kill): Promise<Ended> {
    const args = [
      "run",
      "-q",
      "--no-check",
      "--v8-flags=--max-semi-space-size=4",
      "-P=batch",
      "main.ts",
      "batch",
      "run",
    ];
    const child = new Deno.Command(Deno.execPath(), {
      args: [
        ...args,
        `${this.folder}/in.parquet`,
        "--out",
        `${this.folder}/out.parquet`,
        "--json",
        ...QUESTION,
      ],
      cwd: ROOT,
      stdout: "piped",
      stderr: "inherit",
      detached: true,
    }).spawn();
    let phase = "start";
    let killAt = Infinity;
    let journal = 0;
    const reached = (next: string) => {
      phase = next;
      journal = this.journalSize();
      if (kill?.from === "start" && phase === "started") killAt = 0;
      if (kill?.from === phase && "after" in kill) killAt = Math.min(killAt, performance.now() + kill.after);
    };
    const timer = setInterval(() => {
      const grown = this.journalSize() - journal;
      const isLong = kill?.from === "started" && phase === "started" && grown >= kill.growth;
      if (isLong || performance.now() >= killAt) killGroup(child.pid);
    }, POLL_MS);
    reached("start");
    let rest = "";
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split("\n");
      rest = lines.pop()!;
      for (const line of lines) {
        const told: Told = JSON.parse(line);
        if (told.event === "failed") throw new Error(told.message);
        this.check(told);
        if (told.event !== "progress") reached(told.event);
      }
    }
    const { signal } = await child.status;
    clearInterval(timer);
    return { killed: signal === "SIGKILL", phase };
  }

  private journalSize(): number {
    try {
      const { size } = Deno.statSync(`${this.folder}/out.parquet.journal`);
      this.longestJournal = Math.max(this.longestJournal, size);
      return size;
    } catch {
      return 0;
    }
  }

  /** Throws if an answer that was reported is lost again. */
  private check({ done }: Told): void {
    if (done === undefined) return;
    assert(done >= this.done, `${this.done} rows were told, then ${done}`);
    this.done = done;
  }

  output(): Promise<Uint8Array> {
    return Deno.readFile(`${this.folder}/out.parquet`);
  }
}

function killGroup(pid: number): void {
  try {
    Deno.kill(-pid, "SIGKILL");
  } catch {
    // The process has already ended.
  }
}

async function writeInput(path: string, rows: number): Promise<void> {
  const columns = [
    { name: "n", kind: "integer" },
    { name: "topic", kind: "text" },
    { name: "weight", kind: "number" },
    { name: "even", kind: "boolean" },
  ] as const;
  const cells = async function* () {
    for (let n = 0; n < rows; n++) yield [n, TOPICS[n % TOPICS.length], n / 8, n % 2 === 0];
  };
  using file = await Deno.open(path, { write: true, create: true });
  for await (const bytes of renderParquet(columns, cells())) {
    for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
  }
}

async function inFolder<T>(rows: number, work: (job: TableJob, folder: string) => Promise<T>): Promise<T> {
  const folder = await Deno.makeTempDir({ prefix: "table-campaign-" });
  try {
    await writeInput(`${folder}/in.parquet`, rows);
    return await work(new TableJob(folder), folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Asserts that each row occurs once, in order, with an answer and no error. */
async function checkRows(path: string, rows: number): Promise<void> {
  const file = await diskStorage.open(path, "read");
  try {
    let n = 0;
    for await (const { cells } of (await openTable(file, path, { format: "parquet" })).rows()) {
      const [number, topic, weight, even, answer, error] = cells;
      assertEquals([number, topic, weight, even], [BigInt(n), TOPICS[n % TOPICS.length], n / 8, n % 2 === 0]);
      assert(typeof answer === "string" && error === null, `row ${n}: ${answer}, ${error}`);
      n += 1;
    }
    assertEquals(n, rows);
  } finally {
    file.close();
  }
}

/** Share of kills that come after all rows are answered. */
const FINISHING_SHARE = 0.1;
const ANSWERING_SHARE = 2 / 3;
const LONGEST_START_MS = 2500;
const LONGEST_FINISH_MS = 300;

async function main(args: string[]): Promise<number> {
  const flags = parseArgs(args, { string: ["rows", "kills", "seed"], boolean: ["help"] });
  const [rows, kills, seed] = [flags.rows ?? 10_000, flags.kills ?? 100, flags.seed ?? 1].map(Number);
  if (flags.help || ![rows, kills, seed].every(Number.isSafeInteger)) {
    say(HELP);
    return flags.help ? 0 : 2;
  }
  const start = performance.now();
  let journalBytes = 0;
  const expected = await inFolder(rows, async (job, folder) => {
    assertEquals((await job.run()).phase, "done");
    await checkRows(`${folder}/out.parquet`, rows);
    journalBytes = job.longestJournal;
    return await job.output();
  });
  const undisturbed = (performance.now() - start) / 1000;
  say(`${rows} rows undisturbed in ${undisturbed.toFixed(0)} s`);
  const random = seeded(seed);
  const phases: Record<string, number> = {};
  const found = await inFolder(rows, async (job, folder) => {
    const early = Math.round(kills * (1 - FINISHING_SHARE));
    // Together the killed runs answer about three quarters of the rows.
    const growth = 1.5 * journalBytes / (early * ANSWERING_SHARE);
    for (let done = 0; done < kills; done++) {
      const kill: Kill = done >= early
        ? { from: "finishing", after: LONGEST_FINISH_MS * random() }
        : random() < ANSWERING_SHARE
        ? { from: "started", growth: growth * random() }
        : { from: "start", after: LONGEST_START_MS * random() };
      const { killed, phase } = await job.run(kill);
      if (!killed) break;
      phases[phase] = (phases[phase] ?? 0) + 1;
      if (done % 10 === 9) say(`${done + 1} kills`);
    }
    assertEquals((await job.run()).phase.replace("already_", ""), "done");
    await checkRows(`${folder}/out.parquet`, rows);
    return await job.output();
  });
  const total = Object.values(phases).reduce((a, b) => a + b, 0);
  assertEquals(found, expected);
  say(`${total} kills (${JSON.stringify(phases)}): ${rows} rows, byte for byte as undisturbed`);
  return 0;
}

if (import.meta.main) Deno.exit(await main(Deno.args));
