import { assertEquals, assertThrows } from "@std/assert";
import { buildPlan } from "../../architectures/registry.ts";
import { firstLayers } from "../../plan/layers.ts";
import { withKvType } from "../../plan/plan.ts";
import { smallModel } from "../../plan/testing.ts";
import { countDispatches } from "./dispatch_count.ts";
import { lower } from "./lowering.ts";
import type { Program } from "./program.ts";

const FFN = ["rms_norm", "matmul swiglu", "matmul add"];
const ATTENTION = ["rms_norm", "matmul store", "rope_append", "attention", "matmul add", ...FFN];
const DELTA = ["rms_norm", "matmul store", "delta_rule", "matmul add", ...FFN];

/** Names of the ops of each layer. */
function layersOf({ ops }: Program): string[][] {
  const layers: string[][] = [];
  for (const op of ops) {
    if (op.layer === undefined) continue;
    (layers[op.layer] ??= []).push(op.op === "matmul" ? `${op.op} ${op.epilogue}` : op.op);
  }
  return layers;
}

Deno.test("a layer takes eight dispatches, one of Gated DeltaNet seven, and the rest seven at most", () => {
  const dense = lower(buildPlan(smallModel({ architecture: "qwen3", type: "Q4_0", headNorms: true })));
  assertEquals(layersOf(dense), [ATTENTION, ATTENTION]);
  assertEquals(countDispatches(dense), { layers: [8, 8], others: 7, total: 23 });

  const hybrid = lower(buildPlan(smallModel({ architecture: "qwen35", type: "MXFP4" })));
  assertEquals(layersOf(hybrid), [DELTA, DELTA, DELTA, ATTENTION]);
  assertEquals(countDispatches(hybrid), { layers: [7, 7, 7, 8], others: 7, total: 36 });
});

Deno.test("layers of a hybrid count their caches and states each for themselves", () => {
  const plan = buildPlan(smallModel({ architecture: "qwen35", type: "F16" }));
  const { ops } = lower(plan);
  assertEquals(ops.flatMap((op) => op.op === "delta_rule" ? [op.heads.layer] : []), [0, 1, 2]);
  assertEquals(ops.flatMap((op) => op.op === "attention" ? [[op.layer, op.cache]] : []), [[3, 0]]);
});

Deno.test("a KV cache in 8 bits is the CPU's only", () => {
  const plan = withKvType(buildPlan(smallModel({ architecture: "llama", type: "F16" })), "q8_0");
  assertThrows(() => lower(plan), Error, "Cannot keep the KV cache in q8_0 on the GPU: it must be f16");
});

Deno.test("gated convolutions, which the GPU has not, are refused by name", () => {
  const plan = buildPlan(smallModel({ architecture: "lfm2", type: "Q8_0" }));
  assertThrows(() => lower(plan), Error, 'it has no "gated_conv"; use --backend cpu');
});

Deno.test("the first layers of a hybrid are a plan of their own", () => {
  const plan = buildPlan(smallModel({ architecture: "qwen35", type: "F16" }));
  const cut = firstLayers(plan, 2);
  assertEquals([cut.kv.layers, cut.states.length], [[], 2]);
  assertEquals(layersOf(lower(cut)), [DELTA, DELTA]);
  assertEquals(firstLayers(plan, 4), plan);
});
