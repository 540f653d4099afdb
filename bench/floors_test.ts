import { assertAlmostEquals, assertEquals } from "@std/assert";
import { buildPlan } from "../engine/architectures/registry.ts";
import { byteLengthOf } from "../engine/gguf/tensor_types.ts";
import { planCost } from "../engine/plan/cost.ts";
import { keyBytesPerLayer, kvBytesPerLayer, type PlanTensor } from "../engine/plan/plan.ts";
import { smallTransformer } from "../engine/plan/testing.ts";
import { parseGguf } from "../engine/gguf/reader.ts";
import { changed } from "../engine/gguf/testing_changes.ts";
import { synthesize } from "../testing/synth/synth.ts";
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

Deno.test("speed limits: an op reads no more tokens than it chose, and an indexer reads only keys", () => {
  const limits = { readGbps: 1, int8Gops: 1e9, f32Gflops: 1e9 };
  const file = parseGguf(
    synthesize({ architecture: "minimax-m3", types: ["F32"], seed: 1, layers: 3, hollow: true }),
  );
  const m3 = buildPlan(changed(file, { key: ["attention.indexer.block_size", 128] }));
  const step = { sequences: 1, rows: 1, cached: 9_999, logitRows: 1 };
  const bytes = (name: string) =>
    m3.ops.filter(({ op }) => op === name).map((op) => 1e9 * opFloor(m3, op, () => 0, step, limits));
  const layer = kvBytesPerLayer("f16", m3.kv.layers[0]);
  assertEquals(bytes("attention").map((read) => read / layer), [10_000, 256, 256]);
  const keys = keyBytesPerLayer("f16", m3.kv.layers[2]);
  assertEquals(bytes("choose").map((read) => read / keys), [10_000, 10_000]);
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
