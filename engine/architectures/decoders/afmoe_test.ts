/** Arcee's Trinity: windows, gates and experts of its layers, and files that are refused by key or tensor. */
import { assertAlmostEquals, assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { buildPlan } from "../registry.ts";
import { type KeyChange, type TensorChange, testRefusals } from "../testing.ts";

/** Two dense layers, then three with experts. The first layer with experts has no window. */
const FILE = parseGguf(synthesize({ architecture: "afmoe", types: ["F32"], seed: 1 }));
const WIDTH = 256;

/** Returns [window, rotated dimensions] of each layer. */
function seen(file: GgufFile): number[][] {
  const { ops } = buildPlan(file);
  const windows = ops.flatMap((op) => op.op === "attention" ? [op.window] : []);
  const rotated = ops.flatMap((op) => op.op === "rope_append" ? [op.rotated] : []);
  return windows.map((window, i) => [window, rotated[i]]);
}

Deno.test("afmoe: every fourth layer has no window and no positions, unless the file sets the pattern", () => {
  const [near, full] = [[40, 64], [0, 0]];
  assertEquals(seen(FILE), [near, near, near, full, near]);
  const third = changed(FILE, { key: ["attention.sliding_window_pattern", 3] });
  assertEquals(seen(third), [near, near, full, near, near]);
  const all = changed(FILE, { key: ["attention.sliding_window", undefined] });
  assertEquals(seen(all), [[0, 64], [0, 64], [0, 64], full, [0, 64]]);
});

Deno.test("afmoe: norms heads before attention, and gates and norms the attention output", () => {
  const { ops, tensors } = buildPlan(FILE);
  const kinds = ops.map(({ op }) => op);
  const first = kinds.indexOf("attention");
  assertEquals(kinds.slice(first, first + 4), ["attention", "gate", "matmul", "post_norm"]);
  const gates = ops.flatMap((op) => op.op === "gate" ? [op.activation] : []);
  assertEquals(gates, Array(5).fill(1)); // sigmoid
  const norms = ops.flatMap((op) => op.op === "rope_append" ? [tensors[op.qNorm!].info.name] : []);
  assertEquals(norms[3], "blk.3.attn_q_norm.weight");
  assertEquals(kinds.filter((op) => op === "post_norm").length, 10);
});

Deno.test("afmoe: scales the embedding by the square root of its width", () => {
  const [scale] = buildPlan(FILE).ops.flatMap((op) => op.op === "embed" ? [op.scale] : []);
  assertAlmostEquals(scale, Math.sqrt(WIDTH));
});

Deno.test("afmoe: layers after the dense ones have experts, weighted as the file's keys say", () => {
  const routes = (file: GgufFile) => buildPlan(file).ops.flatMap((op) => op.op === "route" ? [op] : []);
  const weighed = (file: GgufFile) =>
    routes(file).map(({ sigmoid, divided, scale }) => [sigmoid, divided, scale]);
  assertEquals(weighed(FILE), Array(3).fill([true, true, 2.5]));
  const plain = ["expert_weights_norm", "expert_weights_scale", "expert_gating_func"].reduce(
    (file, key) => changed(file, { key: [key, undefined] }),
    FILE,
  );
  assertEquals(weighed(plain), Array(3).fill([true, false, 1]));
});

Deno.test("afmoe: runs only the chosen experts when the file has no shared experts", () => {
  const tensors = new Map([...FILE.tensors].filter(([name]) => !name.includes("_shexp")));
  const alone = changed({ ...FILE, tensors }, { key: ["expert_shared_count", 0] });
  assertEquals(buildPlan(alone).ops.filter((op) => op.op === "glu").length, 2);
});

const KEYS: readonly KeyChange[] = [
  ["expert_count", 0],
  ["expert_used_count", 13],
  ["expert_gating_func", 1],
  ["expert_group_count", 4],
  ["expert_shared_count", undefined],
  ["expert_weights_scale", -1],
  ["leading_dense_block_count", 6],
  ["attention.sliding_window", 2 ** 31],
  ["attention.sliding_window_pattern", 0],
  ["rope.freq_base_swa", -1],
];

const TENSORS: readonly TensorChange[] = [
  ["blk.0.attn_gate.weight", undefined],
  ["blk.0.attn_gate.weight", [WIDTH, 8]],
  ["blk.3.attn_q_norm.weight", undefined],
  ["blk.1.post_attention_norm.weight", undefined],
  ["blk.4.post_ffw_norm.weight", undefined],
  ["blk.0.ffn_gate_inp.weight", [WIDTH, 12]],
  ["blk.2.exp_probs_b.bias", undefined],
  ["blk.2.ffn_up_exps.weight", [WIDTH, 256, 11]],
  ["blk.2.ffn_gate_shexp.weight", [WIDTH, 256]],
];

testRefusals("afmoe", FILE, { keys: KEYS, tensors: TENSORS });
