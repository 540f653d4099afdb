/** DeepSeek V2 and V3: attention and experts, and files that are refused by key or tensor. */
import { assertAlmostEquals, assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { graphOf } from "../../plan/testing.ts";
import { leftOutParts } from "../left_out.ts";
import { buildPlan } from "../registry.ts";
import { type KeyChange, type TensorChange, testRefusals, without } from "../testing.ts";

/** One dense layer and one with experts. */
const FILE = parseGguf(synthesize({ architecture: "deepseek2", types: ["F32"], seed: 1, layers: 2 }));
const LITE = parseGguf(synthesize({ architecture: "deepseek2-lite", types: ["F32"], seed: 1, layers: 2 }));

const MISTRAL4 = parseGguf(synthesize({ architecture: "mistral4", types: ["F32"], seed: 1, layers: 2 }));

const routesOf = (file: GgufFile) => buildPlan(file).ops.filter((op) => op.op === "route");

Deno.test("deepseek2: caches one row per token for all heads", () => {
  assertEquals(buildPlan(FILE).kv.layers, Array(2).fill({ heads: 1, headDim: 288, group: 0 }));
});

Deno.test("deepseek2: weighs experts by sigmoids with a bias, or by the softmax over all", () => {
  assertEquals(routesOf(FILE).map(({ sigmoid, divided, scale }) => [sigmoid, divided, scale]), [[
    true,
    true,
    Math.fround(1.8),
  ]]);
  const lite = routesOf(LITE).map(({ sigmoid, divided, scale, bias }) => [sigmoid, divided, scale, bias]);
  assertEquals(lite, [[false, false, 1, undefined]]);
});

Deno.test("deepseek2: uses sigmoid weights when the file has a selection bias and no gating key", () => {
  const silent = (file: GgufFile) => changed(file, { key: ["expert_gating_func", undefined] });
  assertEquals([FILE, LITE].map((file) => routesOf(silent(file))[0].sigmoid), [true, false]);
});

Deno.test("deepseek2: chooses experts within groups when the file has groups", () => {
  const grouped = changed(changed(FILE, { key: ["expert_group_count", 4] }), {
    key: ["expert_group_used_count", 2],
  });
  assertEquals(routesOf(grouped).map(({ groups, groupsUsed }) => [groups, groupsUsed]), [[4, 2]]);
});

Deno.test("deepseek2: applies YaRN's temperature to the scores only", () => {
  const plan = buildPlan(LITE);
  assertEquals(plan.rope.map(({ magnitude }) => magnitude), [1]);
  const scales = plan.ops.flatMap((op) => op.op === "attention" ? [op.scale] : []);
  const expected = (1 + 0.0707 * Math.log(40)) ** 2 / Math.sqrt(288);
  scales.forEach((scale) => assertAlmostEquals(scale, expected, 1e-6));
});

Deno.test("mistral4: queries are scaled by position, with the original context length as period unless the file sets one", () => {
  const growth = (file: GgufFile) =>
    buildPlan(file).ops.flatMap((op) => op.op === "rope_append" ? [[op.beta, op.period]] : []);
  const usual = changed(MISTRAL4, { key: ["attention.temperature_length", undefined] });
  assertEquals(growth(MISTRAL4), Array(2).fill([Math.fround(0.1), 51]));
  assertEquals(growth(usual), growth(MISTRAL4));
  assertEquals(growth(LITE), Array(2).fill([0, 0]));
});

Deno.test("deepseek2: accepts files whose layers are all dense (Youtu)", () => {
  const dense = without(FILE, /^blk\.1\.(.*exps|ffn_gate_inp|.*_shexp|exp_probs_b)/);
  const tensors = new Map(dense.tensors);
  for (const part of ["gate", "up", "down"]) {
    const name = `blk.1.ffn_${part}.weight`;
    tensors.set(name, { ...FILE.tensors.get(`blk.0.ffn_${part}.weight`)!, name });
  }
  const youtu = ["expert_count", "expert_used_count"].reduce(
    (file, key) => changed(file, { key: [key, undefined] }),
    changed({ ...dense, tensors }, { key: ["leading_dense_block_count", 2] }),
  );
  assertEquals(routesOf(youtu), []);
});

Deno.test("deepseek2: leaves out layers that draft", () => {
  const tensors = new Map(FILE.tensors);
  for (const tensor of FILE.tensors.values()) {
    const name = tensor.name.replace("blk.1.", "blk.2.");
    tensors.set(name, { ...tensor, name });
  }
  const three = changed({ ...FILE, tensors }, { key: ["block_count", 3] });
  const drafting = changed(three, { key: ["nextn_predict_layers", 1] });
  const plan = buildPlan(drafting);
  assertEquals(graphOf(plan), graphOf(buildPlan(FILE)));
  assertEquals(leftOutParts(drafting, plan).map(({ part }) => part), ["drafting (MTP)"]);
});

/**
 * Returns the file in the form that converters wrote before April 2025: one tensor holds the matrices for keys and
 * values.
 */
function before2025(file: GgufFile, heads: number): GgufFile {
  const split = /\.attn_[kv]_b\./;
  const tensors = new Map(without(file, split).tensors);
  for (const tensor of file.tensors.values()) {
    if (!tensor.name.endsWith("attn_k_b.weight")) continue;
    const name = tensor.name.replace("k_b", "kv_b");
    tensors.set(name, { ...tensor, name, shape: [256, heads * (256 + 128)] });
  }
  const keys: readonly KeyChange[] = [
    ["attention.key_length_mla", undefined],
    ["attention.value_length_mla", undefined],
    ["attention.head_count_kv", heads],
    ["attention.key_length", 288],
    ["attention.value_length", 128],
  ];
  return keys.reduce<GgufFile>((file, key) => changed(file, { key }), { ...file, tensors });
}

Deno.test("deepseek2: runs files from before April 2025, with keys and values in one tensor", () => {
  for (const [file, heads] of [[FILE, 8], [LITE, 6]] as const) {
    const split = (plan: string) =>
      plan.replaceAll("attn_kv_b.weight[0:256]", "attn_k_b.weight").replaceAll(
        "attn_kv_b.weight[256:384]",
        "attn_v_b.weight",
      );
    assertEquals(split(graphOf(buildPlan(before2025(file, heads)))), graphOf(buildPlan(file)));
  }
});

const KEYS: readonly KeyChange[] = [
  ["attention.head_count_kv", 2],
  ["attention.key_length", 256],
  ["attention.value_length", 288],
  ["attention.key_length_mla", 32],
  ["attention.key_length_mla", undefined],
  ["attention.value_length_mla", undefined],
  ["attention.kv_lora_rank", undefined],
  ["attention.q_lora_rank", 2 ** 20],
  ["expert_count", 0],
  ["expert_gating_func", 3],
  ["expert_group_count", 5],
  ["expert_shared_count", 2 ** 20],
  ["leading_dense_block_count", 3],
  ["rope.scaling.attn_factor", 2],
];

const TENSORS: readonly TensorChange[] = [
  ["blk.0.attn_q_a.weight", undefined],
  ["blk.0.attn_q_a_norm.weight", [256]],
  ["blk.0.attn_q_b.weight", [512, 256]],
  ["blk.0.attn_kv_a_mqa.weight", [256, 256]],
  ["blk.0.attn_kv_a_norm.weight", [288]],
  ["blk.0.attn_k_b.weight", [256, 256, 4]],
  ["blk.0.attn_k_b.weight", [256, 2048]],
  ["blk.0.attn_v_b.weight", [256, 256, 8]],
  ["blk.0.attn_output.weight", [256, 256]],
  ["blk.1.ffn_down_shexp.weight", undefined],
];

testRefusals("deepseek2", FILE, { keys: KEYS, tensors: TENSORS });
testRefusals("mistral4", MISTRAL4, {
  keys: [["attention.temperature_length", 2 ** 30], ["attention.temperature_scale", -1]],
});
testRefusals("deepseek2-lite", LITE, {
  keys: [
    ["expert_group_count", 4],
    ["rope.scaling.yarn_log_multiplier", undefined],
  ],
});
