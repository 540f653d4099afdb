import { assert, assertEquals, assertRejects } from "@std/assert";
import { merge } from "./merge.ts";

async function* numbers(from: number, to: number, closed: number[] = []): AsyncGenerator<number> {
  try {
    for (let i = from; i < to; i++) {
      await Promise.resolve();
      yield i;
    }
  } finally {
    closed.push(from);
  }
}

async function* waiting(signal: AbortSignal, closed: string[]): AsyncGenerator<number> {
  await new Promise((resolve) => signal.addEventListener("abort", resolve));
  closed.push("waiting");
  yield 0;
}

Deno.test("merged streams: yield all items, in order within each source", async () => {
  const sources = [numbers(0, 50), numbers(100, 103), numbers(200, 200)];
  const items = await Array.fromAsync(merge(sources, new AbortController()));
  assertEquals(items.filter((i) => i < 100), Array.from({ length: 50 }, (_, i) => i));
  assertEquals(items.filter((i) => i >= 100), [100, 101, 102]);
});

Deno.test("merged streams: the first failure ends all sources and is thrown", async () => {
  const abort = new AbortController();
  const closed: string[] = [];
  async function* failing(): AsyncGenerator<number> {
    yield 1;
    throw new Error("first");
  }
  const all = merge([waiting(abort.signal, closed), failing()], abort);
  await assertRejects(() => Array.fromAsync(all), Error, "first");
  assertEquals(closed, ["waiting"]);
});

Deno.test("merged streams: leaving the iteration ends all sources", async () => {
  const abort = new AbortController();
  const closed: number[] = [];
  for await (const item of merge([numbers(0, 1e9, closed), numbers(-1e9, 0, closed)], abort)) {
    if (item === 5) break;
  }
  assert(abort.signal.aborted);
  assertEquals(closed.length, 2);
});

Deno.test("merged streams: a failure is thrown at once, even if other sources always have an item", async () => {
  async function* failing(): AsyncGenerator<number> {
    yield 1;
    throw new Error("first");
  }
  let taken = 0;
  await assertRejects(
    async () => {
      for await (
        const _ of merge([numbers(0, 100_000), failing(), numbers(0, 100_000)], new AbortController())
      ) {
        taken++;
      }
    },
    Error,
    "first",
  );
  assert(taken < 20, `${taken}`);
});
