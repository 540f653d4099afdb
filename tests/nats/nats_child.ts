import type { BatchError } from "../../jobs/errors.ts";
import { natsTarget } from "../../cli/batch/nats_target.ts";
import { type Connection, openConnection } from "../../jobs/nats/connection.ts";
import { Coordinator } from "../../jobs/nats/coordinator.ts";
import { runWorker } from "../../jobs/nats/worker.ts";
import { type BatchOptions, type Execute, runBatch } from "../../jobs/run/runner.ts";
import { TEST_LIMITS } from "../../jobs/testing.ts";

/*
 * A separate process that nats_campaign.ts may kill and stop, with a deterministic engine.
 * Arguments:
 *
 *   coordinator URL FOLDER               runs the job
 *   worker URL FOLDER NAME MILLISECONDS  answers lines, each in about this time
 *   broken URL FOLDER NAME               answers only with server errors, and must exit with a message
 *   idle URL FOLDER                      has a run without lines
 *   cancelled URL FOLDER                 cancels its own run
 */

export const LEASE_MS = 1000;
export const WORKER_PARALLEL = 8;
const MODEL = { model: "fake" };
const IN_FLIGHT = 64;

/** Returns the engine's answer to line n. */
export function answerTo(n: number) {
  if (n % 17 === 0) return { status: 400, body: { error: { message: `no ${n}` } } };
  const body = { text: `${n} `.repeat(n * 13 % 400), usage: { prompt_tokens: n, completion_tokens: 1 } };
  return { status: 200, body };
}

/** The job in a folder. */
export function jobIn(folder: string, name = "out") {
  const files = {
    input: `${folder}/in.jsonl`,
    output: `${folder}/${name}.jsonl`,
    errors: `${folder}/${name}.err.jsonl`,
  };
  return { ...files, parallel: IN_FLIGHT } satisfies Partial<BatchOptions>;
}

export const SETTINGS = { model: "fake" };

/** Retries, because the server may just be restarting after a kill. */
async function connected(url: string, name: string): Promise<Connection> {
  for (const until = performance.now() + 30_000;;) {
    try {
      return await openConnection(natsTarget(url, undefined, () => undefined), name, () => {});
    } catch (error) {
      if (performance.now() > until) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

const say = (text: string) => void Deno.stdout.writeSync(new TextEncoder().encode(`${text}\n`));

async function openRun(url: string): Promise<Coordinator> {
  const connection = await connected(url, "coordinator");
  const drainSignal = new AbortController().signal;
  return await Coordinator.open({ connection, model: MODEL, drainSignal, note: () => {}, leaseMs: LEASE_MS });
}

async function coordinate(url: string, folder: string): Promise<number> {
  const coordinator = await openRun(url);
  const { state } = await runBatch({
    ...jobIn(folder),
    limits: TEST_LIMITS,
    connect: () => Promise.resolve({ settings: SETTINGS, execute: coordinator.execute }),
    onEvent: (event) => {
      if (!("progress" in event)) return;
      const { repeated, late } = coordinator.stats;
      say(`done ${event.progress.completed + event.progress.failed} ${repeated} ${late}`);
    },
  });
  await coordinator.close();
  return state === "done" ? 0 : 1;
}

async function work(url: string, name: string, answerer: Execute): Promise<number> {
  const never = new AbortController().signal;
  await runWorker({
    connection: await connected(url, name),
    model: MODEL,
    name,
    parallel: WORKER_PARALLEL,
    note: () => {},
    counts: { lines: 0 },
    drainSignal: never,
    signal: never,
    answerer,
  });
  return 0;
}

function sound(folder: string, ms: number): Execute {
  return async ({ body }) => {
    const n = body.n as number;
    // Lines of other runs have no number.
    if (n === undefined) return { status: 200, body: {} };
    await Deno.writeTextFile(`${folder}/executed`, `${n}\n`, { append: true });
    await new Promise((resolve) => setTimeout(resolve, ms * (0.5 + (n * 7 % 10) / 10)));
    return answerTo(n);
  };
}

/** Runs a broken worker. Returns 0 if it exits by itself with a reason. */
async function workBroken(url: string, name: string): Promise<number> {
  try {
    await work(url, name, () => Promise.resolve({ status: 500, body: { error: { message: "broken" } } }));
  } catch (error) {
    return (error as BatchError).code === "engine_unavailable" ? 0 : 1;
  }
  return 1;
}

async function idle(url: string): Promise<number> {
  await openRun(url);
  return await new Promise<never>(() => {});
}

/** Returns 0 if each line is answered or cancelled, and cancellation is immediate. */
async function cancelled(url: string): Promise<number> {
  const coordinator = await openRun(url);
  const cancel = new AbortController();
  const lines = Array.from(
    { length: 64 },
    () => coordinator.execute({ url: "/v1/completions", body: {}, priority: "batch", signal: cancel.signal }),
  );
  const all = Promise.allSettled(lines);
  await new Promise((resolve) => setTimeout(resolve, LEASE_MS * Math.random()));
  const start = performance.now();
  cancel.abort();
  await all;
  await coordinator.close();
  return performance.now() - start < 5000 ? 0 : 1;
}

if (import.meta.main) {
  const [role, url, folder, name, ms] = Deno.args;
  const roles: Record<string, () => Promise<number>> = {
    coordinator: () => coordinate(url, folder),
    worker: () => work(url, name, sound(folder, Number(ms))),
    broken: () => workBroken(url, name),
    idle: () => idle(url),
    cancelled: () => cancelled(url),
  };
  Deno.exit(await roles[role]());
}
