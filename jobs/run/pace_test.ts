import { assertEquals } from "@std/assert";
import { Pace } from "./pace.ts";

/** Returns the limits that a pace tries on an engine with `rate(limit)` answers per second. */
function settled(rate: (limit: number) => number, to = 96): number[] {
  let ms = 0;
  const pace = new Pace({ from: 16, to, now: () => ms });
  const limits = [pace.limit];
  for (let i = 0; i < 20_000; i++) {
    ms += 1000 / rate(pace.limit);
    pace.answered(1);
    if (pace.limit !== limits.at(-1)) limits.push(pace.limit);
  }
  return limits;
}

Deno.test("Pace: raises the lines in flight while throughput grows", () => {
  assertEquals(settled((limit) => limit), [16, 24, 36, 54, 81, 96]);
});

Deno.test("Pace: reduces the lines in flight when more of them do not raise throughput", () => {
  assertEquals(settled((limit) => Math.min(limit, 30)).slice(0, 5), [16, 24, 36, 54, 36]);
  assertEquals(settled(() => 10).slice(0, 3), [16, 24, 16]);
});

Deno.test("Pace: lines in flight stay within the maximum, and nothing waits for a place at the end", async () => {
  assertEquals(settled((limit) => limit, 8), [8]);
  const pace = new Pace({ from: 2, to: 4 });
  const came: number[] = [];
  const turns = [0, 1, 2, 3].map((place) => pace.turn(place).then(() => came.push(place)));
  await Promise.all(turns.slice(0, 2));
  assertEquals(came, [0, 1]);
  pace.end();
  await Promise.all(turns);
  assertEquals(came, [0, 1, 2, 3]);
});
