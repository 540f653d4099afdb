import { assert, assertEquals } from "@std/assert";
import process from "node:process";
import { newResponseId, ResponseStore } from "./response_store.ts";

async function inFolder(test: (path: string) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempDir({ prefix: "responses-" });
  try {
    await test(path);
  } finally {
    await Deno.remove(path, { recursive: true });
  }
}

Deno.test("ResponseStore: deletes the oldest responses beyond its maximum of bytes, and every response after 30 days", async () => {
  await inFolder(async (path) => {
    let now = Date.now();
    const reports: unknown[] = [];
    const options = { maxBytes: 3 * 4096, now: () => now, report: (error: unknown) => reports.push(error) };
    const store = await ResponseStore.open(path, options);
    const response = (text: string) => ({ previous: null, head: {}, input: [], output: [{ id: text }] });
    const ids = Array.from(
      { length: 5 },
      (_, i) => `resp_${(now + i).toString(16).padStart(12, "0")}${"0".repeat(20)}`,
    );
    for (const id of ids) assert(await store.of("")!.save(id, response(id)));
    const kept = async (store: ResponseStore) =>
      (await Promise.all(ids.map((id) => store.of("")!.read(id)))).map((found) => found !== undefined);
    assertEquals(await kept(store), [false, false, true, true, true]);
    assertEquals((await store.of("")!.read(ids[4]))?.output, [{ id: ids[4] }]);
    assertEquals(await kept(await ResponseStore.open(path, { ...options, maxBytes: 8192 })), [
      ...[false, false, false, true, true],
    ]);
    assertEquals(await store.of("")!.save(ids[0], response("a".repeat(20_000))), false);
    assertEquals(reports.length, 1);
    now += 31 * 24 * 3600 * 1000;
    assertEquals(await kept(store), [false, false, false, false, false]);
    await store.dropOld();
    assertEquals((await Array.fromAsync(Deno.readDir(path))).length, 0);
  });
});

Deno.test("ResponseStore: new responses of an owner displace old ones of the same owner, not of another", async () => {
  await inFolder(async (path) => {
    const options = { maxBytes: 4 * 4096 };
    const response = { previous: null, head: {}, input: [], output: [] };
    const ids = Array.from({ length: 8 }, (_, i) => newResponseId(Date.now() + i));
    const stores = [await ResponseStore.open(path, options), ResponseStore.inMemory({ maxBytes: 4 * 56 })];
    for (const store of stores) {
      for (const [i, id] of ids.entries()) assert(await store.of(i < 2 ? "aa" : "bb")!.save(id, response));
    }
    for (const store of [...stores, await ResponseStore.open(path, options)]) {
      const kept = await Promise.all(ids.map(async (id, i) => {
        assertEquals(await store.of(i < 2 ? "bb" : "aa")!.read(id), undefined);
        return await store.of(i < 2 ? "aa" : "bb")!.read(id) !== undefined;
      }));
      assertEquals(kept, [true, true, false, false, false, false, true, true]);
    }
  });
});

Deno.test("ResponseStore: long responses never keep the event loop busy for 20 ms", async () => {
  await inFolder(async (path) => {
    const store = await ResponseStore.open(path);
    const item = { type: "message", content: "a\n".repeat(100) };
    const input = Array.from({ length: 10_000 }, (_, i) => ({ id: `${i}`, ...item }));
    // CPU time, because other processes delay this one on a busy machine.
    const used = () => process.cpuUsage().user / 1000;
    let [longest, last] = [0, used()];
    const timer = setInterval(() => {
      longest = Math.max(longest, used() - last);
      last = used();
    }, 1);
    const id = `resp_${"f".repeat(32)}`;
    await store.of("")!.save(id, { previous: null, head: {}, input, output: [] });
    assertEquals((await store.of("")!.read(id))?.input.length, 10_000);
    clearInterval(timer);
    assert(longest < 40, `${longest} ms`); // 20 ms, and the time of other threads meanwhile
  });
});
