import { assertEquals } from "@std/assert";
import { type Job, Typesetter } from "./typesetter.js";

/** A fake worker that answers as `work` does. */
class FakeWorker extends EventTarget {
  ended = false;
  constructor(readonly work: (job: Job, tell: (data: unknown) => void) => void) {
    super();
  }
  postMessage(job: Job) {
    queueMicrotask(() => this.work(job, (data) => this.dispatchEvent(new MessageEvent("message", { data }))));
  }
  terminate() {
    this.ended = true;
  }
}

const math = (text: string): Job => ({ kind: "math", text, display: false });

function typesetterOf(work: (job: Job, tell: (data: unknown) => void) => void) {
  const workers: FakeWorker[] = [];
  const start = () => {
    workers.push(new FakeWorker(work));
    return workers.at(-1)!;
  };
  return { workers, typesetter: new Typesetter(start, 20) };
}

Deno.test("typesetter: does each job once, one after another, and remembers its result", async () => {
  let running = 0;
  const done: string[] = [];
  const { workers, typesetter } = typesetterOf(async (job, tell) => {
    assertEquals(++running, 1);
    await Promise.resolve();
    running--;
    done.push(job.text);
    tell({ result: `${job.text}!` });
  });
  assertEquals(typesetter.known(math("a")), undefined);
  assertEquals(await Promise.all(["a", "b", "a"].map((text) => typesetter.typeset(math(text)))), [
    "a!",
    "b!",
    "a!",
  ]);
  assertEquals([typesetter.known(math("a")), await typesetter.typeset(math("a"))], ["a!", "a!"]);
  assertEquals([done, workers.length], [["a", "b"], 1]);
});

Deno.test("typesetter: cancels a job that takes too long, and continues with a new worker", async () => {
  const { workers, typesetter } = typesetterOf((job, tell) => {
    if (job.text === "slow") tell({ loading: false });
    else tell({ result: job.text });
  });
  const results = await Promise.all(["slow", "b"].map((text) => typesetter.typeset(math(text))));
  assertEquals(results, [undefined, "b"]);
  assertEquals(workers.map(({ ended }) => ended), [true, false]);
  assertEquals(await typesetter.typeset(math("slow")), undefined, "it is not tried again");
  assertEquals(workers.length, 2);
});

Deno.test("typesetter: an invalid text and a worker that fails have no result", async () => {
  const { workers, typesetter } = typesetterOf((job, tell) => {
    if (job.text === "invalid") tell({ problem: "no" });
    else workers[0].dispatchEvent(new Event("error"));
  });
  assertEquals(await typesetter.typeset(math("invalid")), undefined);
  assertEquals(await typesetter.typeset(math("broken")), undefined);
  assertEquals(workers[0].ended, true);
});

Deno.test("typesetter: returns no results if the browser cannot start a worker", async () => {
  const typesetter = new Typesetter(() => {
    throw new Error("no workers");
  });
  assertEquals(await Promise.all(["a", "b"].map((text) => typesetter.typeset(math(text)))), [
    undefined,
    undefined,
  ]);
});

Deno.test("typesetter: forgets the oldest results when it keeps many", async () => {
  const { typesetter } = typesetterOf((_, tell) => tell({ result: "done" }));
  for (const letter of "abc") await typesetter.typeset(math(letter.repeat(900_000)));
  assertEquals(["a", "b", "c"].map((letter) => typesetter.known(math(letter.repeat(900_000)))), [
    undefined,
    "done",
    "done",
  ]);
});
