import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { deadline } from "@std/async/deadline.js";
import { delay } from "@std/async/delay.js";
import { EngineError } from "../api/errors.ts";
import { ModelError, type Models } from "./types.ts";
import { FakeEngine } from "../../routes/testing.ts";
import { until } from "../../routes/testing_server.ts";
import { Random } from "../../testing/random.ts";
import { source, testPool } from "./testing.ts";

/** Returns a model's answer, as a request would get it. */
async function ask(models: Models, name: string, prompt = "Hi", priority?: "interactive" | "batch") {
  const { engine, release } = await models.use(name, { priority });
  try {
    let text = "";
    for await (const event of engine.submit({ prompt: engine.encodePrompt(prompt) })) {
      text += event.type === "token" || event.type === "finish" ? event.text : "";
    }
    return text;
  } finally {
    release();
  }
}

const states = (models: Models) => models.list().map(({ state }) => state).join(" ");

Deno.test("pool: loads a model at its first request by id or alias, and refuses unknown names", async () => {
  const { pool, log } = testPool();
  assertEquals(states(pool), "unloaded unloaded unloaded");
  assertEquals(await ask(pool, "b"), "b: Hi");
  assertEquals(await ask(pool, "b-alias"), "b: Hi");
  assertEquals(await ask(pool, "b-alias:latest"), "b: Hi");
  assertEquals([log, states(pool)], [["load b"], "unloaded ready unloaded"]);
  const unknown = await assertRejects(() => pool.use("d"), ModelError, 'There is no model "d" here');
  assertEquals(unknown.code, "model_not_found");
  const missing = await assertRejects(() => pool.use(undefined), ModelError, 'use one of "a", "b", "c"');
  assertEquals(missing.code, "model_required");
  await pool.close();
  assertEquals(log.at(-1), "close b");
});

Deno.test("pool: unloads the least recently used idle model when memory is short, never one in use", async () => {
  const { pool, log } = testPool({ roomMs: 50, turns: { turnMs: 10_000 } });
  await ask(pool, "a");
  await ask(pool, "b");
  await ask(pool, "a");
  await ask(pool, "c");
  assertEquals(log, ["load a", "load b", "close b", "load c"]);
  const held = [await pool.use("a"), await pool.use("c")];
  const refused = await assertRejects(() => pool.use("b"), ModelError);
  assertEquals([refused.code, refused.more.details], [
    "no_memory_for_model",
    { needed_bytes: 10, free_bytes: 0, budget_bytes: 20 },
  ]);
  assert(refused.more.retryAfter! > 0);
  held[0].release();
  held[0].release(); // releasing twice has the same effect as once
  assertEquals(await ask(pool, "b"), "b: Hi");
  assertEquals(log.slice(4), ["close a", "load b"]);
  held[1].release();
  await pool.close();
});

Deno.test("pool: a suspended process does not time out waiting requests", async () => {
  const { pool } = testPool({ models: { a: 10, b: 20 }, roomMs: 500, turns: { turnMs: 10_000 } });
  const { release } = await pool.use("a");
  const asked = ask(pool, "b");
  await delay(50);
  for (const end = performance.now() + 1000; performance.now() < end;);
  await delay(50);
  release();
  assertEquals(await asked, "b: Hi");
  await pool.close();
});

Deno.test("pool: refuses a model larger than the budget at once, states the sizes, and unloads nothing", async () => {
  const { pool, log } = testPool({ models: { a: 10, huge: 21 } });
  await ask(pool, "a");
  const refused = await assertRejects(() => pool.use("huge"), ModelError, "it needs 1 MB");
  assertEquals(refused.more.details, { needed_bytes: 21, free_bytes: 10, budget_bytes: 20 });
  assertEquals(log, ["load a"]);
  await pool.close();
});

Deno.test("pool: checks the free memory as well as the budget", async () => {
  let free = 5;
  const { pool } = testPool({ free: () => free });
  await assertRejects(() => pool.use("a"), ModelError, "No room");
  free = 10;
  assertEquals(await ask(pool, "a"), "a: Hi");
  await pool.close();
});

Deno.test("pool: three models in memory for two take turns and answer every request", async () => {
  const { pool, log, loaded } = testPool({ tokenMs: 2 });
  const names = Array.from({ length: 60 }, (_, i) => "abc"[(i * 7) % 3]);
  const answers = await Promise.all(names.map(async (name, i) => {
    await delay(3 * i);
    return await ask(pool, name, `question ${i}`);
  }));
  assertEquals(answers, names.map((name, i) => `${name}: question ${i}`));
  assert(loaded() <= 20);
  assert(log.length < 60, `${log}`); // far fewer loads than requests
  await pool.close();
});

