import { assert, assertEquals } from "@std/assert";
import { Costs, cutPiece, type Grid, type Piece, wholeOf } from "./costs.ts";
import type { Kernel } from "../kernels/types.ts";
import type { Dispatch, StepSize } from "./dispatch.ts";
import { cutStep, SUBMIT_MS } from "./submits.ts";

const SIZE: StepSize = { step: 32, sequences: 1, logits: 1, singles: 0, tiles: 2, context: 300 };

function kernelOf(key: string, work = 1000): Kernel {
  const workgroups = (n: number, m: number): Grid => [n, Math.ceil(m / 16), 1];
  return {
    key,
    code: "",
    entryPoint: "main",
    constants: {},
    maxRows: Infinity,
    workgroups,
    work: () => work,
  };
}

function dispatchOf(kernel: Kernel, n: number): Dispatch {
  return { label: kernel.key, rows: "step", kernels: [kernel], n, bindings: [] };
}

const count = ({ groups: [x, y, z] }: Piece) => x * y * z;

/** Returns the actual time of pieces, from milliseconds per multiply-add by kernel. */
const real = (pieces: readonly Piece[], rates: Record<string, number>) =>
  pieces.reduce((ms, { kernel, work }) => ms + work * rates[kernel.key], 0);

Deno.test("costs: estimates approach each kernel's time although none is measured alone", () => {
  const rates: Record<string, number> = { a: 1e-7, b: 3e-5, c: 2e-6 };
  const costs = new Costs();
  const dispatches = ["a", "b", "c"].map((key, i) => dispatchOf(kernelOf(key), 100 * (i + 1)));
  for (let step = 0; step < 120; step++) {
    const some = dispatches.filter((_, i) => i !== step % 3);
    for (const pieces of cutStep(some, SIZE, costs)) costs.learn(pieces, real(pieces, rates));
  }
  for (const dispatch of dispatches) {
    const whole = wholeOf(dispatch, SIZE);
    const [expected, takes] = [costs.sum([whole]), real([whole], rates)];
    assert(Math.abs(expected - takes) < 1, `${dispatch.label}: ${expected} ms, takes ${takes}`);
  }
});

Deno.test("costs: timing each kernel alone gives right costs even if kernels always run in the same proportion", () => {
  const rates: Record<string, number> = { a: 4e-6, b: 3e-7 };
  const costs = new Costs(1e-6);
  const [a, b, c] = ["a", "b", "c"].map((key) => wholeOf(dispatchOf(kernelOf(key), 100), SIZE));
  for (let i = 0; i < 20; i++) costs.learn([a, b], real([a, b], rates));
  assert(costs.sum([a]) < 0.7 * real([a], rates));
  for (let i = 0; i < 6; i++) for (const piece of [a, b]) costs.time(piece, real([piece], rates));
  for (const piece of [a, b]) assert(Math.abs(costs.sum([piece]) / real([piece], rates) - 1) < 0.05);
  // A kernel that has not run counts as the slowest; a run together with others gives it no estimate.
  costs.ran([a, b, c]);
  assertEquals(costs.sum([c]), costs.sum([a]));
  assert(costs.has("c"));
  // A pause during a measurement moves an estimate only by a bounded factor.
  costs.time(b, 1e6);
  assert(costs.sum([b]) < 10 * real([b], rates));
});

Deno.test("costs: ignore a kernel's first time if that is long, because the driver may have compiled the kernel", () => {
  const costs = new Costs(1e-6);
  const piece = wholeOf(dispatchOf(kernelOf("a"), 10), SIZE);
  const before = costs.sum([piece]);
  costs.learn([piece], 1000 * before);
  assertEquals(costs.sum([piece]), before);
  costs.learn([piece], 4 * before);
  assertEquals(costs.sum([piece]), 4 * before);
});

Deno.test("costs: the pieces of a cut dispatch contain each workgroup once", () => {
  const costs = new Costs(1e-5); // 0.01 ms a workgroup
  const whole = wholeOf(dispatchOf(kernelOf("a"), 777), { ...SIZE, step: 80 });
  assertEquals(whole.groups, [777, 5, 1]);
  for (const ms of [1000, 10, 1, 0.1, 0.001]) {
    const pieces = cutPiece(whole, SIZE, costs, ms);
    const seen = new Set<string>();
    for (const { first, groups } of pieces) {
      for (let x = 0; x < groups[0]; x++) {
        for (let y = 0; y < groups[1]; y++) seen.add(`${first[0] + x} ${first[1] + y}`);
      }
    }
    assertEquals(seen.size, 777 * 5);
    assertEquals(pieces.reduce((sum, piece) => sum + count(piece), 0), 777 * 5);
    assert(pieces.every((piece) => costs.sum([piece]) <= ms || count(piece) === 1));
  }
});

Deno.test("submits: a step is cut in order, and no submit should take too long", () => {
  const costs = new Costs(1e-5);
  const dispatches = [3000, 10, 10_000, 1].map((n, i) => dispatchOf(kernelOf(`${i}`), n));
  const submits = cutStep(dispatches, SIZE, costs);
  assert(submits.length > 5);
  for (const submit of submits) assert(costs.sum(submit) <= SUBMIT_MS);
  const order = submits.flat().map(({ kernel }) => kernel.key);
  assertEquals(order, order.toSorted());
  const groups = (key: string) =>
    submits.flat().filter((p) => p.kernel.key === key).reduce((n, p) => n + count(p), 0);
  assertEquals(dispatches.map((_, i) => groups(`${i}`)), [6000, 20, 20_000, 2]);
  // Once the kernels are known to be fast, the whole step is one submit.
  for (let i = 0; i < 30; i++) {
    for (const submit of cutStep(dispatches, SIZE, costs)) costs.learn(submit, 0.01);
  }
  assertEquals(cutStep(dispatches, SIZE, costs).length, 1);
});

Deno.test("submits: dispatches that have no rows in a step are not submitted", () => {
  const none = { ...dispatchOf(kernelOf("a"), 10), rows: "singles" } as const;
  assertEquals(cutStep([none], SIZE, new Costs()), []);
});
