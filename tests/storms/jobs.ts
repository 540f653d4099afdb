import { brokenRuns } from "../batch/crash_job.ts";
import { brokenRetry } from "../batch/crash_retry.ts";
import { type JobKind, KillJob, type KillOptions, pointsOf } from "../batch/kill_job.ts";
import { KillRetry, retryPoints } from "../batch/kill_retry.ts";
import { runManyLines } from "../batch/million.ts";
import { natsServerPath } from "../nats/nats_server.ts";
import { campaign } from "../nats/nats_scenario.ts";
import { Random } from "../../testing/random.ts";
import { type Figures, quantile, type Scenario, type Storm } from "./storm.ts";

const RETRY_LINES = 200;
const RANDOM_LINES = 200;
const POINT_LINES = 30;
const KILLS_OF_A_JOB = 20;
const NATS_LINES_OF_A_FAULT = 20;

/** Jobs on simulated disks with kills, power cuts, ENOSPC, EIO and EMFILE, one to four each. */
function simulated(broken: (seed: number) => Promise<string>): Scenario {
  return async ({ count, seed: first, say }) => {
    const ends: Record<string, number> = {};
    for (let seed = first; seed < first + count; seed++) {
      try {
        const end = (await broken(seed)).replaceAll(" ", "_");
        ends[end] = (ends[end] ?? 0) + 1;
      } catch (error) {
        throw new Error(`Seed ${seed} breaks the promise`, { cause: error });
      }
      if ((seed - first + 1) % 10_000 === 0) say(`${seed - first + 1} jobs`);
    }
    return ends;
  };
}

interface Killed {
  kills: number;
  run(options: KillOptions): Promise<boolean>;
}

/** Kills a job at random moments, a third of them while it starts, checks and recovers, until it ends. */
async function killAtRandom(job: Killed, most: number, random: Random, answersMs: number): Promise<void> {
  for (;;) {
    const from = random.below(3) === 0 ? "start" : "first line";
    const killAfter = job.kills < most ? (from === "start" ? 250 : answersMs) * random.unit() : undefined;
    if (await job.run({ delay: 12, killAfter, from })) return;
  }
}

function jobKills(kind: JobKind): Scenario {
  return async ({ count, seed, say }) => {
    const atPoints = await killAtPoints(Math.floor(count / 2), seed, kind);
    const random = new Random(seed);
    let kills = atPoints;
    while (kills < count) {
      const job = await KillJob.make(RANDOM_LINES, kind);
      await killAtRandom(job, Math.min(KILLS_OF_A_JOB, count - kills), random, 60);
      kills += job.kills;
      await job.end();
      say(`${kills} kills`);
    }
    return { at_points: atPoints };
  };
}

/** Kills jobs at each point in turn; the second kill of a job is at a point of its own recovery. */
async function killAtPoints(count: number, seed: number, kind: JobKind): Promise<number> {
  const points = await pointsOf(POINT_LINES, kind);
  let kills = 0;
  for (let i = seed - 1; kills < count; i++) {
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

/** Half of the kills at each point in turn, then at random moments, in jobs of either order. */
async function retryKills({ count, seed }: Storm): Promise<Figures> {
  const orders = ["completed", "input"] as const;
  const points = await Promise.all(orders.map((order) => retryPoints(RETRY_LINES, order)));
  const random = new Random(seed);
  let [kills, atPoints] = [0, 0];
  for (let jobs = seed - 1; kills < count; jobs++) {
    const which = jobs % orders.length;
    const job = await KillRetry.make(RETRY_LINES, orders[which]);
    if (kills < count / 2) {
      const i = jobs / orders.length | 0;
      const all = points[which];
      for (const n of [i * 3, i * 11 + 5]) {
        if (job.kills < count - kills && await job.run({ delay: 0, point: all[n % all.length] })) break;
      }
      atPoints += job.kills;
    } else {
      await killAtRandom(job, Math.min(KILLS_OF_A_JOB, count - kills), random, 40);
    }
    await job.run({ delay: 0 });
    kills += job.kills;
    await job.end();
  }
  return { at_points: atPoints };
}

async function manyLines({ count, say }: Storm): Promise<Figures> {
  const { seconds, peakResident, waits } = await runManyLines(count);
  for (const [phase, found] of Object.entries(waits)) {
    const at = (share: number) => quantile(found, share).toFixed(1);
    say(`${phase}: ${found.length} states read, median ${at(0.5)}, 99 % ${at(0.99)}, longest ${at(1)} ms`);
  }
  return { seconds, resident_mb: peakResident / 1e6 };
}

async function nats({ count, seed, say }: Storm): Promise<Figures | undefined> {
  if (natsServerPath() === undefined) return undefined;
  const lines = NATS_LINES_OF_A_FAULT * count;
  const { kinds, lost, doubled, same, repeated } = await campaign({
    disturbances: count,
    lines,
    lineMs: 250,
    seed,
  });
  say(JSON.stringify(kinds));
  return { lines, lost, doubled, different: Number(!same), repeated };
}

export const JOBS: Readonly<Record<string, Scenario>> = {
  "disk-faults": simulated(brokenRuns),
  "retry-disk-faults": simulated(brokenRetry),
  "job-kills": jobKills("lines"),
  "table-kills": jobKills("table"),
  "retry-kills": retryKills,
  "many-lines": manyLines,
  nats,
};