Deno.test("pool: limits the requests that wait for a load, and continues the load when one is cancelled", async () => {
  const gate = Promise.withResolvers<void>();
  const { pool, log } = testPool({ waiting: 3, loading: () => gate.promise });
  const abort = new AbortController();
  const waiting = [pool.use("a"), pool.use("a", { signal: abort.signal }), pool.use("a")];
  await delay(5);
  assertEquals(states(pool), "loading unloaded unloaded");
  assertEquals((await assertRejects(() => pool.use("a"), ModelError)).code, "queue_full");
  abort.abort(new Error("gone"));
  await assertRejects(() => waiting[1], Error, "gone");
  await assertRejects(() => pool.use("a", { signal: abort.signal }), Error, "gone");
  gate.resolve();
  for (const held of [await waiting[0], await waiting[2]]) held.release();
  assertEquals([log, states(pool)], [["load a"], "ready unloaded unloaded"]);
  await pool.close();
});

Deno.test("pool: a failed load rejects all waiting requests with its reason and is not retried at once", async () => {
  let broken = true;
  const { pool, log, notes } = testPool({
    retryMs: 60,
    loading: (id) =>
      broken ? Promise.reject(new Error(`/models/${id}.gguf: the file is cut`)) : Promise.resolve(),
  });
  const waiting = [pool.use("a"), pool.use("a")].map((use) => assertRejects(() => use, ModelError));
  for (const { code, message } of await Promise.all(waiting)) {
    assertEquals(code, "model_load_failed");
    assertStringIncludes(message, 'Model "a" cannot be loaded: a.gguf: the file is cut');
    assert(!message.includes("/models"));
  }
  assertEquals(states(pool), "failed unloaded unloaded");
  for (let i = 0; i < 10; i++) await assertRejects(() => pool.use("a"), ModelError, "the file is cut");
  assertEquals([log, notes.length], [["load a"], 1]);
  assertEquals(await ask(pool, "b").catch(() => "failed"), "failed");
  broken = false;
  await pool.load("b"); // an explicit load is not delayed
  await delay(70);
  assertEquals(await ask(pool, "a"), "a: Hi");
  await pool.close();
});

Deno.test("pool: unloading finishes running requests, and later requests load the model again", async () => {
  const { pool, log } = testPool({ tokenMs: 3 });
  const running = ask(pool, "a");
  await delay(15);
  const unloaded = pool.unload("a");
  assertEquals(states(pool), "draining unloaded unloaded");
  const later = ask(pool, "a", "later");
  assertEquals(await running, "a: Hi");
  await unloaded;
  assertEquals(await later, "a: later");
  assertEquals(log, ["load a", "close a", "load a"]);
  await pool.unload("a");
  await pool.unload("a");
  await assertRejects(() => pool.unload("d"), ModelError);
  assertEquals(states(pool), "unloaded unloaded unloaded");
  await pool.close();
});

Deno.test("pool: closes a model that was unloaded too late to stop its load", async () => {
  const gate = Promise.withResolvers<void>();
  const engine = new FakeEngine();
  const load = () => gate.promise.then(() => engine);
  const { pool } = testPool({ open: () => Promise.resolve({ bytes: 10, load }) });
  const waiting = assertRejects(() => pool.use("a"), ModelError, "unloaded");
  await delay(5);
  const unloaded = pool.unload("a");
  gate.resolve();
  await deadline(unloaded, 5000);
  await waiting;
  assertEquals(states(pool), "unloaded unloaded unloaded");
  await pool.close();
});

Deno.test("pool: unloading stops a running load and rejects its waiting requests", async () => {
  const { pool, log } = testPool({
    loading: (_, signal) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
  });
  const waiting = assertRejects(() => pool.use("a"), ModelError, "unloaded");
  await delay(5);
  await pool.unload("a");
  await waiting;
  assertEquals([log, states(pool)], [["load a"], "unloaded unloaded unloaded"]);
  await pool.close();
});

