/** SmallThinker: routers that read a layer's input, ReLU gates, and files that are refused. */
import { assert, assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { buildPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const FILE = parseGguf(synthesize({ architecture: "smallthinker", types: ["F32"], seed: 1, hollow: true }));

const heads = (file: GgufFile) =>
  buildPlan(file).ops.flatMap((op) => op.op === "rope_append" ? [op.rotated] : []);
const windows = (file: GgufFile) =>
  buildPlan(file).ops.flatMap((op) => op.op === "attention" ? [op.window] : []);
const routes = (file: GgufFile) => buildPlan(file).ops.flatMap((op) => op.op === "route" ? [op.sigmoid] : []);

Deno.test("smallthinker: routers come before attention, and experts have ReLU gates", () => {
  const { ops } = buildPlan(FILE);
  const order = ops.flatMap(({ op }) => ["route", "attention", "expert_glu"].includes(op) ? [op] : []);
  assertEquals(order, Array(5).fill(["route", "attention", "expert_glu"]).flat());
  assert(ops.every((op) => op.op !== "expert_glu" || op.activation === "relu"));
});

Deno.test("smallthinker: the first layer of four has neither a window nor positions, if the file has a window", () => {
  assertEquals(windows(FILE), [0, 4096, 4096, 4096, 0]);
  assertEquals(heads(FILE), [0, 32, 32, 32, 0]);
  const none = changed(FILE, { key: ["attention.sliding_window", undefined] });
  assertEquals([windows(none), heads(none)], [Array(5).fill(0), Array(5).fill(32)]);
});

Deno.test("smallthinker: the file says whether weights are sigmoids", () => {
  assertEquals(routes(FILE), Array(5).fill(true));
  assertEquals(routes(changed(FILE, { key: ["expert_gating_func", 1] })), Array(5).fill(false));
});

testRefusals("smallthinker", FILE, {
  keys: [
    ["expert_count", 0],
    ["expert_used_count", 13],
    ["expert_gating_func", 3],
    ["expert_weights_scale", 2],
    ["expert_shared_count", 1],
    ["attention.sliding_window_pattern", [true]],
  ],
  tensors: [
    ["blk.0.ffn_gate_inp.weight", [256, 11]],
    ["blk.1.ffn_down_exps.weight", [128, 256, 12]],
    ["blk.1.exp_probs_b.bias", [12]],
    ["blk.0.attn_q_norm.weight", [32]],
  ],
});
