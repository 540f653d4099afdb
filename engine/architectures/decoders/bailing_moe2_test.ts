/** Ling 2.0: expert groups, and files that are refused by key or tensor. */
import { assertEquals, assertThrows } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { GgufError } from "../../gguf/errors.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { graphOf } from "../../plan/testing.ts";
import { leftOutParts } from "../left_out.ts";
import { buildPlan } from "../registry.ts";
import { type KeyChange, type TensorChange, testRefusals } from "../testing.ts";

/** One dense layer and one with experts. */
const MODEL = { architecture: "bailingmoe2", types: ["F32"], seed: 1, layers: 2 } as const;
const FILE = parseGguf(synthesize(MODEL));

Deno.test("bailingmoe2: the router uses sigmoids, groups and a selection bias", () => {
  const plan = buildPlan(FILE);
  const routes = plan.ops.filter((op) => op.op === "route");
  assertEquals(routes.map(({ sigmoid, divided, scale }) => [sigmoid, divided, scale]), [[true, true, 2.5]]);
  assertEquals(routes.map(({ groups, groupsUsed }) => [groups, groupsUsed]), [[4, 3]]);
  assertEquals(routes.map(({ bias }) => plan.tensors[bias!].info.name), ["blk.1.exp_probs_b.bias"]);
});

Deno.test("bailingmoe2: leaves out layers that draft", () => {
  const drafting = parseGguf(synthesize({ ...MODEL, drafts: 1 }));
  const plan = buildPlan(drafting);
  assertEquals(graphOf(plan), graphOf(buildPlan(FILE)));
  assertEquals(leftOutParts(drafting, plan).map(({ part }) => part), ["drafting (MTP)"]);
});

Deno.test("bailingmoe2: treats a single group as no groups, and refuses more chosen experts than the used groups hold", () => {
  const routes = (file: GgufFile) =>
    buildPlan(file).ops.flatMap((op) => op.op === "route" ? [[op.groups, op.groupsUsed]] : []);
  for (const count of [0, 1, undefined]) {
    assertEquals(routes(changed(FILE, { key: ["expert_group_count", count] })), [[1, 1]]);
  }
  const one = changed(FILE, { key: ["expert_group_used_count", 1] });
  assertEquals(routes(changed(one, { key: ["expert_used_count", 4] })), [[4, 1]]);
  assertThrows(
    () => routes(one),
    GgufError,
    "enough for the 5 experts",
  );
});

Deno.test("bailingmoe2: a shared expert defaults to the other experts' width", () => {
  const narrow = ["gate", "up", "down"].reduce(
    (file, part) => changed(file, { tensor: [`blk.1.ffn_${part}_shexp.weight`, [256, 256]] }),
    changed(FILE, { key: ["expert_shared_feed_forward_length", undefined] }),
  );
  assertEquals(buildPlan(narrow).ops.filter((op) => op.op === "glu").length, 2);
});

const KEYS: readonly KeyChange[] = [
  ["expert_count", 0],
  ["expert_used_count", 17],
  ["expert_feed_forward_length", 0],
  ["expert_gating_func", 1],
  ["expert_group_count", 3],
  ["expert_group_count", 16],
  ["expert_group_used_count", undefined],
  ["expert_group_used_count", 0],
  ["expert_group_used_count", 5],
  ["expert_shared_count", undefined],
  ["expert_shared_count", 2 ** 20],
  ["leading_dense_block_count", 3],
  ["nextn_predict_layers", 2],
];

const TENSORS: readonly TensorChange[] = [
  ["blk.0.ffn_gate.weight", undefined],
  ["blk.1.ffn_gate_inp.weight", [256, 15]],
  ["blk.1.exp_probs_b.bias", undefined],
  ["blk.1.exp_probs_b.bias", [15]],
  ["blk.1.ffn_down_shexp.weight", undefined],
  ["blk.1.ffn_gate_shexp.weight", [256, 256]],
  ["blk.0.attn_qkv.weight", [256, 256]],
  ["blk.1.attn_q_norm.weight", undefined],
];

testRefusals("bailingmoe2", FILE, { keys: KEYS, tensors: TENSORS });
