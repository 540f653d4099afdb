import { assertEquals, assertRejects } from "@std/assert";
import { type Engine, EngineError, type EngineState } from "../../engine/mod.ts";
import { BatchError } from "../errors.ts";
import { whenReady } from "./when_ready.ts";

/** A fake engine with a state only. The test decides when each line is answered. */
function open() {
  const listeners = new Set<(state: EngineState) => void>();
  const engine = {
    state: "ready" as EngineState,
    failure: undefined as EngineError | undefined,
    onState(listener: (state: EngineState) => void) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  const asked: { name: string; answer(status: number, code?: string): void }[] = [];
  const ask = whenReady(
    engine as unknown as Engine,
    ({ name }: { name: string; signal: AbortSignal }) =>
      new Promise((resolve) =>
        asked.push({ name, answer: (status, code) => resolve({ status, body: { name, error: { code } } }) })
      ),
  );
  const become = (state: EngineState) => {
    engine.state = state;
    for (const listener of [...listeners]) listener(state);
  };
  const line = async (name: string, signal = new AbortController().signal) => {
    const { status, final } = await ask({ name, signal });
    return `${name} ${status}${final ? " final" : ""}`;
  };
  /** Returns the lines that entered the engine since the last call. */
  const inEngine = async () => {
    await new Promise((resolve) => setTimeout(resolve));
    return asked.splice(0);
  };
  /** Makes the engine fail several times in a row. Returns the names of the lines in it at each failure. */
  const failTimes = async (count: number) => {
    const lives: string[] = [];
    for (let life = 0; life < count; life++) {
      const asked = await inEngine();
      lives.push(names(asked));
      become("loading");
      for (const { answer } of asked) answer(500, "engine_failed");
      become("ready");
    }
    return lives;
  };
  return { engine, become, line, inEngine, failTimes, listeners };
}

const names = (asked: { name: string }[]) => asked.map(({ name }) => name).join();

Deno.test("whenReady: lines wait while the engine loads, and run when it is ready", async () => {
  const { become, line, inEngine, listeners } = open();
  become("loading");
  const answers = [line("a"), line("b")];
  assertEquals(names(await inEngine()), "");
  become("ready");
  const asked = await inEngine();
  assertEquals(names(asked), "a,b");
  asked[0].answer(200);
  asked[1].answer(400, "invalid_value");
  assertEquals(await Promise.all(answers), ["a 200", "b 400"]);
  assertEquals(listeners.size, 0);
});

Deno.test("whenReady: retries the lines of a failed engine together, and after a second failure one at a time", async () => {
  const { become, line, inEngine, listeners } = open();
  /** Makes the engine fail while it holds the given lines, and become ready again. */
  const fail = async (asked: Awaited<ReturnType<typeof inEngine>>) => {
    become("loading");
    for (const { answer } of asked) answer(500, "engine_failed");
    assertEquals(names(await inEngine()), "");
    become("ready");
  };
  const answers = ["done", "a", "b", "bad", "c", "d"].map((name) => line(name));
  const first = await inEngine();
  become("loading");
  first.shift()!.answer(200);
  await fail(first);
  const together = await inEngine();
  assertEquals(names(together), "a,b,bad,c,d");
  together.shift()!.answer(200);
  await fail(together);
  const alone = await inEngine();
  assertEquals(names(alone), "b");
  alone[0].answer(400);
  answers.push(line("new"));
  const culprit = await inEngine();
  assertEquals(names(culprit), "bad");
  await fail(culprit);
  for (const name of ["c", "d", "new"]) {
    const next = await inEngine();
    assertEquals(names(next), name);
    next[0].answer(200);
  }
  assertEquals(await Promise.all(answers), [
    "done 200",
    "a 200",
    "b 400",
    "bad 500 final",
    "c 200",
    "d 200",
    "new 200",
  ]);
  assertEquals(listeners.size, 0);
});

Deno.test("whenReady: retries the lines of a lost device", async () => {
  const { become, line, inEngine } = open();
  const answers = [line("a"), line("b")];
  const first = await inEngine();
  become("loading");
  for (const { answer } of first) answer(503, "device_lost");
  assertEquals(names(await inEngine()), "");
  become("ready");
  for (const { answer } of await inEngine()) answer(200);
  assertEquals(await Promise.all(answers), ["a 200", "b 200"]);
});

Deno.test("whenReady: no line becomes an error if the engine fails again before it has answered another line", async () => {
  const { line, inEngine, failTimes } = open();
  const answers = ["a", "b"].map((name) => line(name));
  const lives = await failTimes(6);
  assertEquals(lives, ["a,b", "a,b", "a", "b", "a", "b"]);
  const [first] = await inEngine();
  first.answer(200);
  const [second] = await inEngine();
  second?.answer(200);
  assertEquals((await Promise.all(answers)).toSorted(), ["a 200", "b 500 final"]);
});

Deno.test("whenReady: an answer blames every line on which the engine failed alone since its last answer", async () => {
  const { line, inEngine, failTimes } = open();
  const answers = ["bad", "worse", "good"].map((name) => line(name));
  const lives = await failTimes(4);
  assertEquals(lives, ["bad,worse,good", "bad,worse,good", "bad", "worse"]);
  const last = await inEngine();
  assertEquals(names(last), "good");
  last[0].answer(200);
  assertEquals(await Promise.all(answers), ["bad 500 final", "worse 500 final", "good 200"]);
});

Deno.test("whenReady: if every line fails alone, asks the line that was answered last, and its answer blames all", async () => {
  const { line, inEngine, failTimes } = open();
  const first = line("good");
  (await inEngine())[0].answer(200);
  assertEquals(await first, "good 200");
  const answers = ["bad", "worse"].map((name) => line(name));
  const lives = await failTimes(4);
  assertEquals(lives, ["bad,worse", "bad,worse", "bad", "worse"]);
  const [probe] = await inEngine();
  assertEquals(probe.name, "good");
  probe.answer(200);
  assertEquals(await Promise.all(answers), ["bad 500 final", "worse 500 final"]);
});

Deno.test("whenReady: the error of a line that fails the engine has its API's format", async () => {
  const { engine, become } = open();
  const error = { type: "api_error", message: "The engine has failed", code: "engine_failed", param: null };
  const ask = whenReady(engine as unknown as Engine, async (_: { signal: AbortSignal }) => {
    become("loading");
    await Promise.resolve();
    queueMicrotask(() => become("ready"));
    return { status: 500, body: { type: "error", error, request_id: null } };
  });
  assertEquals(await ask({ signal: new AbortController().signal }), {
    status: 500,
    body: {
      type: "error",
      error: { ...error, message: "The engine fails each time it answers this request" },
      request_id: null,
    },
    final: true,
  });
});

Deno.test("whenReady: does not blame a line that was alone when the engine fails for good", async () => {
  const { engine, become, line, inEngine } = open();
  const answer = line("a");
  for (const state of ["loading", "loading", "failed"] as const) {
    const [asked] = await inEngine();
    engine.failure = new EngineError("engine_failed", "The engine has failed");
    become(state);
    asked.answer(500, "engine_failed");
    if (state === "loading") become("ready");
  }
  await assertRejects(() => answer, BatchError, "The engine has failed");
});

Deno.test("whenReady: lines that are retried one at a time fail when the engine fails for good", async () => {
  const { engine, become, line, inEngine } = open();
  const answers = [line("a"), line("b")].map((answer) => assertRejects(() => answer, BatchError));
  for (let together = 0; together < 2; together++) {
    const asked = await inEngine();
    become("loading");
    for (const { answer } of asked) answer(500, "engine_failed");
    await inEngine();
    become("ready");
  }
  const [first] = await inEngine();
  become("loading");
  first.answer(500, "engine_failed");
  become("ready");
  const [second] = await inEngine();
  engine.failure = new EngineError("engine_failed", "The engine has failed: out of memory");
  become("failed");
  second.answer(500, "engine_failed");
  await Promise.all(answers);
});

Deno.test("whenReady: returns a failed answer of a working engine", async () => {
  const { line, inEngine } = open();
  const answer = line("a");
  (await inEngine())[0].answer(500, "engine_failed");
  assertEquals(await answer, "a 500");
});

Deno.test("whenReady: an engine that has failed for good stops the job, which can resume", async () => {
  const { engine, become, line, inEngine } = open();
  const running = line("a");
  const [asked] = await inEngine();
  engine.failure = new EngineError("engine_failed", "The engine has failed: out of memory");
  become("loading");
  const waiting = line("b");
  become("failed");
  asked.answer(500, "engine_failed");
  for (const answer of [running, waiting, line("c")]) {
    const error = await assertRejects(
      () => answer,
      BatchError,
      "The engine has failed: out of memory. The answers",
    );
    assertEquals([error.code, error.resumable], ["engine_unavailable", true]);
  }
});

Deno.test("whenReady: an aborted line stops waiting", async () => {
  const { become, line, inEngine, listeners } = open();
  become("loading");
  const abort = new AbortController();
  const answer = line("a", abort.signal);
  abort.abort(new Error("gone"));
  await assertRejects(() => answer, Error, "gone");
  await assertRejects(() => line("b", abort.signal), Error, "gone");
  assertEquals([names(await inEngine()), listeners.size], ["", 0]);
});
