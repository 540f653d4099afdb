import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { jetstreamManager } from "@nats-io/jetstream";
import type { BatchWorld } from "../cli/batch_world.ts";
import { workerCommand } from "../cli/batch_worker.ts";
import { EngineLife } from "../engine/engine_life.ts";
import { type Engine, EngineError } from "../engine/types.ts";
import { BatchError } from "../jobs/errors.ts";
import { type Connection, natsTarget, openConnection } from "../jobs/nats/connection.ts";
import { Coordinator } from "../jobs/nats/coordinator.ts";
import { runWorker, type WorkerOptions } from "../jobs/nats/worker.ts";
import { type Execute, runBatch } from "../jobs/runner.ts";
import { TEST_LIMITS } from "../jobs/testing.ts";
import { NatsServer, natsServerPath } from "./nats_server.ts";

/* Coordinators and workers in this process, on a real nats-server. Its absence is told by nats_test.ts. */

const ignore = natsServerPath() === undefined;
const MODEL = { model: "fake" };
const URL = "/v1/completions";
const GOOD: Execute = ({ body }) => Promise.resolve({ status: 200, body: { n: body.n } });

/** What a test opens is closed at its end, the workers first. */
class Bench implements AsyncDisposable {
  readonly notes: string[] = [];
  private readonly workers: { stop: () => void; ended: Promise<unknown> }[] = [];
  private readonly coordinators: Coordinator[] = [];
  private readonly connections: Connection[] = [];

  private constructor(readonly server: NatsServer) {}

  static async start(args: string[] = ["-js"]): Promise<Bench> {
    return new Bench(await NatsServer.start(args));
  }

  async connect(url = this.server.url): Promise<Connection> {
    const note = (text: string) => void this.notes.push(text);
    const connection = await openConnection(natsTarget(url, undefined, () => undefined), "test", note);
    this.connections.push(connection);
    return connection;
  }

  async coordinator(options: { connection?: Connection; leaseMs?: number; drainSignal?: AbortSignal } = {}) {
    const note = (text: string) => void this.notes.push(text);
    const drainSignal = new AbortController().signal;
    const connection = options.connection ?? await this.connect();
    const made = await Coordinator.open({ model: MODEL, note, drainSignal, ...options, connection });
    this.coordinators.push(made);
    return made;
  }

  async worker(name: string, answerer: Execute, options: Partial<WorkerOptions> = {}) {
    const stop = new AbortController();
    const connection = options.connection ?? await this.connect();
    const counts = { lines: 0 };
    const ended = runWorker({
      model: MODEL,
      name,
      parallel: 8,
      answerer,
      note: (text) => void this.notes.push(`${name}: ${text}`),
      counts,
      drainSignal: stop.signal,
      signal: new AbortController().signal,
      ...options,
      connection,
    });
    ended.catch(() => {}); // whoever waits for it hears of it
    this.workers.push({ stop: () => stop.abort(), ended });
    return { ended, counts, stop: () => stop.abort() };
  }

  /** The streams on the server. */
  async streams(url = this.server.url): Promise<string[]> {
    const { nats } = await this.connect(url);
    const found = await Array.fromAsync((await jetstreamManager(nats)).streams.list());
    return found.map(({ config }) => config.name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { stop } of this.workers) stop();
    await Promise.allSettled(this.workers.map(({ ended }) => ended));
    for (const coordinator of this.coordinators) await coordinator.close();
    for (const { nats } of this.connections) await nats.close();
    await this.server[Symbol.asyncDispose]();
  }
}

const never = new AbortController().signal;

function ask(coordinator: Coordinator, n: number, signal = never) {
  return coordinator.execute({ url: URL, body: { n }, priority: "batch", signal });
}

function askAll(coordinator: Coordinator, lines: number) {
  return Promise.all(Array.from({ length: lines }, (_, n) => ask(coordinator, n)));
}

async function seconds(action: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await action();
  return (performance.now() - start) / 1000;
}

Deno.test({
  name:
    "workers: lines that nobody wants any more end at once without a worker, and a later one finds nothing",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator();
    const cancel = new AbortController();
    const lines = Array.from({ length: 20 }, (_, n) => ask(coordinator, n, cancel.signal));
    await delay(200);
    cancel.abort(new Error("cancelled"));
    assert(await seconds(() => Promise.allSettled(lines)) < 1);
    for (const line of lines) await assertRejects(() => line, Error, "cancelled");
    await coordinator.close();
    assertEquals(await bench.streams(), []);
    const worker = await bench.worker("late", GOOD);
    await delay(1200);
    assertEquals(worker.counts.lines, 0);
  },
});