Deno.test("pool: a request after an unload during loading waits for the next load", async () => {
  const stopped = Promise.withResolvers<void>();
  let loads = 0;
  const { pool } = testPool({
    loading: (_, signal) => {
      if (loads++ > 0) return Promise.resolve();
      // A load stops between two tensors, some time after the abort.
      return new Promise((_, reject) =>
        signal.addEventListener("abort", () => stopped.promise.then(() => reject(signal.reason)))
      );
    },
  });
  const before = assertRejects(() => pool.use("a"), ModelError, "unloaded");
  await delay(5);
  const unloaded = pool.unload("a");
  await deadline(before, 5000);
  const after = pool.use("a");
  await delay(5);
  stopped.resolve();
  await deadline(unloaded, 5000);
  (await deadline(after, 5000)).release();
  assertEquals([loads, states(pool)], [2, "ready unloaded unloaded"]);
  await pool.close();
});

Deno.test("pool: an unload of a model in use resolves at the latest when the pool closes", async () => {
  const { pool } = testPool();
  const held = await pool.use("a");
  const unloaded = pool.unload("a");
  await delay(5);
  await pool.close();
  await unloaded;
  held.release();
});

Deno.test("pool: a model that was unloaded before its idle time is loaded again as usual", async () => {
  const { pool, log } = testPool({ idleMs: 30 });
  await ask(pool, "a");
  await pool.unload("a");
  await delay(60);
  const held = await pool.use("a");
  assertEquals(states(pool), "ready unloaded unloaded");
  assertEquals(await ask(pool, "a"), "a: Hi");
  held.release();
  assertEquals(log, ["load a", "close a", "load a"]);
  await pool.close();
});

Deno.test("pool: closes a failed engine, and its next request loads it again", async () => {
  const { pool, log, engines } = testPool({ retryMs: 30 });
  await ask(pool, "a");
  engines.get("a")!.become("failed", new EngineError("engine_failed", "the device is gone"));
  await delay(5);
  assertEquals([log, states(pool)], [["load a", "close a"], "failed unloaded unloaded"]);
  await assertRejects(() => pool.use("a"), ModelError, "the device is gone");
  await delay(40);
  assertEquals(await ask(pool, "a"), "a: Hi");
  await pool.close();
});

Deno.test("pool: the last request decides how long its model stays loaded", async () => {
  const { pool, log } = testPool({ idleMs: 30 });
  (await pool.use("a", { keepMs: 1e12 })).release();
  assert(pool.find("a")!.unloadsAt! > Date.now() + 1e11);
  (await pool.use("b", { keepMs: Infinity })).release();
  assertEquals(pool.find("b")!.unloadsAt, undefined);
  await delay(60);
  assertEquals(log, ["load a", "load b"]);
  (await pool.use("a")).release();
  await until(() => log.includes("close a"));
  (await pool.use("b", { keepMs: 0 })).release();
  await until(() => log.includes("close b"));
  await pool.close();
});

Deno.test("pool: unloads idle models after a while, but not one in use", async () => {
  const { pool, log } = testPool({ idleMs: 40 });
  const held = await pool.use("a");
  await ask(pool, "b");
  await delay(120);
  assertEquals([log, states(pool)], [["load a", "load b", "close b"], "ready unloaded unloaded"]);
  held.release();
  await delay(80);
  assertEquals(states(pool), "unloaded unloaded unloaded");
  await pool.close();
});

Deno.test("pool: batches do not displace models that requests use, and requests get a batch's memory", async () => {
  const { pool, log } = testPool({ budget: 10, tokenMs: 2 });
  await ask(pool, "a");
  const line = ask(pool, "b", "line", "batch");
  for (let i = 0; i < 5; i++) {
    await delay(30);
    await ask(pool, "a");
  }
  assertEquals(log, ["load a"]);
  assertEquals(await line, "b: line"); // the model has been quiet long enough
  assertEquals(log, ["load a", "close a", "load b"]);
  const lines = Array.from(
    { length: 8 },
    (_, i) => delay(10 * i).then(() => ask(pool, "b", `${i}`, "batch")),
  );
  await delay(25);
  assertEquals(await ask(pool, "a"), "a: Hi");
  assertEquals(log.slice(3, 5), ["close b", "load a"]);
  assertEquals((await Promise.all(lines)).length, 8);
  await pool.close();
});

