import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { atOnce, finish, type Paced, sharedWork, withPauses, workFor } from "./pauses.ts";
import { pausesOf } from "./testing.ts";

function* counted(slices: number, log: string[] = []): Paced<string> {
  for (let slice = 1; slice <= slices; slice++) {
    log.push(`slice ${slice}`);
    if (slice < slices) yield;
  }
  return `${slices} slices`;
}

/** Takes longer than an action may run without a pause. */
function* slow(log: string[]): Paced<string> {
  for (let slice = 0; slice < 3; slice++) {
    const end = performance.now() + 10;
    while (performance.now() < end);
    log.push("slice");
    yield;
  }
  return "slow";
}

Deno.test("pauses: for a synchronous caller, long work runs to its end without a pause", () => {
  assertEquals(finish(counted(3)), "3 slices");
  assertThrows(() => atOnce(counted(2)), Error, "too long");
  assertEquals(atOnce(counted(1)), "1 slices");
});

Deno.test("pauses: the event loop runs between the slices of an action's work", async () => {
  const log: string[] = [];
  const timer = setInterval(() => log.push("other"));
  let spent = 0;
  const action = () => [finish(counted(1)), finish(slow(log)), finish(counted(2))].join();
  const text = await workFor({ name: "", spent: (ms) => spent += ms }, () => withPauses(action));
  clearInterval(timer);
  assertEquals(text, "1 slices,slow,2 slices");
  assertEquals(log.includes("other"), true);
  assertEquals(log.filter((line) => line === "slice").length, 3);
  assertEquals(spent >= 30, true);
});

Deno.test("pauses: work without a pause costs its sender nothing", async () => {
  const sender = { name: "", spent: () => assert(false) };
  assertEquals(await workFor(sender, () => withPauses(() => finish(counted(1)))), "1 slices");
});

Deno.test("pauses: after its time an action pauses wherever its work allows it, and repeats no work", async () => {
  const log: string[] = [];
  const action = () => [finish(counted(3, log)), finish(counted(1, log)), finish(counted(2, log))].join();
  const { result, pauses } = await pausesOf(action);
  assertEquals(result, "3 slices,1 slices,2 slices");
  assertEquals([pauses, log.length], [4, 6]);
});

Deno.test("pauses: an action does not pause before its time is over", async () => {
  let runs = 0;
  const action = () => (runs++, finish(counted(1000)));
  assertEquals(await withPauses(action), "1000 slices");
  assertEquals(runs <= 2, true);
});

Deno.test("pauses: nested work pauses only together with the work around it", async () => {
  function* outer(): Paced<string> {
    const inner = finish(counted(5));
    yield;
    return inner + (yield* counted(3));
  }
  const { result, pauses } = await pausesOf(() => finish(outer()) + finish(counted(2)));
  assertEquals(result, "5 slices3 slices2 slices");
  assertEquals(pauses, 5);
});

Deno.test("pauses: two actions that run at the same time do not mix their work", async () => {
  const actions = [4, 2, 3].map((slices) => withPauses(() => finish(counted(slices)) + finish(slow([]))));
  assertEquals(await Promise.all(actions), ["4 slicesslow", "2 slicesslow", "3 slicesslow"]);
});

Deno.test("pauses: an error of long work reaches the action, which may handle the error", async () => {
  function* failing(): Paced<string> {
    yield;
    throw new Error("no");
  }
  await assertRejects(() => withPauses(() => finish(failing())), Error, "no");
  const handled = () => {
    try {
      return finish(failing());
    } catch (error) {
      if ((error as Error).message !== "no") throw error;
      return finish(counted(2));
    }
  };
  assertEquals((await pausesOf(handled)).result, "2 slices");
});

Deno.test("pauses: an action ends after a pause when its signal is aborted", async () => {
  const abort = new AbortController();
  const log: string[] = [];
  const action = workFor({ name: "", signal: abort.signal }, () => withPauses(() => finish(slow(log))));
  abort.abort(new Error("the client left"));
  await assertRejects(() => action, Error, "the client left");
  assertEquals(log.length, 1);
});

Deno.test("pauses: work for several requests continues when the first request's signal is aborted", async () => {
  const abort = new AbortController();
  const action = workFor(
    { name: "", signal: abort.signal },
    () => sharedWork(() => withPauses(() => finish(slow([])))),
  );
  abort.abort(new Error("the client left"));
  assertEquals(await action, "slow");
});
