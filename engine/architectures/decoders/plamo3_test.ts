/** PLaMo 3: windows and rotary tables of its layers, and files that are refused. */
import { assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { buildPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const FILE = parseGguf(synthesize({ architecture: "plamo3", types: ["F32"], seed: 1 }));

const windows = (file: GgufFile) =>
  buildPlan(file).ops.flatMap((op) => op.op === "attention" ? [op.window] : []);
/** Returns the second frequency of each rotary table: base^(-1/32). */
const tables = (file: GgufFile) => buildPlan(file).rope.map(({ frequencies }) => frequencies[1]);

Deno.test("plamo3: windows count the tokens before a row, and the last layer of a period has no window", () => {
  assertEquals(windows(FILE), [1025, 1025, 1025, 0, 1025]);
  assertEquals(windows(changed(FILE, { key: ["attention.sliding_window_pattern", undefined] })), [
    1025,
    1025,
    1025,
    1025,
    1025,
  ]);
  assertEquals(windows(changed(FILE, { key: ["attention.sliding_window", undefined] })), [0, 0, 0, 0, 0]);
});

Deno.test("plamo3: layers with a window have their own rotary base", () => {
  assertEquals(tables(FILE), [1e6, 1e4].map((base) => base ** (-1 / 32)));
  const unsaid = changed(FILE, { key: ["rope.freq_base_swa", undefined] });
  assertEquals(tables(unsaid), tables(FILE));
  const unwindowed = changed(FILE, { key: ["attention.sliding_window", 0] });
  assertEquals(tables(unwindowed), [1e6 ** (-1 / 32)]);
});

testRefusals("plamo3", FILE, {
  keys: [
    ["rope.scaling.factor", 4],
    ["rope.freq_base_swa", -1],
    ["attention.sliding_window_pattern", 0],
    ["expert_count", 8],
    ["attention.layer_norm_rms_epsilon", undefined],
  ],
  tensors: [
    ["blk.0.post_attention_norm", undefined],
    ["blk.0.post_attention_norm.weight", [256]],
    ["blk.4.post_ffw_norm", [64]],
    ["blk.1.attn_q_norm.weight", undefined],
    ["blk.1.ffn_gate.weight", [256, 768]],
  ],
});