Deno.test({
  name:
    "workers: a line that is cancelled in a worker's hands ends at once, and the worker hears when the run ends",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator();
    const begun = Promise.withResolvers<AbortSignal>();
    await bench.worker("slow", async ({ signal }) => {
      begun.resolve(signal);
      await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      throw new Error("unreachable");
    });
    const cancel = new AbortController();
    const line = ask(coordinator, 0, cancel.signal);
    const signal = await begun.promise;
    cancel.abort(new Error("cancelled"));
    await assertRejects(() => line, Error, "cancelled");
    await coordinator.close();
    for (let n = 0; n < 100 && !signal.aborted; n++) await delay(20);
    assert(signal.aborted);
  },
});

Deno.test({
  name: "workers: runs without lines cost a busy run nothing",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const [busy] = [await bench.coordinator(), await bench.coordinator(), await bench.coordinator()];
    await bench.worker("w", GOOD);
    await askAll(busy, 8);
    assert(await seconds(() => askAll(busy, 400)) < 10);
  },
});

Deno.test({
  name: "workers: one worker of one line serves two runs by turns",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const runs = [await bench.coordinator(), await bench.coordinator()];
    const done = [0, 0];
    const work = runs.map((run, which) =>
      Promise.all(Array.from({ length: 40 }, async (_, n) => {
        await ask(run, n);
        done[which] += 1;
      }))
    );
    const slow: Execute = async () => {
      await delay(5);
      return { status: 200, body: {} };
    };
    await bench.worker("w", slow, { parallel: 1 });
    await Promise.race(work);
    const [least, most] = done.toSorted((a, b) => a - b);
    assertEquals(most, 40);
    assert(least >= 20, `${done} lines were answered`);
    await Promise.all(work);
  },
});

Deno.test({
  name: "workers: a connection that is closed for good is a BatchError on both sides, and nothing else",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const [one, other] = [await bench.connect(), await bench.connect()];
    const coordinator = await bench.coordinator({ connection: one });
    const forever: Execute = async ({ signal }) => {
      await delay(60_000, { signal });
      return { status: 200, body: {} };
    };
    const worker = await bench.worker("w", forever, { connection: other });
    const line = ask(coordinator, 0);
    const failing = assertRejects(() => line, BatchError, "has ended");
    await delay(700);
    await one.nats.close();
    await other.nats.close();
    await failing;
    const error = await assertRejects(() => ask(coordinator, 1), BatchError);
    assertEquals([error.code, error.resumable], ["queue_unavailable", true]);
    await delay(1200); // timers would throw
    await assertRejects(() => worker.ended, BatchError, "has ended");
  },
});

Deno.test({
  name: "workers: credentials that are withdrawn end the run with a BatchError that says so",
  ignore,
  fn: async () => {
    await using bench = await Bench.start(["-js", "--user", "me", "--pass", "secret"]);
    const { port } = bench.server;
    const connection = await bench.connect(`nats://me:secret@127.0.0.1:${port}`);
    const coordinator = await bench.coordinator({ connection });
    const line = assertRejects(() => ask(coordinator, 0), BatchError, "Authorization Violation");
    await bench.server.restart(["-js", "--user", "me", "--pass", "other"]);
    await line;
  },
});

