import { assert, assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";
import type { AnswerOrder } from "../../jobs/run/runner.ts";
import { renderParquet } from "../../tables/parquet_write.ts";

/* A batch job on the real file system, in a process that is killed. Used by the tests and the long campaign. */

const CHILD = fromFileUrl(new URL("kill_child.ts", import.meta.url));
const PARALLEL = 4;

/** A run that is killed or ends. */
export interface KillOptions {
  /** Milliseconds per answer. */
  readonly delay: number;
  /** Milliseconds from the first line (or from the start of the process) to the kill. */
  readonly killAfter?: number;
  readonly from?: "start" | "first line";
  /** The point at which the process kills its group, for example `sync out.jsonl.journal 3 after`. */
  readonly point?: string;
}

/** Input and output of a job: lines of requests, or a Parquet file with the answers beside its rows. */
export type JobKind = "lines" | "table";

const ENDING: Readonly<Record<JobKind, string>> = { lines: "jsonl", table: "parquet" };

/** A folder with a job of `lines` lines; every fiftieth is bad. */
export class KillJob {
  kills = 0;
  private reported = 0;
  private constructor(
    readonly folder: string,
    private readonly lines: number,
    private readonly kind: JobKind,
  ) {}

  static async make(lines: number, kind: JobKind = "lines"): Promise<KillJob> {
    const folder = await Deno.makeTempDir({ prefix: "batch-kill-" });
    if (kind === "table") await writeTable(`${folder}/in.parquet`, lines);
    else {
      const text = Array.from({ length: lines }, (_, n) => line(n)).join("\n");
      await Deno.writeTextFile(`${folder}/in.jsonl`, text);
    }
    return new KillJob(folder, lines, kind);
  }

  /** Runs the job once. Returns true if it ended, false if it was killed; throws if it failed. */
  async run({ delay, killAfter, from = "first line", point }: KillOptions): Promise<boolean> {
    const executedBefore = await this.executed();
    const { told, code, signal } = await runChild(verbOf(this.kind), this.folder, {
      delay,
      killAfter,
      from,
      point,
    });
    if (signal === "SIGKILL") this.kills += 1;
    else assertEquals(code, 0);
    this.checkCounts(told);
    const executed = await this.executed();
    const again = executed.slice(executedBefore.length).filter((n) => executedBefore.includes(n));
    assert(again.length <= PARALLEL, `${again.length} lines ran again after one kill`);
    await this.checkNothingTorn();
    return signal === null;
  }

  /** Checks that the counts of a run continue those of the previous run and never decrease. */
  private checkCounts(told: string): void {
    // The kill may cut the last line.
    for (const text of told.split("\n").slice(0, -1)) {
      const count = Number(text.split(" ")[1]);
      assert(count >= this.reported, `${this.reported} lines were reported, then "${text}"`);
      this.reported = count;
    }
  }

  private async checkNothingTorn(): Promise<void> {
    for (const [path, content] of Object.entries(await unkilled(this.lines, this.kind))) {
      const found = await read(`${this.folder}/${path}`);
      assert(found === undefined || found === content, `${path} is torn`);
    }
  }

  /** Compares the outputs with those of an undisturbed run byte for byte, and removes the folder. */
  async end(): Promise<void> {
    for (const [path, content] of Object.entries(await unkilled(this.lines, this.kind))) {
      assertEquals(await read(`${this.folder}/${path}`), content, path);
    }
    const names = (await Array.fromAsync(Deno.readDir(this.folder), ({ name }) => name)).sort();
    const [input, output] = [`in.${ENDING[this.kind]}`, `out.${ENDING[this.kind]}`];
    assertEquals(names, ["err.jsonl", "executed", input, output, `${output}.journal`, "points"]);
    const executed = await this.executed();
    const good = this.lines - badLines(this.lines);
    assertEquals(new Set(executed).size, good);
    assert(executed.length <= good + PARALLEL * this.kills, `${executed.length} lines ran`);
    await this.remove();
  }

  async remove(): Promise<void> {
    await Deno.remove(this.folder, { recursive: true });
  }

  private async executed(): Promise<string[]> {
    return (await read(`${this.folder}/executed`))?.trimEnd().split("\n") ?? [];
  }
}

/** Returns line n of the input; every fiftieth line is bad. */
export function line(n: number): string {
  if (n % 50 === 3) return "{ bad";
  const body = { n, prompt: `p${n}` };
  return JSON.stringify({ custom_id: `id-${n}`, method: "POST", url: "/v1/completions", body });
}

/** Row groups of 10,000; a bad line is a row without a number. */
async function writeTable(path: string, lines: number): Promise<void> {
  const columns = [{ name: "n", kind: "integer" }, { name: "text", kind: "text" }] as const;
  const rows = async function* () {
    for (let n = 0; n < lines; n++) yield [n % 50 === 3 ? null : n, `row ${n}`];
  };
  using file = await Deno.open(path, { write: true, create: true });
  for await (const bytes of renderParquet(columns, rows())) {
    for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
  }
}

function badLines(lines: number): number {
  return Math.floor((lines + 46) / 50);
}

/** Runs the child until it ends or is killed, and returns its output. */
export async function runChild(
  verb: AnswerOrder | "retry" | "table" | "table-retry",
  folder: string,
  { delay, killAfter, from, point }: KillOptions,
): Promise<{ told: string; code: number; signal: Deno.Signal | null }> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "--allow-read", "--allow-write", "--allow-run", CHILD, verb, folder, String(delay)]
      .concat(point?.split(" ") ?? []),
    stdout: "piped",
    stderr: "inherit",
    detached: true,
  }).spawn();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const arm = () => {
    if (killAfter !== undefined) timer ??= setTimeout(() => killGroup(child.pid), killAfter);
  };
  if (from === "start") arm();
  let told = "";
  for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
    arm();
    told += text;
  }
  const { code, signal } = await child.status;
  clearTimeout(timer);
  return { told, code, signal };
}

