import { assertEquals, assertStringIncludes } from "@std/assert";
import type { Answer } from "../answers.ts";
import { Ranges } from "./ranges.ts";
import { MAX_ANSWER_BYTES, MAX_RANGE_LINES, parseJson, rangePayload } from "./wire.ts";

interface Outcome {
  answers: Answer[];
  errors: string[];
}

/** Ranges of `lines` lines, and what has become of each line. */
function ranges(lines: number): { ranges: Ranges; outcomes: Outcome[] } {
  const made = new Ranges();
  const outcomes = Array.from({ length: lines }, (_, n) => {
    const outcome: Outcome = { answers: [], errors: [] };
    const full = made.add({
      url: "/v1/completions",
      body: { n },
      resolve: (answer) => outcome.answers.push(answer),
      reject: (error) => outcome.errors.push(error.message),
    });
    if (full) made.form();
    return outcome;
  });
  made.form();
  return { ranges: made, outcomes };
}

const FIRST = { range: 0, attempt: 0 };

function encode(value: unknown): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value));
}

/** Brings a whole answer in one piece. */
function answer(of: Ranges, fence: string, line: number, value: unknown = { status: 200, body: { line } }) {
  const bytes = encode(value);
  return of.answer({ fence, line, offset: 0, total: bytes.length }, bytes, 0).state;
}

Deno.test("ranges: lines are handed out in their order, and each answer goes to its line", () => {
  const { ranges: made, outcomes } = ranges(MAX_RANGE_LINES + 2);
  assertEquals(made.unqueued().map(({ id }) => id), [0, 1]);
  const lease = made.lease({ range: 1, attempt: 0 }, "w", 0)!;
  const { lines } = parseJson(rangePayload, lease.payload);
  assertEquals(lines.map(({ line, body }) => [line, body.n]), [[0, MAX_RANGE_LINES], [
    1,
    MAX_RANGE_LINES + 1,
  ]]);
  assertEquals([answer(made, lease.fence, 1), answer(made, lease.fence, 0)], ["taken", "taken"]);
  assertEquals(outcomes.at(-1)!.answers, [{ status: 200, body: { line: 1 } }]);
  assertEquals(made.lease({ range: 1, attempt: 0 }, "w", 0), undefined);
  assertEquals(made.unqueued().map(({ id }) => id), [0]);
});

Deno.test("ranges: whoever had a range before is fenced off, and only open lines are handed out again", () => {
  const { ranges: made, outcomes } = ranges(3);
  const stalled = made.lease(FIRST, "stalled", 0)!;
  answer(made, stalled.fence, 1);
  const next = made.lease(FIRST, "next", 0)!;
  assertEquals(parseJson(rangePayload, next.payload).lines.map(({ line }) => line), [0, 2]);
  assertEquals(answer(made, stalled.fence, 0), "fenced");
  assertEquals(made.beat([stalled.fence, next.fence], 0), [stalled.fence]);
  assertEquals(made.payload(stalled.fence, 0, 0), undefined);
  assertEquals([answer(made, next.fence, 0), answer(made, next.fence, 2)], ["taken", "taken"]);
  assertEquals(outcomes.map(({ answers }) => answers.length), [1, 1, 1]);
  assertEquals([made.stats.requeued, made.stats.fenced], [1, 1]);
});

Deno.test("ranges: an answer that comes twice counts once", () => {
  const { ranges: made, outcomes } = ranges(2);
  const { fence } = made.lease(FIRST, "w", 0)!;
  assertEquals([answer(made, fence, 0), answer(made, fence, 0)], ["taken", "taken"]);
  assertEquals(outcomes[0].answers.length, 1);
});