Deno.test({
  name:
    "workers: one whose engine gives only server errors hands its lines back and leaves; no line is burned",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const folder = await Deno.makeTempDir({ prefix: "compy-nats-broken-" });
    try {
      const lines = Array.from(
        { length: 60 },
        (_, n) => JSON.stringify({ custom_id: `${n}`, method: "POST", url: URL, body: { n } }),
      );
      await Deno.writeTextFile(`${folder}/in.jsonl`, lines.join("\n"));
      const coordinator = await bench.coordinator();
      const broken = await bench.worker(
        "broken",
        () => Promise.resolve({ status: 500, body: { error: { message: "out of order" } } }),
      );
      const job = runBatch({
        input: `${folder}/in.jsonl`,
        output: `${folder}/out.jsonl`,
        errors: `${folder}/err.jsonl`,
        parallel: 32,
        connect: () => Promise.resolve({ settings: MODEL, execute: coordinator.execute }),
        limits: TEST_LIMITS,
      });
      const error = await assertRejects(() => broken.ended, BatchError, "nothing but server errors");
      assertStringIncludes(error.message, "out of order");
      await bench.worker("sound", GOOD);
      const { state, counts } = await job;
      assertEquals([state, counts.completed, counts.failed], ["done", 60, 0]);
      assert(bench.notes.includes("Worker broken has left"));
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
});

Deno.test({
  name: "workers: when the engine fails for good the lines in hand go to others at once",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator();
    const failed = new AbortController();
    const dying = await bench.worker("dying", async ({ signal }) => {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      return { status: 500, body: { error: { code: "engine_failed" } } };
    }, { engineFailed: failed.signal });
    const lines = askAll(coordinator, 8);
    await delay(1500);
    failed.abort(new BatchError("engine_unavailable", "The engine is dead", true));
    await assertRejects(() => dying.ended, BatchError, "The engine is dead");
    await bench.worker("sound", GOOD);
    // A lease lasts 15 seconds.
    const took = await seconds(() => lines);
    assert(took < 8, `${took} s`);
    assertEquals((await lines).map(({ status }) => status), Array(8).fill(200));
  },
});

Deno.test({
  name: "workers: one that stops ends its lines, however long they take, and takes no new ones",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator({ leaseMs: 1500 });
    const begun = Promise.withResolvers<void>();
    const slow: Execute = async ({ body, signal }) => {
      begun.resolve();
      await delay(4000, { signal });
      return { status: 200, body };
    };
    const worker = await bench.worker("slow", slow, { parallel: 1 });
    const [first, second] = [ask(coordinator, 0), ask(coordinator, 1)];
    await begun.promise;
    worker.stop();
    await worker.ended;
    await bench.worker("next", GOOD);
    assertEquals([(await first).engine, worker.counts.lines], ["slow", 1]);
    assertEquals((await second).engine, "next");
    assertEquals(coordinator.stats, { repeated: 0, late: 0 });
  },
});

Deno.test({
  name: "batch worker: an engine that fails for good ends it with exit code 1, and its lines go to others",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator();
    const life = new EngineLife("ready");
    const engine = {
      model: { id: "fake" },
      get state() {
        return life.state;
      },
      get failure() {
        return life.failure;
      },
      onState: (listener: Parameters<Engine["onState"]>[0]) => life.onState(listener),
      close: () => Promise.resolve(),
    } as unknown as Engine;
    const begun = Promise.withResolvers<void>();
    let said = "";
    const world: BatchWorld = {
      host: {
        out: (text) => void (said += text),
        err: (text) => void (said += text),
        columns: () => undefined,
        now: () => performance.now(),
        onInterrupt: () => () => {},
      },
      openEngine: () => Promise.resolve({ engine, identity: MODEL }),
      execute: async (_, { signal }) => {
        begun.resolve();
        await delay(60_000, { signal });
        return { status: 200, body: {} };
      },
    };
    const command = workerCommand(["--nats", bench.server.url, "--name", "dying", "--parallel", "4"], world);
    const lines = askAll(coordinator, 4);
    await begun.promise;
    life.fail(new EngineError("engine_failed", "The backend is gone"));
    assertEquals(await command, 1, said);
    assertStringIncludes(said, "Error: The backend is gone. The lines in hand go to other workers");
    await bench.worker("sound", GOOD);
    assertEquals((await lines).map(({ engine }) => engine), Array(4).fill("sound"));
  },
});

Deno.test({
  name: "workers: answers and failures name the worker",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator();
    const worker = await bench.worker("w", ({ body }) => {
      if (body.n === 3) return Promise.resolve({ status: 500, body: { error: { message: "no" } } });
      if (body.n === 4) return Promise.reject(new Error("never"));
      return Promise.resolve({ status: 200, body: {} });
    });
    const answers = await Promise.all([0, 1, 2, 3].map((n) => ask(coordinator, n)));
    assertEquals(
      answers.map(({ status, engine }) => [status, engine]),
      [200, 200, 200, 500].map((s) => [s, "w"]),
    );
    const error = await assertRejects(() => ask(coordinator, 4), Error, "never");
    assertEquals((error as { engine?: string }).engine, "w");
    worker.stop();
    await worker.ended;
    assertEquals(worker.counts, { lines: 5 });
  },
});

