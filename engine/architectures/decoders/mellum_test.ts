/** Mellum 2: windows and rotary tables of its layers, and files that are refused by key or tensor. */
import { assertAlmostEquals, assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { buildPlan } from "../registry.ts";
import { type KeyChange, type TensorChange, testRefusals } from "../testing.ts";

const FILE = parseGguf(synthesize({ architecture: "mellum", types: ["F32"], seed: 1 }));

const windowsOf = (file: GgufFile) =>
  buildPlan(file).ops.flatMap((op) => op.op === "attention" ? [op.window ?? 0] : []);
/** Magnitudes of the rotary tables, first of layers without a window. */
const magnitudesOf = (file: GgufFile) => buildPlan(file).rope.map(({ magnitude }) => magnitude);

Deno.test("mellum: three of four layers have a window and no YaRN", () => {
  assertEquals(windowsOf(FILE), [40, 40, 40, 0, 40]);
  const [full, near] = magnitudesOf(FILE);
  assertAlmostEquals(full, 1 + 0.1 * Math.log(8));
  assertEquals(near, 1);
});

Deno.test("mellum: multiplies rotary values by the file's attention factor only", () => {
  assertEquals(magnitudesOf(changed(FILE, { key: ["rope.scaling.yarn_attn_factor", 1.5] })), [1.5, 1]);
});

Deno.test("mellum: no layer has a window when the file has none", () => {
  const file = changed(FILE, { key: ["attention.sliding_window", undefined] });
  assertEquals(windowsOf(file), [0, 0, 0, 0, 0]);
  assertEquals(magnitudesOf(file).length, 1);
});

const KEYS: readonly KeyChange[] = [
  ["expert_count", 0],
  ["expert_used_count", 13],
  ["expert_gating_func", 2],
  ["expert_shared_count", 1],
  ["rope.freq_base_swa", 1e4],
  ["rope.scaling.yarn_attn_factor", -1],
  ["attention.sliding_window_pattern", 0],
];

const TENSORS: readonly TensorChange[] = [
  ["blk.0.attn_q_norm.weight", undefined],
  ["blk.1.ffn_gate_inp.weight", [256, 11]],
  ["blk.4.ffn_down_exps.weight", undefined],
  ["blk.2.exp_probs_b.bias", [12]],
];

testRefusals("mellum", FILE, { keys: KEYS, tensors: TENSORS });
