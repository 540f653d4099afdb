import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { Acceptance } from "./acceptance.ts";
import { GRADES } from "./drafter.ts";
import { draftLengths } from "./lengths.ts";
import { StepCosts } from "./step_costs.ts";

/** Returns a draft's chances up to each token, if each is right with probability p. */
function chances(p: number, length: number): Float64Array {
  return Float64Array.from({ length }, (_, i) => p ** (i + 1));
}

/**
 * Returns the milliseconds of steps with 0 to `rows` draft rows, where each row takes a share of the step.
 */
function costs(share: number, rows = 32): Float64Array {
  return Float64Array.from({ length: rows + 1 }, (_, i) => 20 * (1 + share * i));
}

Deno.test("draft lengths: grow with acceptance and shrink with row cost", () => {
  assertEquals(draftLengths([chances(0.99, 16)], costs(0.02), 1), [16]);
  const [likely] = draftLengths([chances(0.8, 16)], costs(0.05), 1);
  const [dear] = draftLengths([chances(0.8, 16)], costs(0.3), 1);
  assert(likely > dear && dear > 0, `${likely}, ${dear}`);
  assertEquals(draftLengths([chances(0.05, 16)], costs(0.05), 1), [0]);
  assertEquals(draftLengths([chances(0.9, 16)], costs(1), 1), [0]);
  assertEquals(draftLengths([], costs(0), 4), []);
});

Deno.test("draft lengths: with many sequences, the likeliest drafts get the rows", () => {
  const lengths = draftLengths([chances(0.2, 8), chances(0.95, 8), chances(0.9, 8)], costs(0.04, 6), 3);
  assertEquals(lengths.reduce((sum, length) => sum + length), 6);
  assert(lengths[1] >= lengths[2] && lengths[2] > 0 && lengths[0] === 0, `${lengths}`);
});

Deno.test("draft lengths: a row's cost is positive, whatever times were measured", () => {
  assertEquals(draftLengths([chances(0.06, 16)], new Float64Array(17).fill(20), 1), [0]);
});

Deno.test("step costs: learns step time per row count, and interpolates", () => {
  const known = new StepCosts();
  assertEquals(known.estimates(1, 1, 4), undefined);
  known.observe(1, 1, 20);
  const [one, two] = known.estimates(1, 1, 2)!;
  assert(one === 20 && two > 20 && two < 22); // cheap, so that it is tried
  for (let i = 0; i < 20; i++) known.observe(1, 9, 40);
  assertAlmostEquals(known.estimates(1, 5, 5)![0], 30);
  known.observe(1, 9, 4000); // a delayed step
  assert(known.estimates(1, 9, 9)![0] < 50);
  assertEquals(known.estimates(16, 16, 17), undefined); // many sequences are unknown
  for (let i = 0; i < 250; i++) known.observe(1, 1, 20);
  assert(known.estimates(1, 9, 9)![0] < 30); // measured long ago
});

Deno.test("step costs: ignores steps delayed once or for a while", () => {
  const known = new StepCosts();
  for (let i = 0; i < 10; i++) known.observe(1, 1, 0.12);
  known.observe(1, 5, 5); // the first of its kind
  assert(known.estimates(1, 5, 5)![0] < 0.3);
  for (let i = 0; i < 3; i++) known.observe(1, 5, 0.2);
  assertEquals(known.estimates(1, 5, 5)![0], 0.2);
  for (const ms of [5, 0.12, 5, 5, 0.13, 5, 0.12, 5]) known.observe(1, 1, ms);
  assert(known.withoutDrafts(1)! < 0.2, `${known.withoutDrafts(1)}`);
  assertEquals(known.withoutDrafts(2), undefined);
  for (let i = 0; i < 11; i++) known.observe(1, 1, 0.4); // a longer context
  assertEquals(known.withoutDrafts(1), 0.4);
});

Deno.test("step costs: a measurement is valid for some time, which doubles with each new measurement", () => {
  const known = new StepCosts();
  for (let i = 0; i < 10; i++) known.observe(16, 16, 20);
  const tries: number[] = [];
  for (let step = 0; step < 600; step++) {
    // Tries that many rows only while they seem cheap.
    const dear = known.estimates(16, 48, 48)![0] > 45;
    if (!dear) tries.push(step);
    known.observe(16, dear ? 16 : 48, dear ? 20 : 90);
  }
  const pauses = tries.slice(1).map((step, i) => step - tries[i]);
  assertEquals(pauses, [34, 66, 130, 194]);
});

Deno.test("step costs: measures steps without drafts again, even while drafts seem to pay off", () => {
  const known = new StepCosts();
  assert(!known.knowsPlain(16));
  for (const ms of [50, 50, 110, 120, 115, 105, 118, 111, 108, 113]) known.observe(16, 16, ms); // other work on the machine
  assert(known.knowsPlain(16) && known.knowsPlain(12) && !known.knowsPlain(17) && !known.knowsPlain(8));
  assert(known.withoutDrafts(16)! <= 50); // the machine was idle not long ago
  for (let i = 0; i < 20; i++) known.observe(16, 16, 110);
  assertEquals(known.withoutDrafts(16), 110);
  for (let i = 0; known.knowsPlain(16); i++) {
    assert(i <= 32);
    known.observe(16, 48, 120);
  }
  known.observe(16, 16, 50); // drops all other times
  assert(known.knowsPlain(16));
  assertEquals(known.withoutDrafts(16), 50);
});

Deno.test("step costs: extrapolates from steps without drafts, not from steps with many drafts", () => {
  const known = new StepCosts();
  known.observe(16, 16, 20);
  for (let i = 0; i < 20; i++) known.observe(16, 40, 38); // 0.0375 of a step per row
  const [at, next, far] = [40, 41, 64].map((rows) => known.estimates(16, rows, rows)![0]);
  assertEquals(at, 38);
  assertAlmostEquals(next, 38.6);
  assertAlmostEquals(far, 38 + 24 * 0.6);
  // With nearly certain drafts, more rows are tried and pay off.
  const certain = Array.from({ length: 16 }, () => chances(0.97, 3));
  const rows = draftLengths(certain, known.estimates(16, 16, 64)!, 16).reduce((sum, length) => sum + length);
  assertEquals(rows, 48);
});

Deno.test("cost model: step time never decreases with row count", () => {
  const known = new StepCosts();
  known.observe(1, 1, 20);
  for (let i = 0; i < 3; i++) known.observe(1, 4, 40);
  for (let i = 0; i < 3; i++) known.observe(1, 8, 30);
  assertEquals([...known.estimates(1, 4, 8)!], [30, 30, 30, 30, 30]);
});

Deno.test("acceptance: a sequence starts with the average rate, and its own rate then outweighs the average", () => {
  const all = new Acceptance(() => 0.5);
  const [one, other] = [new Acceptance(all), new Acceptance(all)];
  const draft = { tokens: Int32Array.of(1, 2, 3), grades: Uint8Array.of(4, 4, GRADES - 1) };
  for (let i = 0; i < 30; i++) one.observe(draft, Int32Array.of(1, 2, 9));
  assert(one.of(4) > 0.95 && one.of(GRADES - 1) < 0.05);
  assert(other.of(4) > 0.9);
  for (let i = 0; i < 30; i++) other.observe(draft, Int32Array.of(8));
  assert(other.of(4) < 0.2 && one.of(4) > 0.8, `${other.of(4)}, ${one.of(4)}`);
  one.observe(draft, new Int32Array(0)); // no tokens, so nothing is learned
});
