import { assert, assertEquals } from "@std/assert";
import { buildPlan } from "../architectures/registry.ts";
import { buffersOf } from "./ops/registry.ts";
import type { Plan, PlanBuffer, PlanOp } from "./plan.ts";
import { bufferBytes, planScratch } from "./scratch.ts";
import { smallTransformer } from "./testing.ts";

const MAX_ROWS = 100;
const MAX_LOGIT_ROWS = 7;

/**
 * Returns a generator of whole numbers below n: a linear congruential generator with Numerical Recipes'
 * constants.
 */
function randomSource(seed: number): (n: number) => number {
  let state = seed;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor(state / 2 ** 32 * n);
  };
}

/** Returns a plan whose ops use random buffers. */
function randomPlan(random: (n: number) => number): Plan {
  const buffers = Array.from({ length: 2 + random(20) }, (_, i): PlanBuffer => ({
    name: `b${i}`,
    form: random(2) === 0 ? "float" : "quant",
    rows: random(4) === 0 ? "logits" : "step",
    columns: 32 * (1 + random(8)),
  }));
  const ops = Array.from({ length: 1 + random(40) }, (): PlanOp => (
    { op: "quantize", x: random(buffers.length), out: { quant: random(buffers.length) } }
  ));
  const kv = { type: "f16" as const, layers: [{ heads: 1, headDim: 16, group: 0 }], windows: [0] };
  return {
    architecture: "random",
    vocabSize: 1,
    contextLength: 1,
    tensors: [],
    buffers,
    ops,
    rope: [],
    kv,
    states: [],
  };
}

/** Asserts that buffers that are live at the same op do not overlap, and that all fit in the arena. */
function assertSound(plan: Plan): void {
  const { offsets, arenaBytes } = planScratch(plan, MAX_ROWS, MAX_LOGIT_ROWS);
  const end = (id: number) => {
    const buffer = plan.buffers[id];
    return offsets[id] + bufferBytes(buffer, buffer.rows === "step" ? MAX_ROWS : MAX_LOGIT_ROWS);
  };
  const touched = plan.buffers.map((_, id) =>
    plan.ops.flatMap((op, i) => buffersOf(op).some(({ buffer }) => buffer === id) ? [i] : [])
  );
  for (const [a, of] of touched.entries()) {
    if (of.length === 0) continue;
    assertEquals(offsets[a] % 64, 0, `buffer ${a} is not aligned`);
    assert(end(a) <= arenaBytes, `buffer ${a} ends at ${end(a)} of ${arenaBytes}`);
    for (let b = 0; b < a; b++) {
      const together = touched[b].length > 0 && touched[b][0] <= of.at(-1)! && of[0] <= touched[b].at(-1)!;
      if (!together) continue;
      assert(
        end(a) <= offsets[b] || end(b) <= offsets[a],
        `buffers ${b} and ${a} are alive together and overlap`,
      );
    }
  }
}

Deno.test("scratch: live buffers never overlap, in 1000 random plans", () => {
  for (let seed = 0; seed < 1000; seed++) assertSound(randomPlan(randomSource(seed)));
});

Deno.test("scratch: layers share memory", () => {
  const plan = buildPlan(smallTransformer({ architecture: "qwen3", type: "Q8_0", headNorms: true }));
  assertSound(plan);
  const { arenaBytes } = planScratch(plan, MAX_ROWS, MAX_LOGIT_ROWS);
  const firstLayer = plan.ops.findIndex((op) => op.op === "matmul" && op.parts[0].add !== undefined) + 1;
  const alone = { ...plan, ops: plan.ops.slice(0, 2 * firstLayer) };
  assertEquals(planScratch(alone, MAX_ROWS, MAX_LOGIT_ROWS).arenaBytes, arenaBytes);
});

Deno.test("scratch: rounds quantized rows up to sixteens, and float rows up to cache lines", () => {
  const buffer = (form: PlanBuffer["form"], columns: number): PlanBuffer => ({
    name: "b",
    form,
    rows: "step",
    columns,
  });
  assertEquals(bufferBytes(buffer("float", 17), 3), 3 * 32 * 4);
  // A row of 64 columns takes 64 bytes, and 12 for each of its two blocks, rounded up to cache lines.
  assertEquals(bufferBytes(buffer("quant", 64), 3), 16 * 128);
  assertEquals(bufferBytes(buffer("fine", 64), 3), 2 * 16 * 128);
});
