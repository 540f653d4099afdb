import { type Connection, natsTarget, openConnection } from "../jobs/nats/connection.ts";
import { Coordinator } from "../jobs/nats/coordinator.ts";
import { runWorker } from "../jobs/nats/worker.ts";
import { type BatchOptions, runBatch } from "../jobs/runner.ts";
import { TEST_LIMITS } from "../jobs/testing.ts";

/*
 * A coordinator or a worker in a process of its own, that may be killed and stopped, for nats_campaign.ts. The engine
 * always answers the same. Arguments: `coordinator URL FOLDER`, or `worker URL FOLDER NAME MILLISECONDS`, where each
 * answer takes about so long.
 */

export const LEASE_MS = 1000;
export const WORKER_PARALLEL = 8;
const MODEL = {
  id: "fake",
  bytes: 1,
  fingerprint: "0".repeat(64),
  contextLength: 100,
  kvType: "f16",
};
const IN_FLIGHT = 64;

/** What the engine answers to line n. */
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

/** The server may be away just now: it is killed and started again. */
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

async function coordinate(url: string, folder: string): Promise<number> {
  const connection = await openConnection(
    natsTarget(url, undefined, () => undefined),
    "coordinator",
    () => {},
  );
  const drainSignal = new AbortController().signal;
  const options = { connection, model: MODEL, drainSignal, note: () => {}, leaseMs: LEASE_MS };
  const coordinator = await Coordinator.open(options);
  const { state } = await runBatch({
    ...jobIn(folder),
    limits: TEST_LIMITS,
    connect: () => Promise.resolve({ settings: SETTINGS, execute: coordinator.execute }),
    onEvent: (event) => {
      if (!("progress" in event)) return;
      const { requeued, fenced } = coordinator.stats;
      say(`done ${event.progress.completed + event.progress.failed} ${requeued} ${fenced}`);
    },
  });
  await coordinator.close();
  await connection.nats.close();
  return state === "done" ? 0 : 1;
}

async function work(url: string, folder: string, name: string, ms: number): Promise<number> {
  const connection = await connected(url, name);
  const never = new AbortController().signal;
  await runWorker({
    connection,
    model: MODEL,
    name,
    parallel: WORKER_PARALLEL,
    note: () => {},
    counts: { ranges: 0, lines: 0, lost: 0 },
    drainSignal: never,
    signal: never,
    answerer: async ({ body }) => {
      const n = body.n as number;
      await Deno.writeTextFile(`${folder}/executed`, `${n}\n`, { append: true });
      await new Promise((resolve) => setTimeout(resolve, ms * (0.5 + (n * 7 % 10) / 10)));
      return answerTo(n);
    },
  });
  return 0;
}

if (import.meta.main) {
  const [role, url, folder, name, ms] = Deno.args;
  Deno.exit(
    role === "coordinator" ? await coordinate(url, folder) : await work(url, folder, name, Number(ms)),
  );
}
