import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { seeded, SimStorage } from "../../tests/batch/sim_storage.ts";
import { BatchError } from "../errors.ts";
import type { BatchEvent, Execute } from "./runner.ts";
import { batchLine, runOn } from "../testing.ts";

type Answer = Awaited<ReturnType<Execute>>;

function ok(n: unknown): Answer {
  return { status: 200, body: { n, usage: { prompt_tokens: 3, completion_tokens: 2 } } };
}

function disk(lines: string[]): SimStorage {
  const storage = new SimStorage(seeded(1));
  storage.put("in.jsonl", lines.join("\n"));
  return storage;
}

function outputOf(storage: SimStorage, path = "out.jsonl") {
  return (storage.content(path) ?? "").split("\n").filter((text) => text !== "").map((text) =>
    JSON.parse(text)
  );
}

const TEN = Array.from({ length: 10 }, (_, n) => batchLine(n));

Deno.test("runBatch: writes 195 answers and 5 errors for 200 lines with five different faults", async () => {
  const lines = Array.from({ length: 200 }, (_, n) => batchLine(n));
  lines[10] = "{";
  lines[50] = batchLine(49);
  lines[90] = batchLine(90, { stream: true });
  lines[130] = batchLine(130).replace("POST", "GET");
  const storage = disk(lines);
  const result = await runOn(storage, ({ body }) => {
    if (body.n === 170) return Promise.resolve({ status: 400, body: { error: { message: "too long" } } });
    return Promise.resolve(ok(body.n));
  });
  assertEquals(result.state, "done");
  assertEquals([result.counts.completed, result.counts.failed], [195, 5]);
  const bad = [10, 50, 90, 130, 170];
  const good = lines.map((_, n) => n).filter((n) => !bad.includes(n));
  assertEquals(outputOf(storage).map((out) => out.response.body.n), good);
  assertEquals(
    outputOf(storage, "err.jsonl").map((
      out,
    ) => [out.custom_id, out.response.status_code, out.response.body.error.line]),
    [[null, 400, 11], ["id-49", 400, 51], ["id-90", 400, 91], ["id-130", 400, 131], [
      "id-170",
      400,
      undefined,
    ]],
  );
});

Deno.test("runBatch: writes lines in OpenAI's format with stable ids", async () => {
  const lines = [batchLine(0), batchLine(1), batchLine(2)];
  const execute: Execute = ({ body }) => {
    if (body.n === 2) return Promise.reject(new Error("lost"));
    return Promise.resolve(
      body.n === 0 ? ok(0) : { status: 404, body: { error: { message: "no such model" } } },
    );
  };
  const [storage, other] = [disk(lines), disk(lines)];
  await runOn(storage, execute);
  await runOn(other, execute);
  const [answer] = outputOf(storage);
  const [refused, lost] = outputOf(storage, "err.jsonl");
  for (const out of [answer, refused, lost]) {
    assertEquals(Object.keys(out), ["id", "custom_id", "response", "error"]);
    assert(/^batch_req_[0-9a-f]{24}$/.test(out.id));
  }
  assertEquals(Object.keys(answer.response), ["status_code", "request_id", "body"]);
  assertEquals([answer.response.status_code, answer.response.body, answer.error], [200, ok(0).body, null]);
  assertEquals([refused.response.status_code, refused.error], [404, null]);
  assertEquals([lost.response, lost.error], [null, { code: "request_failed", message: "lost" }]);
  assertEquals(other.content("out.jsonl"), storage.content("out.jsonl"));
});

Deno.test("runBatch: keeps the given number of lines in flight, and no more", async () => {
  let now = 0, most = 0;
  await runOn(disk(TEN), async ({ body, priority }) => {
    assertEquals(priority, "batch");
    most = Math.max(most, ++now);
    await new Promise((resolve) => setTimeout(resolve, 2));
    now -= 1;
    return ok(body.n);
  });
  assertEquals(most, 4);
});

Deno.test("runBatch: requests with a common prefix follow each other", async () => {
  const lines = Array.from(
    { length: 30 },
    (_, n) => batchLine(n, { prompt: `system ${n % 3} question ${n}` }),
  );
  const order: number[] = [];
  await runOn(disk(lines), ({ body }) => {
    order.push((body.n as number) % 3);
    return Promise.resolve(ok(body.n));
  }, { parallel: 1 });
  assertEquals(order, order.toSorted());
});