Deno.test("pool: batches of two models alternate in long turns", async () => {
  const { pool, log } = testPool({ budget: 10, tokenMs: 1 });
  const until = performance.now() + 1000;
  const batch = async (name: string) => {
    let lines = 0;
    while (performance.now() < until) {
      await ask(pool, name, "x", "batch");
      lines++;
    }
    return lines;
  };
  const counts = await Promise.all([batch("a"), batch("a"), batch("b"), batch("b")]);
  const loads = log.filter((what) => what.startsWith("load")).length;
  assert(loads >= 2 && loads <= 7, `${log}`);
  assert(counts.every((count) => count > 10), `${counts}`);
  await pool.close();
});

Deno.test("pool: draining rejects waiting requests, ends or cancels running ones and closes all engines", async () => {
  const { pool, engines } = testPool({ tokenMs: 5, loading: (id) => id === "b" ? delay(200) : delay(0) });
  const running = ask(pool, "a");
  const waiting = assertRejects(() => ask(pool, "b"), EngineError, "closed");
  await delay(20);
  await pool.drain(1000);
  assertEquals(await running, "a: Hi");
  await waiting;
  await assertRejects(() => pool.use("a"), EngineError, "closed");
  await pool.close();
  assertEquals(engines.size, 0);
});

Deno.test("pool: models appear and disappear with their files, but a loaded model stays until it is unloaded", async () => {
  const { pool, sources } = testPool();
  await ask(pool, "a");
  sources.push(source("d"));
  sources.shift();
  assertEquals(pool.find("d"), undefined); // the last scan is too recent
  await delay(2100);
  assertEquals(pool.list().map(({ id }) => id), ["a", "b", "c", "d"]);
  await pool.unload("a");
  await delay(2100);
  assertEquals(pool.list().map(({ id }) => id), ["b", "c", "d"]);
  await pool.close();
});

Deno.test("pool: a request need not name the model while the pool has only one model", async () => {
  const { pool, sources } = testPool({ models: { a: 10, b: 10 } });
  const [a, b] = sources.splice(0);
  const asked = async () => {
    await delay(2100);
    const { engine, release } = await pool.use(undefined);
    release();
    return engine.model.id;
  };
  const required = async () => (await assertRejects(asked, ModelError)).message;
  assertStringIncludes(await required(), "this server has none yet");
  sources.push(a);
  assertEquals(await asked(), "a");
  sources.push(b);
  assertStringIncludes(await required(), 'use one of "a", "b"');
  await pool.close();
});

Deno.test("model pool: with random requests, memory stays within the budget and every request ends", async () => {
  for (const seed of [1, 2, 3]) {
    const random = new Random(seed);
    const below = (limit: number) => Math.floor(random.unit() * limit);
    const { pool, loaded, notes, engines } = testPool({
      models: { a: 10, b: 10, c: 10, small: 4 },
      tokenMs: 0,
      retryMs: 5,
      loading: async () => {
        await delay(below(8));
        if (below(10) === 0) throw new Error("bad luck");
      },
    });
    const counts = { answered: 0, refused: 0, left: 0 };
    const request = async (name: string) => {
      const abort = new AbortController();
      if (below(4) === 0) setTimeout(() => abort.abort(new Error("left")), below(30));
      const priority = below(3) === 0 ? "batch" as const : "interactive" as const;
      try {
        const { engine, release } = await pool.use(name, { signal: abort.signal, priority });
        assertEquals(engine.model.id, name);
        assert(loaded() <= 20);
        await delay(below(10));
        assert(engines.get(name) === engine, "it was closed while it was held");
        release();
        counts.answered++;
      } catch (error) {
        if (abort.signal.aborted) counts.left++;
        else if (error instanceof ModelError && error.code === "model_load_failed") counts.refused++;
        else unforeseen.push(error);
      }
    };
    const unforeseen: unknown[] = [];
    const all: Promise<void>[] = [];
    for (let i = 0; i < 300; i++) {
      const name = ["a", "b", "c", "small"][below(4)];
      const kind = below(20);
      if (kind === 0) all.push(pool.unload(name));
      else if (kind === 1) all.push(pool.load(name).catch(() => {}));
      else all.push(request(name));
      if (below(3) === 0) await delay(below(6));
    }
    await Promise.all(all);
    assertEquals(unforeseen, []);
    assert(counts.answered > 150, JSON.stringify(counts));
    assert(notes.every((note) => note.includes("bad luck")), `${notes}`);
    for (const name of ["a", "b", "c", "small"]) await pool.unload(name);
    assertEquals([engines.size, states(pool)], [0, "unloaded unloaded unloaded unloaded"]);
    await pool.close();
  }
});
