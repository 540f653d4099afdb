import { assertAlmostEquals, assertEquals } from "@std/assert";
import { buildPlan } from "../engine/architectures/registry.ts";
import { byteLengthOf } from "../engine/gguf/tensor_types.ts";
import { planCost } from "../engine/plan/cost.ts";
import type { PlanTensor } from "../engine/plan/plan.ts";
import { smallTransformer } from "../engine/plan/testing.ts";
import { attentionFloor, evenStepFloor, opFloor, opLabel } from "./floors.ts";

const plan = buildPlan(smallTransformer({ architecture: "llama", type: "Q8_0", output: true }));
const bytesOf = (t: PlanTensor) => byteLengthOf(t.info.type, t.rows * t.columns);
const cost = planCost(plan, bytesOf);
const DECODE = { sequences: 3, rows: 1, cached: 99, logitRows: 3 };
const PREFILL = { sequences: 1, rows: 400, cached: 0, logitRows: 1 };

Deno.test("speed limits: attention reads the cache of every sequence", () => {
  const limits = { readGbps: 1, int8Gops: 1e9, f32Gflops: 1e9 };
  assertAlmostEquals(attentionFloor(plan, cost, DECODE, limits), 3 * 100 * cost.kvBytesPerToken / 1e9);
});

Deno.test("speed limits: attention reads a shared prefix once", () => {
  const limits = { readGbps: 1, int8Gops: 1e9, f32Gflops: 1e9 };
  const floor = attentionFloor(plan, cost, { ...DECODE, shared: 64 }, limits);
  assertAlmostEquals(floor, (64 + 3 * 36) * cost.kvBytesPerToken / 1e9);
});

Deno.test("speed limits: a row of a prompt attends to itself and the rows before it", () => {
  const limits = { readGbps: 1e9, int8Gops: 2, f32Gflops: 0.5 };
  const noFaster = { readGbps: 1e9, int8Gops: 2, f32Gflops: 2 };
  // Two layers, a query of 256, two products of two operations each; 400 rows attend to 200.5 tokens on average.
  const operations = 2 * 256 * 2 * 2 * 400 * 200.5;
  assertAlmostEquals(attentionFloor(plan, cost, PREFILL, limits), operations / 1e9);
  assertAlmostEquals(attentionFloor(plan, cost, PREFILL, noFaster), operations / 2e9);
  const matrices = (cost.row.int8 * 400 + cost.logitsRow.int8) / 2e9;
  assertAlmostEquals(evenStepFloor(plan, cost, PREFILL, limits), operations / 1e9 + matrices, 1e-6);
  assertAlmostEquals(evenStepFloor(plan, cost, PREFILL, noFaster), operations / 2e9 + matrices, 1e-6);
});

Deno.test("speed limits: the limits of single ops add up to the limit of a step that memory bandwidth bounds", () => {
  const limits = { readGbps: 1, int8Gops: 1e9, f32Gflops: 1e9 };
  const ops = plan.ops.reduce((sum, op) => sum + opFloor(plan, op, bytesOf, DECODE, limits), 0);
  assertAlmostEquals(ops, evenStepFloor(plan, cost, DECODE, limits));
  assertEquals(plan.ops.filter((op) => op.op === "glu").map((op) => opLabel(plan, op)), [
    "glu ffn_gate + ffn_up",
    "glu ffn_gate + ffn_up",
  ]);
});
