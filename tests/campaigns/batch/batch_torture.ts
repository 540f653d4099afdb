/**
 * The long campaigns of the batch runner (`deno task batch:torture --kills 1000 --seeds 100000 --lines 1000000`): the
 * test suite runs a few of each. Stops at the first fault, and prints the seed that reproduces it.
 */
import { parseArgs } from "@std/cli/parse_args.js";
import { brokenRuns } from "../../batch/crash_job.ts";
import { brokenRetry } from "../../batch/crash_retry.ts";
import { type JobKind, KillJob, pointsOf } from "../../batch/kill_job.ts";
import { KillRetry, retryPoints } from "../../batch/kill_retry.ts";
import { runManyLines } from "../../batch/million.ts";
import { seeded } from "../../batch/sim_storage.ts";
import { say } from "../../../testing/campaign.ts";

const HELP = `Break batch jobs in every way, and look whether a line is lost, doubled or torn.

Usage: deno task batch:torture [--kills N] [--table-kills N] [--seeds N] [--retry-kills N] [--retry-seeds N] [--lines N]
                               [--seed N]

  --kills N         kill -9 of the process group, half at random moments and half at each point in turn
  --table-kills N   the same kills of jobs whose input and output are Parquet files
  --seeds N         jobs on a simulated disk with kills, power cuts, ENOSPC and EIO, one to four each
  --retry-kills N   the same kills while retry-errors answers the failed lines of jobs that are done
  --retry-seeds N   the same simulated disks under retry-errors
  --lines N         one job of so many lines: its memory, and how long it takes to tell its state meanwhile
  --seed N          what chance begins with (default 1)
`;

const RETRY_LINES = 200;
const RANDOM_LINES = 200;
const POINT_LINES = 30;
const KILLS_OF_A_JOB = 20;

async function simulate(
  count: number,
  first: number,
  what: string,
  broken: (seed: number) => Promise<string>,
): Promise<void> {
  const came: Record<string, number> = {};
  for (let seed = first; seed < first + count; seed++) {
    try {
      const end = await broken(seed);
      came[end] = (came[end] ?? 0) + 1;
    } catch (error) {
      throw new Error(`Seed ${seed} breaks the promise`, { cause: error });
    }
    if ((seed - first + 1) % 10_000 === 0) {
      say(`${seed - first + 1} simulated ${what}: ${JSON.stringify(came)}`);
    }
  }
  say(`${count} simulated ${what}, 0 lines lost, doubled or torn: ${JSON.stringify(came)}`);
}

async function kill(count: number, seed: number, kind: JobKind): Promise<void> {
  const atPoints = await killAtPoints(Math.floor(count / 2), kind);
  const random = seeded(seed);
  let kills = atPoints;
  for (let jobs = 1; kills < count; jobs++) {
    const job = await KillJob.make(RANDOM_LINES, kind);
    const most = Math.min(KILLS_OF_A_JOB, count - kills);
    for (;;) {
      // A third of the kills come while the job starts, checks and recovers.
      const from = random() < 1 / 3 ? "start" : "first line";
      const killAfter = job.kills < most ? (from === "start" ? 250 : 60) * random() : undefined;
      if (await job.run({ delay: 12, killAfter, from })) break;
    }
    kills += job.kills;
    await job.end();
    if (jobs % 5 === 0) say(`${kills} kills`);
  }
  say(`${kills} kills, ${atPoints} of them at points: 0 lines lost, doubled or torn; counts never went back`);
}

/** Kills at each point in turn, repeatedly. A job's second kill is at a point of its recovery. */
async function killAtPoints(count: number, kind: JobKind): Promise<number> {
  const points = await pointsOf(POINT_LINES, kind);
  say(`${points.length} points of a job of ${kind === "table" ? "a table" : "lines"}`);
  let kills = 0;
  for (let i = 0; kills < count; i++) {
    const job = await KillJob.make(POINT_LINES, kind);
    const next = points[(i * 7 + Math.floor(i / points.length)) % points.length];
    for (const point of [points[i % points.length], next]) {
      if (job.kills < count - kills && await job.run({ delay: 0, point })) break;
    }
    await job.run({ delay: 0 });
    kills += job.kills;
    await job.end();
  }
  return kills;
}

/** Half of the kills are at each point in turn, the others at random moments, for jobs in either order. */
async function killRetries(count: number, seed: number): Promise<void> {
  const orders = ["completed", "input"] as const;
  const points = await Promise.all(orders.map((order) => retryPoints(RETRY_LINES, order)));
  say(`${points.map(({ length }) => length).join(" and ")} points of a retry`);
  const random = seeded(seed);
  let kills = 0;
  let atPoints = 0;
  for (let jobs = 0; kills < count; jobs++) {
    const which = jobs % orders.length;
    const job = await KillRetry.make(RETRY_LINES, orders[which]);
    if (kills < count / 2) {
      const i = jobs / orders.length | 0;
      const all = points[which];
      for (const n of [i * 3, i * 11 + 5]) {
        if (await job.run({ delay: 0, point: all[n % all.length] })) break;
      }
      atPoints += job.kills;
    } else {
      const most = Math.min(KILLS_OF_A_JOB, count - kills);
      for (;;) {
        const from = random() < 1 / 3 ? "start" : "first line";
        const killAfter = job.kills < most ? (from === "start" ? 250 : 40) * random() : undefined;
        if (await job.run({ delay: 12, killAfter, from })) break;
      }
    }
    await job.run({ delay: 0 });
    kills += job.kills;
    await job.end();
    if (jobs % 20 === 19) say(`${kills} kills of retries`);
  }
  say(
    `${kills} kills of retries, ${atPoints} of them at points: no good answer changed, 0 lines lost or doubled`,
  );
}

async function manyLines(count: number): Promise<void> {
  const { seconds, peakResident, waits } = await runManyLines(count);
  say(`${count} lines in ${seconds.toFixed(0)} s, at most ${(peakResident / 1e6).toFixed(0)} MB resident`);
  for (const [phase, found] of Object.entries(waits)) {
    const at = (share: number) =>
      found[Math.min(found.length - 1, Math.floor(share * found.length))].toFixed(1);
    say(`${phase}: ${found.length} states told, median ${at(0.5)}, 99 % ${at(0.99)}, longest ${at(1)} ms`);
  }
}

async function main(args: string[]): Promise<number> {
  const names = ["kills", "table-kills", "seeds", "retry-kills", "retry-seeds", "lines", "seed"];
  const flags = parseArgs(args, { string: names, boolean: ["help"] }) as Record<string, string | undefined>;
  const count = (name: string) => Number(flags[name] ?? 0);
  if (flags.help || names.some((name) => !Number.isSafeInteger(count(name)) || count(name) < 0)) {
    say(HELP);
    return flags.help ? 0 : 2;
  }
  const seed = flags.seed === undefined ? 1 : count("seed");
  if (count("seeds") > 0) await simulate(count("seeds"), seed, "jobs", brokenRuns);
  if (count("retry-seeds") > 0) await simulate(count("retry-seeds"), seed, "retries", brokenRetry);
  if (count("kills") > 0) await kill(count("kills"), seed, "lines");
  if (count("table-kills") > 0) await kill(count("table-kills"), seed, "table");
  if (count("retry-kills") > 0) await killRetries(count("retry-kills"), seed);
  if (count("lines") > 0) await manyLines(count("lines"));
  return 0;
}

if (import.meta.main) Deno.exit(await main(Deno.args));
