/**
 * Tests Hunyuan-A13B, DeepSeekMoE, Ling Lite, Qwen2's mixtures, MiniMax M2 and M3: expert weights, and refusals of files
 * that name the key or tensor.
 */
import { assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile, MetadataValue } from "../../gguf/types.ts";
import { GATE_ACTIVATIONS } from "../../plan/ops/gate.ts";
import { GLU_NAMES } from "../../plan/values.ts";
import { buildPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const NAMES = ["hunyuan-moe", "deepseek", "bailingmoe", "qwen2moe", "minimax-m2", "minimax-m3"] as const;
type Name = typeof NAMES[number];

const FILES = Object.fromEntries(
  NAMES.map((architecture) => [
    architecture,
    parseGguf(synthesize({ architecture, types: ["F32"], seed: 1, layers: 2 })),
  ]),
) as Record<Name, GgufFile>;

const routesOf = (file: GgufFile) =>
  buildPlan(file).ops.flatMap((op) => op.op === "route" ? [[op.sigmoid, op.divided, op.scale]] : []);

const ROUTES: Readonly<Record<Name, unknown>> = {
  "hunyuan-moe": Array(2).fill([false, true, 1]),
  deepseek: [[false, false, 1.5]],
  bailingmoe: Array(2).fill([false, true, 1]),
  qwen2moe: Array(2).fill([false, false, 1]),
  "minimax-m2": Array(2).fill([true, true, 1]),
  "minimax-m3": [[true, true, 1.25]],
};

for (const name of NAMES) {
  Deno.test(`${name}: weighs experts as the checkpoint does`, () => {
    assertEquals(routesOf(FILES[name]), ROUTES[name]);
  });
}

Deno.test("deepseek: divides and scales expert weights as the file says", () => {
  const divided = changed(FILES.deepseek, { key: ["expert_weights_norm", true] });
  assertEquals(routesOf(divided), [[false, true, 1.5]]);
  const plain = changed(FILES.deepseek, { key: ["expert_weights_scale", undefined] });
  assertEquals(routesOf(plain), [[false, false, 1]]);
});

Deno.test("qwen2moe: gates the shared expert, and divides expert weights when the file says so", () => {
  const gates = buildPlan(FILES.qwen2moe).ops.filter((op) => op.op === "gate");
  assertEquals(gates.map(({ activation }) => GATE_ACTIVATIONS[activation]), ["sigmoid", "sigmoid"]);
  const divided = changed(FILES.qwen2moe, { key: ["expert_weights_norm", true] });
  assertEquals(routesOf(divided), Array(2).fill([false, true, 1]));
});

Deno.test("hunyuan-moe: norms heads after rotation", () => {
  const ropes = buildPlan(FILES["hunyuan-moe"]).ops.filter((op) => op.op === "rope_append");
  assertEquals(ropes.map(({ normLast, qNorm }) => [normLast, qNorm !== undefined]), [[true, true], [
    true,
    true,
  ]]);
});

Deno.test("minimax-m2: norms queries and keys over all heads, and rotates part of each head", () => {
  const { ops } = buildPlan(FILES["minimax-m2"]);
  const ropes = ops.filter((op) => op.op === "rope_append");
  assertEquals(ropes.map(({ rotated, qNorm }) => [rotated, qNorm]), [[32, undefined], [32, undefined]]);
});

Deno.test("minimax-m3: clamps SwiGLU in dense blocks, routed experts and shared experts", () => {
  const units = buildPlan(FILES["minimax-m3"]).ops.flatMap((op) =>
    op.op === "glu" || op.op === "expert_glu" ? [[op.op, GLU_NAMES[op.activation]]] : []
  );
  assertEquals(units, ["glu", "expert_glu", "glu"].map((op) => [op, "swiglu_oai"]));
});

const KEYS: readonly (readonly [Name, key: string, value: MetadataValue | undefined])[] = [
  ...NAMES.flatMap((name) =>
    ([["expert_count", 0], ["expert_used_count", 17], ["expert_group_count", 4]] as const).map(
      ([key, value]) => [name, key, value] as const,
    )
  ),
  ["hunyuan-moe", "expert_gating_func", 2],
  ["hunyuan-moe", "expert_weights_scale", 2],
  ["hunyuan-moe", "expert_shared_feed_forward_length", 0],
  ["deepseek", "expert_gating_func", 2],
  ["deepseek", "expert_shared_count", undefined],
  ["deepseek", "expert_shared_count", 2 ** 20],
  ["deepseek", "expert_weights_scale", -1],
  ["deepseek", "leading_dense_block_count", 3],
  ["bailingmoe", "expert_gating_func", 2],
  ["bailingmoe", "expert_shared_count", undefined],
  ["qwen2moe", "expert_gating_func", 2],
  ["qwen2moe", "expert_gating_func", 3],
  ["qwen2moe", "expert_shared_count", 1],
  ["qwen2moe", "expert_shared_feed_forward_length", 0],
  ["qwen2moe", "expert_weights_scale", 2],
  ["minimax-m2", "expert_gating_func", 1],
  ["minimax-m2", "expert_gating_func", undefined],
  ["minimax-m2", "expert_shared_count", 1],
  ["minimax-m2", "expert_weights_scale", 2],
  ["minimax-m3", "expert_shared_count", undefined],
];

const TENSORS: readonly (readonly [Name, tensor: string, shape: number[] | undefined])[] = [
  ["hunyuan-moe", "blk.0.attn_q_norm.weight", undefined],
  ["hunyuan-moe", "blk.0.ffn_gate_inp.weight", [256, 11]],
  ["hunyuan-moe", "blk.1.ffn_down_exps.weight", [128, 256, 12]],
  ["hunyuan-moe", "blk.1.ffn_gate_shexp.weight", [256, 256]],
  ["hunyuan-moe", "blk.1.exp_probs_b.bias", [12]],
  ["deepseek", "blk.0.ffn_gate.weight", undefined],
  ["deepseek", "blk.0.ffn_gate_inp.weight", [256, 12]],
  ["deepseek", "blk.1.ffn_gate_inp.weight", undefined],
  ["deepseek", "blk.1.ffn_up_shexp.weight", [256, 256]],
  ["deepseek", "blk.1.exp_probs_b.bias", [12]],
  ["bailingmoe", "blk.0.ffn_gate_inp.weight", undefined],
  ["bailingmoe", "blk.1.ffn_up_shexp.weight", [256, 256]],
  ["bailingmoe", "blk.1.exp_probs_b.bias", [12]],
  ["qwen2moe", "blk.0.attn_q.bias", [128]],
  ["qwen2moe", "blk.0.ffn_gate_inp_shexp.weight", undefined],
  ["qwen2moe", "blk.0.ffn_gate_inp_shexp.weight", [128, 1]],
  ["qwen2moe", "blk.1.ffn_up_shexp.weight", [256, 256]],
  ["qwen2moe", "blk.1.exp_probs_b.bias", [12]],
  ["minimax-m2", "blk.0.attn_q_norm.weight", [64]],
  ["minimax-m2", "blk.1.attn_k_norm.weight", undefined],
  ["minimax-m2", "blk.1.exp_probs_b.bias", undefined],
  ["minimax-m2", "blk.1.ffn_gate_shexp.weight", [256, 256]],
  ["minimax-m3", "blk.0.attn_q_norm.weight", [512]],
  ["minimax-m3", "blk.1.exp_probs_b.bias", undefined],
  ["minimax-m3", "blk.1.ffn_gate_shexp.weight", undefined],
];

for (const name of NAMES) {
  const of = <Row extends readonly [Name, ...unknown[]]>(rows: readonly Row[]) =>
    rows.filter((row) => row[0] === name);
  testRefusals(name, FILES[name], {
    keys: of(KEYS).map(([, ...key]) => key),
    tensors: of(TENSORS).map(([, ...tensor]) => tensor),
  });
}
