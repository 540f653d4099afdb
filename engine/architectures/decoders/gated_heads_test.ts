/** Step 3.5 and Laguna: gates, heads and rotation by layer, bounds, and files that are refused. */
import { assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { GATE_ACTIVATIONS } from "../../plan/ops/gate.ts";
import { buildPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const read = (architecture: "step35" | "laguna") =>
  parseGguf(synthesize({ architecture, types: ["F32"], seed: 1, hollow: true }));
const STEP = read("step35");
const LAGUNA = read("laguna");

const heads = (file: GgufFile) =>
  buildPlan(file).ops.flatMap((op) => op.op === "rope_append" ? [[op.heads.heads, op.rotated]] : []);
const windows = (file: GgufFile) =>
  buildPlan(file).ops.flatMap((op) => op.op === "attention" ? [op.window] : []);
/** Columns and activation of each gate. */
const gates = (file: GgufFile) => {
  const { ops, buffers } = buildPlan(file);
  return ops.flatMap((op) =>
    op.op === "gate" ? [[buffers[op.gate].columns, GATE_ACTIVATIONS[op.activation]]] : []
  );
};
const limits = (file: GgufFile, kind: "glu" | "expert_glu") =>
  buildPlan(file).ops.flatMap((op) => op.op === kind ? [op.limit] : []);

Deno.test("step35: layers with a window have more heads, which are rotated as a whole", () => {
  assertEquals(windows(STEP), [0, 40, 40, 40, 0, 40]);
  const [full, near] = [[4, 32], [8, 64]];
  assertEquals(heads(STEP), [full, near, near, near, full, near]);
  assertEquals(gates(STEP).map(([, activation]) => activation), Array(6).fill("sigmoid"));
  assertEquals(gates(STEP).map(([columns]) => columns), [4, 8, 8, 8, 4, 8]);
});

Deno.test("step35: the last layers bound SwiGLU's factors", () => {
  const [chosen, shared] = [Math.fround(0.3), Math.fround(0.5)];
  assertEquals(limits(STEP, "expert_glu"), [0, 0, 0, chosen, chosen]);
  assertEquals(limits(STEP, "glu"), [0, 0, 0, 0, shared, shared]);
  const everywhere = changed(STEP, { key: ["swiglu_clamp_exp", 7] });
  assertEquals(limits(everywhere, "expert_glu"), Array(5).fill(7));
  const none = changed(STEP, { key: ["swiglu_clamp_exp", undefined] });
  assertEquals(limits(none, "expert_glu"), Array(5).fill(0));
});

Deno.test("laguna: the first layer of four has no window, and rotates a part of its heads", () => {
  assertEquals(windows(LAGUNA), [0, 40, 40, 40, 0]);
  const [full, near] = [[4, 32], [8, 64]];
  assertEquals(heads(LAGUNA), [full, near, near, near, full]);
  assertEquals(gates(LAGUNA).map(([, activation]) => activation), Array(5).fill("softplus"));
});

Deno.test("laguna: runs without windows and with a gate per column, as M.1 does", () => {
  const tensors = new Map([...LAGUNA.tensors].map(([name, tensor]) => {
    const [columns, rows] = tensor.shape;
    return [name, name.endsWith("attn_gate.weight") ? { ...tensor, shape: [columns, 64 * rows] } : tensor];
  }));
  const file = changed({ ...LAGUNA, tensors }, { key: ["attention.sliding_window", undefined] });
  assertEquals(windows(file), Array(5).fill(0));
  assertEquals(heads(file).map(([, rotated]) => rotated), Array(5).fill(32));
  assertEquals(gates(file).map(([columns]) => columns), [4, 8, 8, 8, 4].map((heads) => 64 * heads));
});

testRefusals("step35", STEP, {
  keys: [
    ["attention.sliding_window", undefined],
    ["attention.sliding_window_pattern", undefined],
    ["attention.head_count", Int32Array.of(4, 8, 8, 0, 4, 8)],
    ["attention.head_count_kv", Int32Array.of(2, 2, 0, 2, 2, 2)],
    ["rope.dimension_count", 62],
    ["rope.scaling.factor", 4],
    ["swiglu_clamp_exp", -1],
    ["swiglu_clamp_shexp", Float32Array.of(0, 1)],
    ["expert_gating_func", 1],
    ["leading_dense_block_count", 7],
  ],
  tensors: [
    ["blk.0.attn_gate.weight", [256, 8]],
    ["blk.1.attn_gate.weight", undefined],
    ["blk.1.attn_q.weight", [256, 256]],
    ["blk.1.exp_probs_b.bias", undefined],
    ["blk.2.ffn_up_shexp.weight", [256, 512]],
  ],
});

testRefusals("laguna", LAGUNA, {
  keys: [
    ["attention.head_count", Int32Array.of(4, 8, 8, 0, 4)],
    ["rope.dimension_count_swa", 65],
    ["rope.dimension_count_swa", 31],
    ["expert_gating_func", 1],
    ["expert_group_count", 4],
  ],
  tensors: [
    ["blk.1.attn_gate.weight", [256, 512]],
    ["blk.1.attn_gate.weight", undefined],
    ["blk.1.attn_k_norm.weight", undefined],
    ["blk.1.exp_probs_b.bias", undefined],
  ],
});
