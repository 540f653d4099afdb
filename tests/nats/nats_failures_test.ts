import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { delay } from "@std/async/delay.js";
import type { BatchWorld } from "../../cli/batch/world.ts";
import { workerCommand } from "../../cli/batch/worker.ts";
import { EngineLife } from "../../engine/loop/engine_life.ts";
import { type Engine, EngineError } from "../../engine/mod.ts";
import { BatchError } from "../../jobs/errors.ts";
import { type Execute, runBatch } from "../../jobs/run/runner.ts";
import { TEST_LIMITS } from "../../jobs/testing.ts";
import { ask, askAll, Bench, GOOD, MODEL, seconds, URL } from "./nats_bench.ts";
import { natsServerPath } from "./nats_server.ts";
import { fullTier } from "../../testing/tier.ts";

/* Failures of engines, workers, connections and coordinators in this process, on a real nats-server. nats_test.ts reports a missing one. */

const ignore = natsServerPath() === undefined;

fullTier.test({
  name: "workers: a permanently closed connection is a BatchError on both sides",
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
    await delay(1200); // leaked timers would throw
    await assertRejects(() => worker.ended, BatchError, "has ended");
  },
});

fullTier.test({
  name: "workers: withdrawn credentials end the run with a BatchError that says so",
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

fullTier.test({
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
      const error = await assertRejects(() => broken.ended, BatchError, "answers only with server errors");
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

fullTier.test({
  name: "workers: lines go to other workers at once when the engine fails permanently",
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

fullTier.test({
  name: "batch worker: exits with 1 and releases its lines when the engine fails permanently",
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
        draw: () => {},
        columns: () => undefined,
        input: () => ReadableStream.from([]),
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
    assertStringIncludes(said, "Error: The backend is gone. The lines in flight go to other workers");
    await bench.worker("sound", GOOD);
    assertEquals((await lines).map(({ engine }) => engine), Array(4).fill("sound"));
  },
});

fullTier.test({
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

fullTier.test({
  name: "openConnection: refuses a server with too small messages",
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

fullTier.test({
  name: "workers: the documented permissions suffice, and missing ones are reported",
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

fullTier.test({
  name: "workers: the next run removes a killed coordinator's items, and the stream at its end",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const connection = await bench.connect();
    const killed = await bench.coordinator({ connection });
    const idle = await bench.coordinator();
    const lines = askAll(killed, 10).catch(() => {});
    await delay(500);
    await connection.nats.close();
    await lines;
    const { manager } = await bench.connect();
    const left = async () => {
      const { state } = await manager.streams.info("compy-batch");
      return [state.messages, state.consumer_count];
    };
    assertEquals(await left(), [10, 2]);
    const next = await bench.coordinator();
    assertEquals(await left(), [0, 2]);
    await idle.close();
    await next.close();
    assertEquals(await bench.streams(), []);
  },
});

fullTier.test({
  name: "workers: a worker stays after many failed lines if it answers another one",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator();
    let probes = 0;
    const worker = await bench.worker("w", ({ body }) => {
      const isLine = body.n !== undefined;
      if (!isLine) probes += 1;
      return Promise.resolve({ status: isLine ? 500 : 200, body: {} });
    });
    assertEquals((await askAll(coordinator, 100)).map(({ status }) => status), Array(100).fill(500));
    worker.stop();
    await worker.ended;
    assertEquals(worker.counts.lines, 100);
    assert(probes > 0);
  },
});

fullTier.test({
  name: "workers: a line that kills every worker gets an error and fails no other line",
  ignore,
  fn: async () => {
    await using bench = await Bench.start();
    const coordinator = await bench.coordinator({ leaseMs: 500 });
    let killed = 0;
    const start = async () => {
      const connection = await bench.connect();
      const { ended } = await bench.worker(`w${killed}`, async ({ body, signal }) => {
        if (body.n === 5) await connection.nats.close();
        await delay(200, { signal });
        return { status: 200, body };
      }, { connection });
      await ended.catch(() => {
        killed += 1;
        return start();
      });
    };
    const workers = start();
    const answers = await askAll(coordinator, 20);
    assertEquals(answers.map(({ status }) => status), answers.map((_, n) => n === 5 ? 500 : 200));
    assertStringIncludes(JSON.stringify(answers[5].body), "6 workers ended");
    assertEquals([killed, answers[5].final], [6, true]);
    await bench.stop();
    await workers;
  },
});