Deno.test("ranges: what the queue lost goes into it again, under an attempt of its own", () => {
  const { ranges: made } = ranges(2 * MAX_RANGE_LINES);
  made.queued(FIRST, 10);
  made.queued({ range: 1, attempt: 0 }, 20);
  assertEquals([made.waiting(15), made.waiting(25)], [1, 2]);
  made.requeueWaiting(25);
  assertEquals(made.unqueued().map(({ id, attempt }) => [id, attempt]), [[0, 1], [1, 1]]);
  // The queue may have had the items after all, or says so late.
  assertEquals(made.lease(FIRST, "w", 0), undefined);
  made.queued(FIRST, 30);
  assertEquals(made.waiting(40), 0);
  made.queued({ range: 0, attempt: 1 }, 30);
  assertEquals(made.waiting(40), 1);
  made.lease({ range: 0, attempt: 1 }, "w", 0);
  assertEquals(made.waiting(40), 0);
});

Deno.test("ranges: a silent lease ends, one that beats does not", () => {
  const { ranges: made } = ranges(2 * MAX_RANGE_LINES);
  const silent = made.lease(FIRST, "silent", 0)!;
  const alive = made.lease({ range: 1, attempt: 0 }, "alive", 0)!;
  made.beat([alive.fence], 100);
  made.expire(50);
  assertEquals(made.beat([silent.fence, alive.fence], 100), [silent.fence]);
  assertEquals(made.unqueued().map(({ id, attempt }) => [id, attempt]), [[0, 1]]);
});

Deno.test("ranges: an answer in pieces, with pieces that come twice or out of order", () => {
  const { ranges: made, outcomes } = ranges(1);
  const { fence } = made.lease(FIRST, "w", 0)!;
  const value = { status: 200, body: { text: "a long answer" } };
  const bytes = encode(value);
  const piece = (offset: number, end: number) =>
    made.answer({ fence, line: 0, offset, total: bytes.length }, bytes.subarray(offset, end), 0);
  assertEquals(piece(0, 10), { state: "more", offset: 10 });
  assertEquals(piece(0, 10), { state: "more", offset: 10 });
  assertEquals(piece(20, 30), { state: "more", offset: 10 });
  assertEquals(piece(10, bytes.length), { state: "taken" });
  assertEquals(outcomes[0].answers, [value]);
});

Deno.test("ranges: half-received answers are bounded, and room comes back", () => {
  const { ranges: made } = ranges(MAX_RANGE_LINES);
  const { fence } = made.lease(FIRST, "w", 0)!;
  const begin = (line: number) =>
    made.answer({ fence, line, offset: 0, total: MAX_ANSWER_BYTES }, new Uint8Array(1), 0).state;
  const states = Array.from({ length: MAX_RANGE_LINES }, (_, line) => begin(line));
  assertEquals(states, [...Array(4).fill("more"), ...Array(MAX_RANGE_LINES - 4).fill("later")]);
  const again = made.lease(FIRST, "w", 0)!;
  assertEquals(answer(made, again.fence, 7), "taken");
});

Deno.test("ranges: an answer that is none fails its line, and no other", () => {
  const { ranges: made, outcomes } = ranges(4);
  const { fence } = made.lease(FIRST, "w", 0)!;
  answer(made, fence, 0, { status: 99, body: {} });
  answer(made, fence, 1, [1, 2]);
  answer(made, fence, 2, { failed: "the engine is gone" });
  assertEquals(outcomes.map(({ answers, errors }) => [answers.length, errors.length]), [[0, 1], [0, 1], [
    0,
    1,
  ], [0, 0]]);
  assertStringIncludes(outcomes[0].errors[0], "Worker w answered with");
  assertEquals(outcomes[2].errors, ["the engine is gone"]);
});

Deno.test("ranges: taken back is what nobody works on", () => {
  const { ranges: made } = ranges(2 * MAX_RANGE_LINES + 1);
  const { fence } = made.lease(FIRST, "w", 0)!;
  assertEquals(
    made.withdraw().map(({ body }) => body.n),
    Array.from({ length: 9 }, (_, n) => n + MAX_RANGE_LINES),
  );
  assertEquals(answer(made, fence, 0), "taken");
  assertEquals(made.close().length, MAX_RANGE_LINES - 1);
  assertEquals(answer(made, fence, 1), "fenced");
});
