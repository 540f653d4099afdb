/** OLMoE: expert weights, and files that are refused by key or tensor. */
import { assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { buildPlan } from "../registry.ts";
import { type KeyChange, type TensorChange, testRefusals } from "../testing.ts";

const FILE = parseGguf(synthesize({ architecture: "olmoe", types: ["F32"], seed: 1, layers: 2 }));

const routesOf = (file: GgufFile) =>
  buildPlan(file).ops.flatMap((op) => op.op === "route" ? [[op.sigmoid, op.divided, op.scale]] : []);

Deno.test("olmoe: weighs experts by the softmax over all, in every layer", () => {
  assertEquals(routesOf(FILE), Array(2).fill([false, false, 1]));
  const divided = changed(FILE, { key: ["expert_weights_norm", true] });
  assertEquals(routesOf(divided), Array(2).fill([false, true, 1]));
});

const KEYS: readonly KeyChange[] = [
  ["expert_count", 0],
  ["expert_used_count", 13],
  ["expert_gating_func", 2],
  ["expert_weights_scale", 2],
  ["expert_shared_count", 1],
  ["expert_group_count", 4],
  ["attention.clamp_kqv", 8],
];

const TENSORS: readonly TensorChange[] = [
  ["blk.0.attn_q_norm.weight", [32]],
  ["blk.1.attn_k_norm.weight", undefined],
  ["blk.0.ffn_gate_inp.weight", [256, 11]],
  ["blk.1.ffn_down_exps.weight", [128, 256, 12]],
  ["blk.1.exp_probs_b.bias", [12]],
  ["blk.0.ffn_gate_shexp.weight", [256, 256]],
];

testRefusals("olmoe", FILE, { keys: KEYS, tensors: TENSORS });
