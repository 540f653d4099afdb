/**
 * Granite with windows: windows, sinks and experts of its layers, and files that are refused by key or
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

const read = (architecture: "granite_swa" | "granite_swa_moe"): GgufFile =>
  parseGguf(synthesize({ architecture, types: ["F32"], seed: 1 }));
const DENSE = read("granite_swa");
const MOE = read("granite_swa_moe");

const opsOf = <O extends Plan["ops"][number]["op"]>(file: GgufFile, name: O, change?: Changes) =>
  buildPlan(change ? changed(file, change) : file).ops
    .filter((op): op is Extract<Plan["ops"][number], { op: O }> => op.op === name);
/** Rotated dimensions of each layer's heads. */
const turned = (change?: Changes) => opsOf(DENSE, "rope_append", change).map(({ rotated }) => rotated);

Deno.test("granite_swa: reads from the file which layers have a window and which have positions", () => {
  const windows = (change?: Changes) => opsOf(DENSE, "attention", change).map(({ window }) => window);
  assertEquals([windows(), turned()], [[0, 40, 40, 40, 0, 40], [0, 32, 32, 32, 0, 32]]);
  const pattern = [true, false, true, false, true, false];
  assertEquals(windows({ key: ["attention.sliding_window_pattern", pattern] }), [40, 0, 40, 0, 40, 0]);
  assertEquals(turned({ key: ["attention.rope_pattern", pattern] }), [32, 0, 32, 0, 32, 0]);
  assertEquals(turned({ key: ["attention.rope_pattern", undefined] }), Array(6).fill(32));
  assertEquals(turned({ key: ["attention.rope_pattern", Array(6).fill(false)] }), Array(6).fill(0));
});

Deno.test("granite_swa: each head has a sink, and scores use the file's scale", () => {
  const attentions = opsOf(DENSE, "attention");
  assertEquals(
    attentions.map(({ sinks, scale }) => [sinks !== undefined, scale]),
    Array(6).fill([true, 0.5]),
  );
});

Deno.test("granite_swa: accepts gate and up of experts as one tensor or as two", () => {
  const { tensors } = buildPlan(MOE);
  const read = tensors.map(({ info }) => info.name).filter((name) => name.startsWith("blk.1.ffn_"));
  assertEquals(new Set(read.filter((name) => name.includes("gate_up") || name.includes("up_shexp"))).size, 2);
  assertEquals(opsOf(MOE, "expert_glu").length, 5);
  assertEquals(opsOf(MOE, "glu").length, 5);
});

testRefusals("granite_swa", DENSE, {
  keys: [
    ["attention.sliding_window", undefined],
    ["attention.sliding_window", 0],
    ["attention.sliding_window_pattern", undefined],
    ["attention.sliding_window_pattern", [true]],
    ["attention.rope_pattern", [true]],
    ["attention.rope_pattern", 1],
    ["attention.scale", -1],
    ["residual_scale", -1],
    ["logit_scale", -1],
    ["rope.freq_base_swa", 5000],
  ],
  tensors: [
    ["blk.0.attn_sinks.weight", undefined],
    ["blk.1.attn_sinks.weight", [4]],
    ["blk.1.ffn_gate.weight", undefined],
    ["blk.1.ffn_gate_inp.weight", [256, 10]],
  ],
});

testRefusals("granite_swa with experts", MOE, {
  keys: [
    ["expert_used_count", 11],
    ["expert_gating_func", 2],
    ["expert_weights_scale", 2],
    ["expert_group_count", 4],
    ["expert_shared_count", 1],
  ],
  tensors: [
    ["blk.0.ffn_up_shexp.weight", [256, 512]],
    ["blk.1.ffn_down_exps.weight", undefined],
    ["blk.1.ffn_gate_up_exps.weight", [256, 256, 10]],
    ["blk.1.exp_probs_b.bias", [10]],
  ],
});
