import { assertEquals } from "@std/assert";
import { onFastClock } from "./testing.ts";
import { SLICE_MS, Turns } from "./turns.ts";

/** Runs that many slices of a sender, one after another, each as long as it may be. */
async function slices(turns: Turns, sender: string, count: number, log: string[]): Promise<void> {
  for (let slice = 0; slice < count; slice++) {
    await turns.run(sender, (until) => {
      while (performance.now() < until);
      log.push(sender);
    });
  }
}

Deno.test("turns: work waits for at most one slice of another sender, whatever that sends at once", async () => {
  const turns = new Turns();
  const log: string[] = [];
  const flood = Array.from({ length: 4 }, () => slices(turns, "mallory", 3, log));
  await Promise.all([...flood, slices(turns, "alice", 3, log)]);
  const own = log.flatMap((sender, at) => sender === "alice" ? [at] : []);
  assertEquals(own, [1, 3, 5]);
  assertEquals(log.length, 15);
});

Deno.test("turns: a sender's first work runs at once while others wait", async () => {
  const turns = new Turns();
  const log: string[] = [];
  const all = slices(turns, "mallory", 3, log);
  turns.run("alice", () => void log.push("alice"));
  await all;
  assertEquals(log, ["mallory", "alice", "mallory", "mallory"]);
});

Deno.test("turns: each slice gets the time at which the slice should end", async () => {
  const before = performance.now();
  const until = await new Turns().run("", (until) => until);
  assertEquals(until >= before + SLICE_MS, true);
});

Deno.test("turns: short work runs at once until all of it together has taken a slice's time", () => {
  const turns = new Turns();
  const log: string[] = [];
  const { now } = performance;
  let time = 1000;
  performance.now = () => time;
  try {
    for (let work = 0; work < 3 * SLICE_MS; work++) turns.run("", () => void log.push(`${time++}`));
    assertEquals(log.length, SLICE_MS);
  } finally {
    performance.now = now;
  }
});

Deno.test("turns: a slice that fails lets others go on", async () => {
  const turns = new Turns();
  const failing = () => {
    throw new Error("no");
  };
  const { result } = await onFastClock(() =>
    Promise.allSettled([turns.run("a", failing), turns.run("a", failing), turns.run("b", () => 1)])
  );
  assertEquals(result.map(({ status }) => status), ["rejected", "rejected", "fulfilled"]);
});
