import { assertEquals, assertRejects } from "@std/assert";
import { TimeLimit } from "./time_limit.ts";

const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const late = (seconds: number) => `not within ${seconds} s`;

Deno.test("TimeLimit: of several promises, rejects only those that take too long", async () => {
  const patience = new TimeLimit(60);
  const never = patience.within(new Promise(() => {}), late);
  const quick = patience.within(Promise.resolve(1), late);
  const refused = patience.within(Promise.reject(new Error("no")), late);
  await assertRejects(() => refused, Error, "no");
  assertEquals(await quick, 1);
  await wait(40);
  const later = patience.within(wait(40).then(() => 2), late);
  await assertRejects(() => never, Error, "not within 0.06 s");
  assertEquals(await later, 2);
  patience.close();
});

Deno.test("TimeLimit: the timer stops when nothing waits, and starts again", async () => {
  const patience = new TimeLimit(60);
  assertEquals(await patience.within(Promise.resolve(1), late), 1);
  await wait(40); // a timer that still ran would be a leak
  await assertRejects(() => patience.within(new Promise(() => {}), late), Error, "not within");
  await wait(40);
});
