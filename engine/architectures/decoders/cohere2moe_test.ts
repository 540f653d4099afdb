/**
 * Cohere's mixtures of experts: windows, norms and expert weights, and files that are refused by key or
 * tensor.
 */
import { assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed, type Changes } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { Plan } from "../../plan/plan.ts";
import { buildPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const read = (architecture: "cohere2moe" | "cohere2moe-shared"): GgufFile =>
  parseGguf(synthesize({ architecture, types: ["F32"], seed: 1 }));
const NORTH = read("cohere2moe");
const SHARED = read("cohere2moe-shared");

const opsOf = <O extends Plan["ops"][number]["op"]>(file: GgufFile, name: O, change?: Changes) =>
  buildPlan(change ? changed(file, change) : file).ops
    .filter((op): op is Extract<Plan["ops"][number], { op: O }> => op.op === name);
const windows = (file: GgufFile, change?: Changes) =>
  opsOf(file, "attention", change).map(({ window }) => window);
/** Rotated dimensions of each layer's heads. */
const turned = (file: GgufFile, change?: Changes) =>
  opsOf(file, "rope_append", change).map(({ rotated }) => rotated);
const routes = (file: GgufFile, change?: Changes) =>
  opsOf(file, "route", change).map(({ sigmoid, divided, scale }) => [sigmoid, divided, scale]);

Deno.test("cohere2moe: layers without a window have no positions, except dense layers", () => {
  assertEquals(windows(NORTH), [0, 40, 40, 40, 0, 40]);
  assertEquals(turned(NORTH), [64, 64, 64, 64, 0, 64]);
  assertEquals(turned(NORTH, { key: ["attention.sliding_window_pattern", 3] }), [64, 64, 64, 0, 64, 64]);
});

Deno.test("cohere2moe: uses LayerNorm when the file has no RMSNorm epsilon", () => {
  const norms = (file: GgufFile) => [opsOf(file, "rms_norm").length, opsOf(file, "layer_norm").length];
  assertEquals(norms(NORTH), [6 + 1, 0]); // norms of layers and of logits; pooling has its own
  assertEquals(norms(SHARED), [0, 5 + 1 + 1]);
});

Deno.test("cohere2moe: halves the weights of the chosen experts if the model has shared experts", () => {
  assertEquals(routes(NORTH), Array(5).fill([true, true, 1]));
  assertEquals(routes(NORTH, { key: ["expert_weights_norm", false] }), Array(5).fill([true, false, 1]));
  assertEquals(routes(SHARED), Array(3).fill([true, true, 0.5]));
  assertEquals(routes(SHARED, { key: ["expert_weights_scale", 3] }), Array(3).fill([true, true, 1.5]));
});

Deno.test("cohere2moe: shared experts default to the chosen experts' width", () => {
  const length = { key: ["expert_shared_feed_forward_length", undefined] } as const;
  assertEquals(buildPlan(changed(SHARED, length)).ops.length, buildPlan(SHARED).ops.length);
});

Deno.test("cohere2moe: leaves out an extra layer that drafts", () => {
  const drafts = parseGguf(
    synthesize({ architecture: "cohere2moe-shared", types: ["F32"], seed: 1, drafts: 1 }),
  );
  assertEquals(drafts.metadata.getCount("cohere2moe.block_count"), 6);
  assertEquals(buildPlan(drafts).ops, buildPlan(SHARED).ops);
});

testRefusals("cohere2moe", NORTH, {
  keys: [
    ["attention.sliding_window", undefined],
    ["attention.sliding_window", 0],
    ["attention.sliding_window_pattern", undefined],
    ["attention.sliding_window_pattern", [true]],
    ["attention.layer_norm_rms_epsilon", 0],
    ["attention.layer_norm_rms_epsilon", undefined],
    ["rope.freq_base_swa", 5000],
    ["logit_scale", undefined],
    ["logit_scale", 0],
    ["expert_count", 0],
    ["expert_used_count", 13],
    ["expert_gating_func", 1],
    ["expert_group_count", 4],
    ["expert_weights_scale", -1],
    ["leading_dense_block_count", undefined],
    ["leading_dense_block_count", 7],
  ],
  tensors: [
    ["blk.0.ffn_gate.weight", undefined],
    ["blk.0.ffn_gate_inp.weight", [256, 12]],
    ["blk.1.ffn_gate_inp.weight", undefined],
    ["blk.1.ffn_gate_inp.weight", [256, 11]],
    ["blk.1.ffn_norm.weight", [256]],
    ["blk.1.exp_probs_b.bias", [12]],
    ["blk.1.ffn_up_shexp.weight", [256, 256]],
    ["blk.2.attn_q_norm.weight", [64]],
  ],
});

testRefusals("cohere2moe with shared experts", SHARED, {
  keys: [
    ["attention.layer_norm_epsilon", 0],
    ["expert_shared_feed_forward_length", 2 ** 21],
    ["nextn_predict_layers", 6],
  ],
  tensors: [
    ["blk.2.ffn_up_shexp.weight", undefined],
    ["blk.2.ffn_down_shexp.weight", [256, 256]],
    ["blk.3.attn_norm.bias", [64]],
  ],
});
