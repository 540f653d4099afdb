import { assertEquals, assertRejects } from "@std/assert";
import { type Engine, EngineError, type EngineState } from "../engine/types.ts";
import { BatchError } from "./errors.ts";
import { whenReady } from "./when_ready.ts";

/** No more of an engine than its state, and lines that are answered when they are told. */
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
  /** Who is in the engine, each named once since the last call. */
  const inEngine = async () => {
    await new Promise((resolve) => setTimeout(resolve));
    return asked.splice(0);
  };
  return { engine, become, line, inEngine, listeners };
}

const names = (asked: { name: string }[]) => asked.map(({ name }) => name).join();

Deno.test("lines wait while the engine is loaded, and go to it when it is ready", async () => {
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

Deno.test("lines of an engine that failed are asked again together, and after a second failure alone", async () => {
  const { become, line, inEngine, listeners } = open();
  /** The engine fails with these in it, and is ready again. */
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
  assertEquals(names(culprit), "new,bad");
  culprit[0].answer(200);
  await fail(culprit.slice(1));
  const rest = await inEngine();
  assertEquals(names(rest), "c,d");
  for (const { answer } of rest) answer(200);
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

Deno.test("a line that is together with others when it fails once more is asked alone again", async () => {
  const { become, line, inEngine } = open();
  const answers = ["x", "y", "z"].map((name) => line(name));
  const lives: string[] = [];
  for (let asked = await inEngine(); asked.length > 0; asked = await inEngine()) {
    lives.push(names(asked));
    become("loading");
    for (const { answer } of asked) answer(500, "engine_failed");
    become("ready");
  }
  const [last, other] = lives.slice(4);
  assertEquals([...lives.slice(0, 4), ...[last, other].sort()], ["x,y,z", "x,y,z", "x", "y,z", "y", "z"]);
  assertEquals(await Promise.all(answers), ["x 500 final", "y 500 final", "z 500 final"]);
});

Deno.test("a failed answer of a sound engine is an answer", async () => {
  const { line, inEngine } = open();
  const answer = line("a");
  (await inEngine())[0].answer(500, "engine_failed");
  assertEquals(await answer, "a 500");
});

Deno.test("an engine that has failed for good stops the job, which can be resumed", async () => {
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

Deno.test("an aborted line waits no more", async () => {
  const { become, line, inEngine, listeners } = open();
  become("loading");
  const abort = new AbortController();
  const answer = line("a", abort.signal);
  abort.abort(new Error("gone"));
  await assertRejects(() => answer, Error, "gone");
  await assertRejects(() => line("b", abort.signal), Error, "gone");
  assertEquals([names(await inEngine()), listeners.size], ["", 0]);
});
