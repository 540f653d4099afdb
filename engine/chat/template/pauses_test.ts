import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { atOnce, finish, type Paced, withPauses } from "./pauses.ts";

function* counted(slices: number, log: string[]): Paced<string> {
  for (let slice = 1; slice <= slices; slice++) {
    log.push(`slice ${slice}`);
    if (slice < slices) yield;
  }
  return `${slices} slices`;
}

Deno.test("pauses: long work runs to its end at once for a synchronous caller", () => {
  assertEquals(finish(counted(3, [])), "3 slices");
  assertThrows(() => atOnce(counted(2, [])), Error, "too long");
  assertEquals(atOnce(counted(1, [])), "1 slices");
});

Deno.test("pauses: the event loop runs between the slices of an action's work", async () => {
  const log: string[] = [];
  const timer = setInterval(() => log.push("other"));
  let spent = 0;
  const text = await withPauses(
    () => [finish(counted(1, [])), finish(counted(3, log)), finish(counted(2, []))].join(),
    (ms) => spent = ms,
  );
  clearInterval(timer);
  assertEquals(text, "1 slices,3 slices,2 slices");
  assertEquals(log.includes("other"), true);
  assertEquals(log.filter((line) => line === "slice 3").length, 1);
  assertEquals(spent > 0, true);
});

Deno.test("pauses: two actions at a time do not mix", async () => {
  const actions = [4, 2, 3].map((slices) => withPauses(() => finish(counted(slices, []))));
  assertEquals(await Promise.all(actions), ["4 slices", "2 slices", "3 slices"]);
});

Deno.test("pauses: an error of long work reaches the action, which may handle it", async () => {
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
      return finish(counted(2, []));
    }
  };
  assertEquals(await withPauses(handled), "2 slices");
});
