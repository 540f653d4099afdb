/** Kimi Linear and Ling 3.0: states and caches, and files that are refused by key or tensor. */
import { assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { buildPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const read = (architecture: "kimi-linear" | "bailingmoe3") =>
  parseGguf(synthesize({ architecture, types: ["F32"], seed: 1, layers: 3, hollow: true }));
const KIMI = read("kimi-linear");
const LING = read("bailingmoe3");

Deno.test("kimi-linear, bailingmoe3: layers without KV heads have a state, and the others one cached row per token", () => {
  for (const file of [KIMI, LING]) {
    const { kv, states } = buildPlan(file);
    assertEquals(kv.layers, [{ heads: 1, headDim: 288, group: 0 }]);
    assertEquals(states.map(({ matrices }) => matrices), Array(2).fill({ heads: 4, rows: 64, columns: 64 }));
  }
});

Deno.test("kimi-linear: heads have no positions; bailingmoe3: they have", () => {
  const rotated = (file: GgufFile) =>
    buildPlan(file).ops.flatMap((op) => op.op === "rope_append" ? [op.rotated] : []);
  assertEquals([rotated(KIMI), rotated(LING)], [[0], [32]]);
});

Deno.test("kimi-linear: reads convolutions and decays of any number of dimensions", () => {
  const flat = changed(changed(KIMI, { tensor: ["blk.0.ssm_conv1d_q.weight", [4, 256]] }), {
    tensor: ["blk.0.ssm_a", [4]],
  });
  assertEquals(buildPlan(flat).ops.length, buildPlan(KIMI).ops.length);
});

testRefusals("kimi-linear", KIMI, {
  keys: [
    ["attention.head_count_kv", Int32Array.of(0, 2, 0)],
    ["attention.head_count", Int32Array.of(4, 8, 4)],
    ["attention.key_length_mla", undefined],
    ["kda.head_dim", undefined],
    ["kda.head_dim", 48],
    ["ssm.conv_kernel", 3],
    ["expert_gating_func", 3],
  ],
  tensors: [
    ["blk.0.ssm_conv1d_k.weight", [4, 1, 128, 1]],
    ["blk.0.ssm_a", [1, 8]],
    ["blk.0.ssm_dt.bias", [4]],
    ["blk.0.ssm_f_b.weight", [64, 128]],
    ["blk.2.ssm_beta.weight", undefined],
    ["blk.1.attn_k_b.weight", undefined],
  ],
});

testRefusals("bailingmoe3", LING, {
  keys: [
    ["kda.gate_lower_bound", undefined],
    ["kda.gate_lower_bound", 0],
    ["kda.safe_gate", false],
    ["rope.dimension_sections", Int32Array.of(4, 6, 6, 0)],
    ["swiglu_clamp_exp", 7],
  ],
  tensors: [["blk.0.ssm_g_a.weight", [256, 64]], ["blk.1.attn_gate.weight", undefined]],
});
