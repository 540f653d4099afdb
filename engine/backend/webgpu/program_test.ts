import { assertEquals, assertThrows } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { buildPlan } from "../../architectures/registry.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { firstLayers } from "../../plan/layers.ts";
import { type Plan, type PlanOp, withKvType } from "../../plan/plan.ts";
import { smallModel } from "../../plan/testing.ts";
import { countDispatches } from "./dispatch_count.ts";
import { GpuError } from "./errors.ts";
import { lower } from "./lowering.ts";
import type { AttentionOp } from "./ops/attention/attention.ts";
import type { DeltaRuleOp } from "./ops/delta_rule.ts";
import type { MatMulOp } from "./ops/matmul.ts";
import type { LoweredOp, Program } from "./program.ts";

const FFN = ["rms_norm", "matmul swiglu", "matmul add"];
const ATTENTION = ["rms_norm", "matmul store", "rope_append", "attention", "matmul add", ...FFN];
const DELTA = ["rms_norm", "matmul store", "delta_rule", "matmul add", ...FFN];

const isDelta = (op: LoweredOp): op is DeltaRuleOp => op.op === "delta_rule";
const isAttention = (op: LoweredOp): op is AttentionOp => op.op === "attention";

/** Returns the names of the ops of each layer. */
function layersOf({ ops }: Program): string[][] {
  const layers: string[][] = [];
  for (const op of ops) {
    if (op.layer === undefined) continue;
    (layers[op.layer] ??= []).push(op.op === "matmul" ? `${op.op} ${(op as MatMulOp).epilogue}` : op.op);
  }
  return layers;
}

Deno.test("dispatch count: eight per layer, seven per Gated DeltaNet layer, seven for the rest", () => {
  const dense = lower(buildPlan(smallModel({ architecture: "qwen3", type: "Q4_0", headNorms: true })));
  assertEquals(layersOf(dense), [ATTENTION, ATTENTION]);
  assertEquals(countDispatches(dense), { layers: [8, 8], others: 7, total: 23 });

  const hybrid = lower(buildPlan(smallModel({ architecture: "qwen35", type: "MXFP4" })));
  assertEquals(layersOf(hybrid), [DELTA, DELTA, DELTA, ATTENTION]);
  assertEquals(countDispatches(hybrid), { layers: [7, 7, 7, 8], others: 7, total: 36 });
});

Deno.test("dispatch count: none for a layer without ops", () => {
  const { layers } = countDispatches(
    lower(buildPlan(parseGguf(synthesize({ architecture: "deci", types: ["Q8_0"], seed: 1 })))),
  );
  assertEquals([...new Set(layers)].sort((a, b) => a - b), [0, 3, 5, 8]);
});

Deno.test("program: numbers the caches and states of a hybrid separately", () => {
  const plan = buildPlan(smallModel({ architecture: "qwen35", type: "F16" }));
  const { ops } = lower(plan);
  assertEquals(ops.filter(isDelta).map((op) => op.heads.layer), [0, 1, 2]);
  assertEquals(ops.filter(isAttention).map((op) => [op.layer, op.cache]), [[3, 0]]);
});

Deno.test("program: refuses gated convolutions, and the message names the op", () => {
  const plan = buildPlan(smallModel({ architecture: "lfm2", type: "Q8_0" }));
  assertThrows(() => lower(plan), Error, 'it has no "gated_conv"; use backend: "cpu"');
});

Deno.test("program: refuses a KV cache in q4_0, and the message names the allowed types", () => {
  const plan = buildPlan(smallModel({ architecture: "qwen3", type: "Q4_0", headNorms: true }));
  const message =
    'Cannot store keys and values in q4_0 on the GPU; use kvType: "f16", kvType: "q8_0", or backend: "cpu"';
  assertThrows(() => lower(withKvType(plan, "q4_0")), GpuError, message);
});

/** Returns the plan with changed operands of its ops of one kind. */
function changed<Name extends PlanOp["op"]>(
  plan: Plan,
  name: Name,
  change: Partial<Extract<PlanOp, { op: Name }>>,
): Plan {
  return { ...plan, ops: plan.ops.map((op) => op.op === name ? { ...op, ...change } : op) };
}

Deno.test("program: refuses unsupported operands, and the message names the operand", () => {
  const dense = buildPlan(smallModel({ architecture: "qwen3", type: "Q4_0", headNorms: true }));
  const hybrid = buildPlan(smallModel({ architecture: "qwen35", type: "F16" }));
  const added = { ...dense, ops: dense.ops.map(halved) };
  const refusals: [Plan, string][] = [
    [changed(dense, "embed", { scale: 2 }), "its embedding is scaled"],
    [changed(dense, "rms_norm", { scale: 2 }), "it has norms without weights, or scaled ones"],
    [changed(dense, "rms_norm", { weight: undefined }), "it has norms without weights, or scaled ones"],
    [added, "its residuals have a multiplier"],
    [changed(dense, "rope_append", { vNorm: true }), "its values are normed"],
    [changed(dense, "rope_append", { vFrom: 32 }), "a part of its keys are its values"],
    [changed(dense, "rope_append", { beta: 0.1, period: 64 }), "its queries have a temperature by position"],
    [changed(dense, "rope_append", { kNorm: undefined }), "only its queries, or only its keys, are normed"],
    [changed(dense, "candidates", { scale: 0.5 }), "its logits are scaled or capped"],
    [changed(dense, "candidates", { softcap: 30 }), "its logits are scaled or capped"],
    [
      changed(dense, "attention", { chosen: { buffer: 1, count: 1, length: 1 } }),
      "its rows attend to chosen tokens",
    ],
    [
      changed(hybrid, "short_conv", { keys: 1, values: 1 }),
      "its queries, keys and values have separate convolutions",
    ],
    [
      changed(hybrid, "short_conv", { bias: 1 }),
      "its short convolution has a bias or does not cover all columns",
    ],
  ];
  for (const [plan, what] of refusals) {
    assertThrows(() => lower(plan), Error, `Cannot run this model on the GPU: ${what}; use backend: "cpu"`);
  }
});

function halved(op: PlanOp): PlanOp {
  if (op.op !== "matmul") return op;
  return { ...op, parts: op.parts.map((part) => ({ ...part, add: part.add && 0.5 })) };
}

Deno.test("program: lowers the first layers of a hybrid alone", () => {
  const plan = buildPlan(smallModel({ architecture: "qwen35", type: "F16" }));
  const cut = firstLayers(plan, 2);
  assertEquals([cut.kv.layers, cut.states.length], [[], 2]);
  assertEquals(layersOf(lower(cut)), [DELTA, DELTA]);
  assertEquals(firstLayers(plan, 4), plan);
});