Deno.test("runBatch: does not run a done job again, and does not overwrite its files", async () => {
  const storage = disk(TEN);
  const execute: Execute = ({ body }) => Promise.resolve(ok(body.n));
  const first = await runOn(storage, execute);
  const connect = () => Promise.reject(new Error("not needed"));
  assertEquals(await runOn(storage, execute, { connect }), { state: "already_done", counts: first.counts });
  storage.put("out.jsonl", "mine");
  await assertRejects(() => runOn(storage, execute, { connect }), BatchError, "has 4 bytes now instead of");
  await storage.remove("out.jsonl");
  await assertRejects(() => runOn(storage, execute, { connect }), BatchError, '"out.jsonl" is gone');
});

Deno.test("runBatch: does not overwrite files of another job", async () => {
  for (const path of ["out.jsonl", "err.jsonl"]) {
    const storage = disk(TEN);
    storage.put(path, "precious");
    const error = await assertRejects(() => runOn(storage, () => Promise.resolve(ok(1))), BatchError);
    assertEquals([(error as BatchError).code, (error as BatchError).resumable], ["output_exists", false]);
    assertEquals(storage.paths(), ["in.jsonl", path].sort());
  }
});

Deno.test("runBatch: refuses one path for two files", async () => {
  const options = [{ output: "in.jsonl" }, { errors: "./in.jsonl" }, { errors: "out.jsonl" }, {
    errors: "out.jsonl.journal",
  }];
  for (const more of options) {
    const error = await assertRejects(() => runOn(disk(TEN), () => Promise.resolve(ok(1)), more), BatchError);
    assertEquals((error as BatchError).code, "same_file");
  }
});

Deno.test("runBatch: refuses to resume with another input or another model", async () => {
  const storage = disk(TEN);
  const stop = new AbortController();
  const execute: Execute = ({ body }) => {
    if (body.n === 4) stop.abort();
    return Promise.resolve(ok(body.n));
  };
  assertEquals((await runOn(storage, execute, { drainSignal: stop.signal })).state, "stopped");
  const connect = () => Promise.resolve({ execute, settings: { model: "other" } });
  await assertRejects(() => runOn(storage, execute, { connect }), BatchError, 'begun with model "m"');
  storage.put("in.jsonl", TEN.slice(1).join("\n"));
  await assertRejects(() => runOn(storage, execute), BatchError, "belongs to another input");
  storage.put("in.jsonl", TEN.join("\n"));
  assertEquals((await runOn(storage, execute)).state, "done");
});

Deno.test("runBatch: resumes on another processor and reports it", async () => {
  const storage = disk(TEN);
  const stop = new AbortController();
  const execute: Execute = ({ body }) => {
    if (body.n === 4) stop.abort();
    return Promise.resolve(ok(body.n));
  };
  const on = (processor: string) => () => Promise.resolve({ execute, settings: { model: "m" }, processor });
  await runOn(storage, execute, { drainSignal: stop.signal, connect: on("avx2") });
  const events: BatchEvent[] = [];
  await runOn(storage, execute, { connect: on("neon"), onEvent: (event) => events.push(event) });
  assertEquals(events[0], { type: "other_processor", before: "avx2", now: "neon" });
  assertEquals(events.filter(({ type }) => type === "other_processor").length, 1);
});

Deno.test("runBatch: drain finishes the lines in flight, stop does not wait, and both can resume", async () => {
  for (const kind of ["drainSignal", "signal"] as const) {
    const storage = disk(TEN);
    const stop = new AbortController();
    const gate = Promise.withResolvers<void>();
    const executed: number[] = [];
    const first = runOn(storage, async ({ body }) => {
      executed.push(body.n as number);
      if (executed.length === 6) stop.abort();
      if (executed.length > 4) await gate.promise;
      return ok(body.n);
    }, { [kind]: stop.signal });
    if (kind === "drainSignal") setTimeout(gate.resolve, 5);
    const { state, counts } = await first;
    assertEquals(state, "stopped");
    assertEquals(counts.completed >= 4 && counts.completed < 10, true);
    if (kind === "drainSignal") assertEquals(counts.completed, executed.length);
    const before = counts.completed;
    let again = 0;
    const second = await runOn(storage, ({ body }) => {
      again += 1;
      return Promise.resolve(ok(body.n));
    });
    assertEquals([second.state, again], ["done", 10 - before]);
    assertEquals(outputOf(storage).map(({ custom_id }) => custom_id), TEN.map((_, n) => `id-${n}`));
    gate.resolve();
  }
});

Deno.test("runBatch: a stop while the engine loads is reported and leaves no files", async () => {
  const storage = disk(TEN);
  const stop = new AbortController();
  const connect = () => {
    stop.abort();
    return Promise.reject(stop.signal.reason);
  };
  const result = await runOn(storage, () => Promise.resolve(ok(1)), { connect, signal: stop.signal });
  assertEquals(result.state, "stopped");
  assertEquals(storage.paths(), ["in.jsonl"]);
});