function killGroup(pid: number): void {
  try {
    Deno.kill(-pid, "SIGKILL");
  } catch {
    // The process has already ended.
  }
}

function verbOf(kind: JobKind): "input" | "table" {
  return kind === "lines" ? "input" : "table";
}

/** Reads a file with one character per byte, for comparison; undefined if it is missing. */
export async function read(path: string): Promise<string | undefined> {
  try {
    return path.endsWith(".parquet")
      ? new TextDecoder("latin1").decode(await Deno.readFile(path))
      : await Deno.readTextFile(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

const runs = new Map<string, Promise<{ outputs: Record<string, string>; points: string[] }>>();

function unkilledRun(lines: number, kind: JobKind) {
  const run = async () => {
    const job = await KillJob.make(lines, kind);
    assertEquals((await runChild(verbOf(kind), job.folder, { delay: 0 })).code, 0);
    const outputs: Record<string, string> = {};
    for (const name of [`out.${ENDING[kind]}`, "err.jsonl"]) {
      outputs[name] = (await read(`${job.folder}/${name}`))!;
    }
    if (kind === "lines") {
      const counts = Object.values(outputs).map((text) => text.split("\n").length - 1);
      assertEquals(counts[0] + counts[1], lines);
    }
    const points = (await read(`${job.folder}/points`))!.trimEnd().split("\n");
    await job.remove();
    return { outputs, points };
  };
  const key = `${lines} ${kind}`;
  if (!runs.has(key)) runs.set(key, run());
  return runs.get(key)!;
}

/** Returns the outputs of an undisturbed run. */
async function unkilled(lines: number, kind: JobKind): Promise<Record<string, string>> {
  return (await unkilledRun(lines, kind)).outputs;
}

/** Returns every point of a run before and after a write, sync, rename or truncation. */
export async function pointsOf(lines: number, kind: JobKind = "lines"): Promise<string[]> {
  return (await unkilledRun(lines, kind)).points.flatMap((point) => [`${point} before`, `${point} after`]);
}
