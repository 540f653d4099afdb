/** MiMo V2 Flash: layers that differ, layers left out, and files that are refused by key or tensor. */
import { assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { buildPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const FILE = parseGguf(synthesize({ architecture: "mimo2", types: ["F32"], seed: 1, hollow: true }));

Deno.test("mimo2: layers with a window have their own KV heads, rotary table and sinks", () => {
  const plan = buildPlan(FILE);
  assertEquals(
    plan.kv.layers.map(({ heads, headDim }) => [heads, headDim]),
    [2, 4, 4, 4, 2].map((n) => [n, 96]),
  );
  const attention = plan.ops.filter((op) => op.op === "attention");
  assertEquals(attention.map(({ window }) => window), [0, 40, 40, 40, 0]);
  assertEquals(attention.map(({ sinks }) => sinks !== undefined), [false, true, true, true, false]);
  const tables = plan.ops.flatMap((op) => op.op === "rope_append" ? [op.table] : []);
  assertEquals(tables.map((table) => table === tables[0]), [true, false, false, false, true]);
});

Deno.test("mimo2: layers that only draft have entries in the keys per layer, and are left out", () => {
  const tensors = new Map(FILE.tensors);
  for (const tensor of FILE.tensors.values()) {
    const name = tensor.name.replace("blk.3.", "blk.5.");
    tensors.set(name, { ...tensor, name });
  }
  const more: [string, number | Int32Array][] = [
    ["block_count", 6],
    ["nextn_predict_layers", 1],
    ["attention.sliding_window_pattern", Int32Array.of(0, 1, 1, 1, 0, 1)],
    ["attention.head_count", new Int32Array(6).fill(8)],
    ["attention.head_count_kv", Int32Array.of(2, 4, 4, 4, 2, 4)],
    ["feed_forward_length", new Int32Array(6).fill(768)],
  ];
  const drafting = more.reduce<GgufFile>((file, key) => changed(file, { key }), { ...FILE, tensors });
  assertEquals(buildPlan(drafting).ops.length, buildPlan(FILE).ops.length);
});

testRefusals("mimo2", FILE, {
  keys: [
    ["attention.sliding_window", undefined],
    ["attention.sliding_window_pattern", [true]],
    ["attention.value_length", 112],
    ["attention.value_scale", -1],
    ["attention.head_count_kv", Int32Array.of(2, 0, 4, 4, 2)],
    ["attention.head_count", Int32Array.of(8, 16, 8, 8, 8)],
    ["expert_gating_func", 1],
    ["expert_group_count", 4],
    ["rope.freq_base_swa", 0],
  ],
  tensors: [
    ["blk.0.attn_v.weight", [256, 192]],
    ["blk.0.attn_output.weight", [768, 256]],
    ["blk.1.attn_sinks.weight", [4]],
    ["blk.1.ffn_down_exps.weight", undefined],
  ],
});
