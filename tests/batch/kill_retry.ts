import { assert, assertEquals } from "@std/assert";
import type { AnswerOrder } from "../../jobs/run/runner.ts";
import { type KillOptions, line, read, runChild } from "./kill_job.ts";

/* Retries of a job's failed lines on the real file system, by processes that are killed. */

const PARALLEL = 4;

/** A folder with a finished job; every 17th line has failed, and every 34th will fail again. */
export class KillRetry {
  kills = 0;
  private before: string[] = [];

  private constructor(
    readonly folder: string,
    private readonly lines: number,
    private readonly order: AnswerOrder,
  ) {}

  static async make(lines: number, order: AnswerOrder): Promise<KillRetry> {
    const folder = await Deno.makeTempDir({ prefix: "batch-kill-retry-" });
    const input = Array.from({ length: lines }, (_, n) => line(n));
    await Deno.writeTextFile(`${folder}/in.jsonl`, input.join("\n"));
    const job = new KillRetry(folder, lines, order);
    assertEquals((await runChild(order, folder, { delay: 0 })).code, 0);
    job.before = await job.linesOf("out.jsonl");
    await job.forget();
    return job;
  }

  /** Runs the retry once. Returns true if it ended, false if it was killed; throws if it failed. */
  async run(options: KillOptions): Promise<boolean> {
    const earlier = await this.executed();
    const { code, signal } = await runChild("retry", this.folder, { from: "first line", ...options });
    if (signal === "SIGKILL") this.kills += 1;
    else assertEquals(code, 0);
    const executed = await this.executed();
    assert(executed.every((n) => n % 17 === 0), `asked ${executed}`);
    const again = executed.slice(earlier.length).filter((n) => earlier.includes(n));
    assert(
      await this.isMerged() || again.length <= PARALLEL,
      `${again.length} lines ran again after one kill`,
    );
    await this.checkGoodAnswers();
    return signal === null;
  }

  /** The points of a retry before and after each write, sync, rename or truncation. */
  async points(): Promise<string[]> {
    return (await this.linesOf("points")).flatMap((point) => [`${point} before`, `${point} after`]);
  }

  /** Checks the outputs and removes the folder. */
  async end(): Promise<void> {
    const now = await this.linesOf("out.jsonl");
    const bad = (n: number) => n % 50 === 3;
    const all = Array.from({ length: this.lines }, (_, n) => n).filter((n) => !bad(n));
    const expected = all.filter((n) => n % 34 !== 0).map((n) => `id-${n}`);
    const ids = idsOf(now);
    if (this.order === "input") assertEquals(ids, expected);
    else assertEquals(ids.toSorted(), expected.toSorted());
    const errors = await this.linesOf("err.jsonl");
    const failed = Array.from({ length: this.lines }, (_, n) => n).filter((n) => bad(n) || n % 34 === 0);
    const errorIds = failed.map((n) => bad(n) ? null : `id-${n}`);
    if (this.order === "input") assertEquals(idsOf(errors), errorIds);
    else assertEquals(idsOf(errors).toSorted(), errorIds.toSorted());
    const names = (await Array.fromAsync(Deno.readDir(this.folder), ({ name }) => name)).sort();
    assertEquals(names, ["err.jsonl", "executed", "in.jsonl", "out.jsonl", "out.jsonl.journal", "points"]);
    await Deno.remove(this.folder, { recursive: true });
  }

  /** Checks that the output is the old one or the new one, with every old line unchanged. */
  private async checkGoodAnswers(): Promise<void> {
    const now = await this.linesOf("out.jsonl");
    const old = new Set(this.before);
    assertEquals(now.filter((text) => old.has(text)), this.before);
    if (this.order === "completed") assertEquals(now.slice(0, this.before.length), this.before);
    const better = idsOf(now.filter((text) => !old.has(text)));
    assert(better.every((id) => Number(id.slice(3)) % 17 === 0), `${better}`);
    assertEquals(new Set(better).size, better.length);
  }

  private async isMerged(): Promise<boolean> {
    return (await this.linesOf("out.jsonl")).length > this.before.length;
  }

  private async executed(): Promise<number[]> {
    return (await this.linesOf("executed")).map(Number);
  }

  private async linesOf(name: string): Promise<string[]> {
    return (await read(`${this.folder}/${name}`))?.split("\n").filter((text) => text !== "") ?? [];
  }

  private async forget(): Promise<void> {
    for (const name of ["executed", "points"]) await Deno.writeTextFile(`${this.folder}/${name}`, "");
  }
}

function idsOf(lines: readonly string[]): string[] {
  return lines.map((text) => JSON.parse(text).custom_id);
}

/** Returns every point of an undisturbed retry. */
export async function retryPoints(lines: number, order: AnswerOrder): Promise<string[]> {
  const job = await KillRetry.make(lines, order);
  assert(await job.run({ delay: 0 }));
  const points = await job.points();
  await job.end();
  return points;
}