Deno.test({
  name:
    "workers: requests and answers that are larger than a message arrive whole, and nothing stays on the server",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator();
    await bench.worker("w", ({ body }) =>
      Promise.resolve({
        status: 200,
        body: { text: (body.prompt as string).replaceAll("a", "xy"), n: (body.prompt as string).length },
      }));
    const prompt = `${"ab".repeat(2_000_000)}\u20ac`;
    const { status, body } = await coordinator.execute({
      url: URL,
      body: { prompt },
      priority: "batch",
      signal: never,
    });
    assertEquals([status, body.n], [200, prompt.length]);
    assert(body.text === prompt.replaceAll("a", "xy"));
    await coordinator.close();
    assertEquals(await bench.streams(), []);
  },
});

Deno.test({
  name: "workers: a run that ends leaves the stream to those that go on",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const [one, other] = [await bench.coordinator(), await bench.coordinator()];
    const lines = askAll(other, 10);
    await one.close();
    assertEquals(await bench.streams(), ["compy-batch"]);
    await bench.worker("w", GOOD);
    assertEquals((await lines).length, 10);
    await other.close();
    assertEquals(await bench.streams(), []);
  },
});

Deno.test({
  name:
    "workers: what a killed coordinator left in the queue is answered by nobody, and the next one is not disturbed",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const connection = await bench.connect();
    const killed = await bench.coordinator({ connection });
    const lines = askAll(killed, 10).catch(() => {});
    await delay(500);
    await connection.nats.close();
    await lines;
    const worker = await bench.worker("w", GOOD);
    await delay(1200);
    assertEquals([await bench.streams(), worker.counts.lines], [["compy-batch"], 0]);
    const next = await bench.coordinator();
    assertEquals((await askAll(next, 10)).map(({ body }) => body.n), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  },
});

Deno.test({
  name: "openConnection: a server whose messages are too small is refused",
  ignore,
  fn: async () => {
    const file = await Deno.makeTempFile({ prefix: "compy-nats-payload-" });
    await Deno.writeTextFile(file, "max_payload: 8192\n");
    try {
      await using bench = await Bench.start(["-js", "-c", file]);
      await assertRejects(() => bench.connect(), BatchError, "must be at least 16384 bytes (got 8192)");
    } finally {
      await Deno.remove(file);
    }
  },
});

Deno.test({
  name: "workers: the permissions that the documents name are enough, and less is told",
  ignore,
  fn: async () => {
    const folder = await Deno.makeTempDir({ prefix: "compy-nats-permissions-" });
    const list = (subjects: string[]) => `[${subjects.map((subject) => JSON.stringify(subject)).join(", ")}]`;
    const user = (name: string, publish: string[], subscribe: string[]) =>
      `{ user: ${name}, password: p, permissions: { publish: ${list(publish)}, subscribe: ${
        list(subscribe)
      } } }`;
    const worker = [
      "compy.batch.run.>",
      "$JS.API.INFO",
      "$JS.API.CONSUMER.INFO.compy-batch.>",
      "$JS.API.CONSUMER.MSG.NEXT.compy-batch.>",
      "$JS.ACK.compy-batch.>",
    ];
    await Deno.writeTextFile(
      `${folder}/server.conf`,
      `authorization { users: [
        ${user("worker", worker, ["compy.batch.runs", "_INBOX.>"])},
        ${user("run", ["compy.batch.>", "$JS.API.>", "_INBOX.>"], ["compy.batch.run.>", "_INBOX.>"])},
        ${user("poor", ["compy.batch.>", "$JS.API.INFO"], ["compy.batch.run.>", "_INBOX.>"])}
      ] }`,
    );
    try {
      await using bench = await Bench.start(["-js", "-c", `${folder}/server.conf`]);
      const as = (name: string) => bench.connect(`nats://${name}:p@127.0.0.1:${bench.server.port}`);
      const coordinator = await bench.coordinator({ connection: await as("run") });
      await bench.worker("w", GOOD, { connection: await as("worker") });
      assertEquals((await askAll(coordinator, 20)).length, 20);
      await bench.worker("deaf", GOOD, { connection: await as("poor") });
      const connection = await as("poor");
      const error = await assertRejects(() => bench.coordinator({ connection }), BatchError);
      assertEquals(error.code, "queue_unavailable");
      assertStringIncludes(error.message, "Cannot make the stream");
      assertStringIncludes(error.message.toLowerCase(), "permission");
      assert(
        bench.notes.some((note) => /permissions violation.*compy\.batch\.runs/i.test(note)),
        `${bench.notes}`,
      );
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
});
