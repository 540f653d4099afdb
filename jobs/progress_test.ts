import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { ProgressMeter } from "./progress.ts";
import type { BatchProgress } from "./run/runner.ts";

function progress(done: number, more: Partial<BatchProgress> = {}): BatchProgress {
  return {
    completed: done,
    failed: 0,
    total: 1000,
    promptTokens: 100 * done,
    outputTokens: 20 * done,
    totalBytes: 500_000,
    doneBytes: 500 * done,
    cachedTokens: 0,
    reasoningTokens: 0,
    ...more,
  };
}

/** Returns a meter and its clock, which the test sets in seconds. */
function metered() {
  const clock = { seconds: 0 };
  const meter = new ProgressMeter(() => 1000 * clock.seconds);
  return { meter, clock };
}

Deno.test("ProgressMeter: reports rates and the time left of a steady job", () => {
  const { meter, clock } = metered();
  assertEquals(meter.view(), undefined);
  for (let second = 0; second <= 60; second++) {
    clock.seconds = second;
    meter.update(progress(2 * second));
  }
  const view = meter.view()!;
  assertAlmostEquals(view.promptRate, 200, 2);
  assertAlmostEquals(view.outputRate, 40, 0.5);
  assertAlmostEquals(view.remaining!, 440, 5);
  assertEquals([view.done, view.failed, view.total], [120, 0, 1000]);
});

Deno.test("ProgressMeter: reports no time left before enough lines have ended", () => {
  const { meter, clock } = metered();
  meter.update(progress(0));
  clock.seconds = 60;
  meter.update(progress(4));
  assertEquals(meter.view()!.remaining, undefined);
  clock.seconds = 61;
  meter.update(progress(5));
  assert(meter.view()!.remaining! > 0);
});

Deno.test("ProgressMeter: answers of an earlier run do not count as speed", () => {
  const { meter, clock } = metered();
  meter.update(progress(900));
  for (let second = 1; second <= 10; second++) {
    clock.seconds = second;
    meter.update(progress(900 + second));
  }
  assertAlmostEquals(meter.view()!.promptRate, 100, 1);
  assertAlmostEquals(meter.view()!.remaining!, 90, 1);
});

Deno.test("ProgressMeter: rates fall and the time left grows when a job stalls", () => {
  const { meter, clock } = metered();
  for (let second = 0; second <= 30; second++) {
    clock.seconds = second;
    meter.update(progress(second));
  }
  const before = meter.view()!;
  clock.seconds = 150;
  const after = meter.view()!;
  assert(after.outputRate < before.outputRate / 3);
  assert(after.remaining! > 3 * before.remaining!);
});

Deno.test("ProgressMeter: long remaining prompts raise the time left, but less than answers do", () => {
  const { meter, clock } = metered();
  meter.update(progress(0, { total: 20, totalBytes: 10_000 }));
  clock.seconds = 10;
  // 10 lines with 1000 bytes took 1000 prompt and 200 output tokens: 45 units of work a second. The other 10 lines have
  // 9000 bytes, so 9000 prompt and 200 output tokens remain: 2450 units.
  meter.update(progress(10, { total: 20, totalBytes: 10_000, doneBytes: 1000 }));
  assertAlmostEquals(meter.view()!.remaining!, 2450 / 45, 4);
});

Deno.test("ProgressMeter: estimates the time left from line bytes when there are no tokens", () => {
  const { meter, clock } = metered();
  const none = { promptTokens: 0, outputTokens: 0 };
  meter.update(progress(0, none));
  clock.seconds = 10;
  meter.update(progress(100, none));
  assertAlmostEquals(meter.view()!.remaining!, 90, 6);
  assertEquals(meter.view()!.promptRate, 0);
});