Deno.test("runBatch: a model that cannot be opened leaves no files", async () => {
  const storage = disk(TEN);
  const connect = () => Promise.reject(new Error("no such model"));
  await assertRejects(
    () => runOn(storage, () => Promise.resolve(ok(1)), { connect }),
    Error,
    "no such model",
  );
  assertEquals(storage.paths(), ["in.jsonl"]);
});

Deno.test("runBatch: retries while the engine is busy", async () => {
  const storage = disk(TEN.slice(0, 2));
  const asked = new Map<unknown, number>();
  const result = await runOn(storage, ({ body }) => {
    asked.set(body.n, (asked.get(body.n) ?? 0) + 1);
    const status = asked.get(body.n) === 1 ? 429 : 503;
    return Promise.resolve(asked.get(body.n)! < 3 ? { status, body: {} } : ok(body.n));
  });
  assertEquals([result.counts.completed, [...asked.values()]], [2, [3, 3]]);
});

Deno.test("runBatch: stops the job when the engine stays busy, and can resume it", async () => {
  const storage = disk(TEN);
  const busy: Execute = () => Promise.resolve({ status: 503, body: {} });
  const error = await assertRejects(() => runOn(storage, busy, { patienceMs: 20 }), BatchError, "busy");
  assertEquals((error as BatchError).resumable, true);
  assertEquals((await runOn(storage, ({ body }) => Promise.resolve(ok(body.n)))).counts.completed, 10);
});

Deno.test("runBatch: a broken engine does not turn the rest of the file into errors", async () => {
  const lines = Array.from({ length: 100 }, (_, n) => batchLine(n));
  for (
    const broken of [
      () => Promise.reject(new Error("worker died")),
      () => Promise.resolve({ status: 500, body: {} }),
    ]
  ) {
    const storage = disk(lines);
    let asked = 0;
    const execute: Execute = ({ body }) => ++asked > 20 ? broken() : Promise.resolve(ok(body.n));
    const error = await assertRejects(() => runOn(storage, execute), BatchError, "last 16 requests failed");
    assertEquals((error as BatchError).resumable, true);
    const result = await runOn(storage, ({ body }) => Promise.resolve(ok(body.n)));
    assertEquals([result.counts.completed, result.counts.failed], [100, 0]);
  }
});

Deno.test("runBatch: an invalid answer becomes an error of its line", async () => {
  const cyclic: Record<string, unknown> = {};
  cyclic.self = cyclic;
  const answers: unknown[] = [
    undefined,
    { status: "200", body: {} },
    { status: 200 },
    { status: 200, body: cyclic },
    { status: 0, body: {} },
    ok(5),
  ];
  const storage = disk(TEN.slice(0, answers.length));
  const result = await runOn(storage, ({ body }) => Promise.resolve(answers[body.n as number] as Answer));
  assertEquals([result.counts.completed, result.counts.failed], [1, 5]);
  for (const { error } of outputOf(storage, "err.jsonl")) assertEquals(error.code, "invalid_answer");
});

Deno.test("runBatch: stops when the input changes during the job", async () => {
  const storage = disk(TEN);
  const connect = () => {
    storage.rewrite("in.jsonl", TEN.map((text) => text.replace('"prompt":"p"', '"prompt":"q"')).join("\n"));
    return Promise.resolve({ execute: () => Promise.resolve(ok(1)), settings: {} });
  };
  const error = await assertRejects(
    () => runOn(storage, () => Promise.resolve(ok(1)), { connect }),
    BatchError,
  );
  assertEquals((error as BatchError).code, "input_changed");
});

Deno.test("runBatch: reports refusals first, then progress", async () => {
  const events: BatchEvent[] = [];
  await runOn(disk([...TEN, "{"]), ({ body }) => Promise.resolve(ok(body.n)), {
    onEvent: (event) => events.push(event),
  });
  assertEquals([events[0].type, events[1].type, events.at(-1)!.type], ["refused", "started", "finishing"]);
  let last = -1;
  for (const event of events) {
    if (event.type !== "progress") continue;
    const done = event.progress.completed + event.progress.failed;
    assert(done >= last && event.progress.doneBytes <= event.progress.totalBytes);
    last = done;
  }
  assertEquals(last, 11);
});

Deno.test("runBatch: reports a missing input and a missing folder", async () => {
  const execute: Execute = () => Promise.resolve(ok(1));
  const missing = await assertRejects(() => runOn(disk([]), execute, { input: "no.jsonl" }), BatchError);
  assertStringIncludes((missing as Error).message, 'Cannot read "no.jsonl": there is no such file');
  await assertRejects(
    () => runOn(disk(TEN), execute, { output: "no/out.jsonl" }),
    BatchError,
    'there is no folder "no"',
  );
});
