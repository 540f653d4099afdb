/** GLM-4.5: layers with experts, layers left out, and files that are refused by key or tensor. */
import { assertEquals, assertThrows } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { GgufError } from "../../gguf/errors.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { graphOf } from "../../plan/testing.ts";
import { leftOutParts } from "../left_out.ts";
import { buildPlan } from "../registry.ts";
import { type KeyChange, type TensorChange, testRefusals, without } from "../testing.ts";

/** One dense layer and one with experts. */
const MODEL = { architecture: "glm4moe", types: ["F32"], seed: 1, layers: 2 } as const;
const FILE = parseGguf(synthesize(MODEL));

Deno.test("glm4moe: routes by sigmoids with a bias", () => {
  const plan = buildPlan(FILE);
  const routes = plan.ops.filter((op) => op.op === "route");
  assertEquals(routes.map(({ sigmoid, divided, scale }) => [sigmoid, divided, scale]), [[true, true, 2.5]]);
  assertEquals(routes.map(({ bias }) => plan.tensors[bias!].info.name), ["blk.1.exp_probs_b.bias"]);
});

Deno.test("glm4moe: leaves out layers that draft", () => {
  const drafting = parseGguf(synthesize({ ...MODEL, drafts: 1 }));
  const plan = buildPlan(drafting);
  assertEquals(graphOf(plan), graphOf(buildPlan(FILE)));
  assertEquals(leftOutParts(drafting, plan).map(({ part }) => part), ["drafting (MTP)"]);
  const computed = changed(drafting, { key: ["nextn_predict_layers", 0] });
  assertEquals(buildPlan(computed).ops.filter((op) => op.op === "route").length, 2);
});

Deno.test("glm4moe: runs without head norms (Air)", () => {
  const ropes = (file: GgufFile) =>
    buildPlan(file).ops.flatMap((op) => op.op === "rope_append" ? [op.qNorm !== undefined] : []);
  assertEquals(ropes(FILE), [true, true]);
  assertEquals(ropes(without(FILE, /attn_[qk]_norm/)), [false, false]);
});

Deno.test("glm4moe: accepts experts in all layers, unscaled weights, and no shared experts", () => {
  const everywhere = changed(FILE, { key: ["leading_dense_block_count", 2] });
  const dense = without(everywhere, /^blk\.1\.(.*exps|ffn_gate_inp|.*_shexp|exp_probs_b)/);
  const [gate, up, down] = ["gate", "up", "down"].map((part) =>
    FILE.tensors.get(`blk.0.ffn_${part}.weight`)!
  );
  const tensors = new Map(dense.tensors);
  for (const tensor of [gate, up, down]) {
    const name = tensor.name.replace("blk.0", "blk.1");
    tensors.set(name, { ...tensor, name });
  }
  assertEquals(buildPlan({ ...dense, tensors }).ops.filter((op) => op.op === "route"), []);
  const undivided = ["expert_weights_norm", "expert_weights_scale"].reduce(
    (file, key) => changed(file, { key: [key, undefined] }),
    FILE,
  );
  const routes = buildPlan(undivided).ops.flatMap((op) => op.op === "route" ? [[op.divided, op.scale]] : []);
  assertEquals(routes, [[false, 1]]);
  const alone = changed(without(FILE, /_shexp/), { key: ["expert_shared_count", 0] });
  assertEquals(buildPlan(alone).ops.filter((op) => op.op === "glu").length, 1);
});

const KEYS: readonly KeyChange[] = [
  ["expert_count", 0],
  ["expert_used_count", 13],
  ["expert_feed_forward_length", 0],
  ["expert_gating_func", 1],
  ["expert_group_count", 4],
  ["expert_shared_count", undefined],
  ["expert_shared_count", 2 ** 20],
  ["leading_dense_block_count", 3],
  ["nextn_predict_layers", 2],
  ["rope.dimension_sections", new Int32Array([8, 4, 4, 0])],
];

const TENSORS: readonly TensorChange[] = [
  ["blk.0.ffn_gate.weight", undefined],
  ["blk.1.ffn_gate_inp.weight", [256, 11]],
  ["blk.1.exp_probs_b.bias", undefined],
  ["blk.1.exp_probs_b.bias", [11]],
  ["blk.1.ffn_down_shexp.weight", undefined],
  ["blk.1.ffn_gate_shexp.weight", [256, 256]],
  ["blk.1.attn_q_norm.weight", undefined],
  ["blk.1.post_attention_norm.weight", undefined],
  ["blk.1.ffn_norm.weight", [256]],
];

testRefusals("glm4moe", FILE, { keys: KEYS, tensors: TENSORS });

Deno.test("glm4moe: refuses head norms that the first layer does not have", () => {
  const file = without(FILE, /^blk\.0\.attn_[qk]_norm/);
  assertThrows(() => buildPlan(file), GgufError, "blk.1.attn_");
});
