/** K-EXAONE, Hy3 and dots.llm1: windows, dense layers, layers left out, and files that are refused. */
import { assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { graphOf } from "../../plan/testing.ts";
import { leftOutParts } from "../left_out.ts";
import { buildPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const read = (
  architecture: "exaone-moe" | "hy_v3" | "dots1",
  more: { layers?: number; drafts?: number } = {},
) => parseGguf(synthesize({ architecture, types: ["F32"], seed: 1, hollow: true, ...more }));
const EXAONE = read("exaone-moe");
const HY3 = read("hy_v3", { layers: 2 });

const windows = (file: GgufFile) =>
  buildPlan(file).ops.flatMap((op) => op.op === "attention" ? [op.window] : []);
const rotated = (file: GgufFile) =>
  buildPlan(file).ops.flatMap((op) => op.op === "rope_append" ? [op.rotated] : []);
const routes = (file: GgufFile) => buildPlan(file).ops.filter((op) => op.op === "route");

Deno.test("exaone-moe: layers without a window have no positions", () => {
  assertEquals(windows(EXAONE), [40, 40, 40, 0, 40]);
  assertEquals(rotated(EXAONE), [64, 64, 64, 0, 64]);
  const usual = changed(EXAONE, { key: ["attention.sliding_window_pattern", undefined] });
  assertEquals(windows(usual), windows(EXAONE));
});

Deno.test("exaone-moe, hy_v3: leave out layers that draft", () => {
  for (const architecture of ["exaone-moe", "hy_v3"] as const) {
    const drafting = read(architecture, { layers: 2, drafts: 1 });
    const plan = buildPlan(drafting);
    assertEquals(graphOf(plan), graphOf(buildPlan(read(architecture, { layers: 2 }))));
    assertEquals(leftOutParts(drafting, plan).map(({ part }) => part), ["drafting (MTP)"]);
  }
});

Deno.test("hy_v3: the layers before the first one with a router are dense", () => {
  assertEquals(routes(HY3).map(({ sigmoid, divided }) => [sigmoid, divided]), [[true, true]]);
  const tensors = new Map([...HY3.tensors].filter(([name]) => !/^blk\.1\.ffn_|exp_probs/.test(name)));
  for (const part of ["ffn_gate", "ffn_up", "ffn_down", "ffn_norm"]) {
    const name = `blk.1.${part}.weight`;
    tensors.set(name, { ...HY3.tensors.get(`blk.0.${part}.weight`)!, name });
  }
  assertEquals(routes({ ...HY3, tensors }), []);
});

testRefusals("exaone-moe", EXAONE, {
  keys: [
    ["attention.sliding_window", undefined],
    ["attention.sliding_window_pattern", [true]],
    ["expert_gating_func", 1],
    ["expert_group_count", 4],
    ["expert_shared_feed_forward_length", 2 ** 21],
    ["leading_dense_block_count", 6],
    ["nextn_predict_layers", 5],
  ],
  tensors: [["blk.1.exp_probs_b.bias", undefined], ["blk.3.attn_q_norm.weight", undefined]],
});

testRefusals("hy_v3", HY3, {
  keys: [["expert_count", 0], ["expert_gating_func", 1]],
  tensors: [
    ["blk.1.exp_probs_b", [11]],
    ["blk.1.ffn_up_shexp.weight", [256, 256]],
    ["blk.0.attn_k_norm.weight", undefined],
  ],
});

testRefusals("dots1", read("dots1", { layers: 2 }), {
  keys: [["expert_count", 0], ["expert_gating_func", 1], ["leading_dense_block_count", 3]],
  tensors: [
    ["blk.1.exp_probs_b.bias", undefined],
    ["blk.1.ffn_up_shexp.weight", [256, 256]],
    ["blk.0.attn_k_norm.weight", undefined],
  ],
});
