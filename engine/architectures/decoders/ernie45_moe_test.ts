/** ERNIE 4.5's mixtures of experts: layers with experts, and files that are refused by key or tensor. */
import { assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import { graphOf } from "../../plan/testing.ts";
import { buildPlan } from "../registry.ts";
import { type KeyChange, type TensorChange, testRefusals, without } from "../testing.ts";

const ARCHITECTURE = "ernie4_5-moe";
/** One dense layer and one with experts. */
const FILE = parseGguf(synthesize({ architecture: ARCHITECTURE, types: ["F32"], seed: 1, layers: 2 }));

Deno.test("ernie4_5-moe: routes by the softmax over all, with a bias", () => {
  const plan = buildPlan(FILE);
  const routes = plan.ops.filter((op) => op.op === "route");
  assertEquals(routes.map(({ sigmoid, divided, scale }) => [sigmoid, divided, scale]), [[false, true, 1]]);
  assertEquals(routes.map(({ bias }) => plan.tensors[bias!].info.name), ["blk.1.exp_probs_b.bias"]);
});

Deno.test("ernie4_5-moe: a layer that the interval skips is dense", () => {
  const stepped = changed(FILE, { key: ["leading_dense_block_count", 0] });
  const plan = buildPlan(changed(stepped, { key: ["interleave_moe_layer_step", 2] }));
  assertEquals(graphOf(plan), graphOf(buildPlan(FILE)));
});

Deno.test("ernie4_5-moe: runs without a choice bias and without shared experts", () => {
  const unbiased = buildPlan(without(FILE, /exp_probs_b/));
  assertEquals(unbiased.ops.flatMap((op) => op.op === "route" ? [op.bias] : []), [undefined]);
  const alone = ["expert_shared_count", "expert_shared_feed_forward_length"].reduce(
    (file, key) => changed(file, { key: [key, 0] }),
    without(FILE, /_shexp/),
  );
  const count = (op: string) => buildPlan(alone).ops.filter((one) => one.op === op).length;
  assertEquals([count("glu"), count("expert_glu")], [1, 1]);
});

Deno.test("ernie4_5-moe: shared experts default to the chosen experts' width", () => {
  const counted = changed(FILE, { key: ["expert_shared_feed_forward_length", undefined] });
  assertEquals(graphOf(buildPlan(counted)), graphOf(buildPlan(FILE)));
});

const KEYS: readonly KeyChange[] = [
  ["expert_count", 0],
  ["expert_used_count", 13],
  ["expert_feed_forward_length", 0],
  ["expert_gating_func", 2],
  ["expert_weights_scale", 2],
  ["expert_group_count", 4],
  ["expert_shared_feed_forward_length", 2 ** 24],
  ["leading_dense_block_count", undefined],
  ["leading_dense_block_count", 3],
  ["interleave_moe_layer_step", undefined],
  ["interleave_moe_layer_step", 0],
];

const TENSORS: readonly TensorChange[] = [
  ["blk.0.ffn_gate.weight", undefined],
  ["blk.1.ffn_gate_inp.weight", [256, 11]],
  ["blk.1.exp_probs_b.bias", [11]],
  ["blk.1.ffn_up_exps.weight", [256, 256, 11]],
  ["blk.1.ffn_down_shexp.weight", undefined],
  ["blk.1.ffn_gate_shexp.weight", [256, 256]],
  ["blk.1.ffn_gate.weight", [256, 768]],
];

testRefusals("ernie4_5-moe", FILE, { keys: KEYS, tensors: TENSORS });
