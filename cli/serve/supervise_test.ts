import { assertEquals } from "@std/assert";
import { Restarts } from "./supervise.ts";

Deno.test("restarts: restart a server at once if it lived long enough, any number of times", () => {
  const restarts = new Restarts();
  for (let i = 0; i < 1000; i++) assertEquals(restarts.waitAfter(1000 + i), 0);
});

Deno.test("restarts: wait longer after each early end, then give up", () => {
  const restarts = new Restarts();
  const waits = Array.from({ length: 11 }, (_, i) => restarts.waitAfter(i % 2 === 0 ? 10 : undefined));
  assertEquals(waits.slice(0, 4), [0, 500, 1000, 2000]);
  assertEquals([waits[9], waits[10]], [30_000, undefined]);
  const lucky = new Restarts();
  for (let i = 0; i < 9; i++) lucky.waitAfter(10);
  assertEquals([lucky.waitAfter(5000), lucky.waitAfter(10)], [0, 500]);
});

Deno.test("restarts: do not restart a server that was never ready", () => {
  assertEquals(new Restarts().waitAfter(undefined), undefined);
});
