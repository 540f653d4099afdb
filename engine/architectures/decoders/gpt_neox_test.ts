/** GPT-NeoX and its descendants: order of blocks in a layer, biases of logits, and files that are refused. */
import { assertEquals } from "@std/assert";
import { type Architecture, synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile, TensorType } from "../../gguf/types.ts";
import type { Plan } from "../../plan/plan.ts";
import { buildPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const read = (architecture: Architecture, type: TensorType = "F32"): GgufFile =>
  parseGguf(synthesize({ architecture, types: [type], seed: 1, layers: 2 }));
const FILES = {
  gptneox: read("gptneox"),
  phi2: read("phi2"),
  stablelm: read("stablelm"),
  "stablelm-12b": read("stablelm-12b"),
};

const opsOf = <O extends Plan["ops"][number]["op"]>({ ops }: Plan, name: O) =>
  ops.filter((op): op is Extract<Plan["ops"][number], { op: O }> => op.op === name);
/** Returns the ops of the first of two layers. */
const names = (file: GgufFile) => {
  const names = buildPlan(file).ops.map(({ op }) => op);
  return names.slice(2, 2 + (names.indexOf("candidates") - 4) / 2).join(" ");
};

const ATTENTION = "matmul rope_append attention matmul";

Deno.test("gptneox: attention and feed-forward run in parallel through separate norms, or in sequence when the file says so", () => {
  assertEquals(names(FILES.gptneox), `layer_norm layer_norm ${ATTENTION} activated matmul`);
  const behind = changed(FILES.gptneox, { key: ["use_parallel_residual", false] });
  assertEquals(names(behind), `layer_norm ${ATTENTION} layer_norm activated matmul`);
});

Deno.test("phi2: attention and feed-forward read the same norm output", () => {
  assertEquals(names(FILES.phi2), `layer_norm ${ATTENTION} activated matmul`);
});

Deno.test("phi2: accepts queries, keys and values in one tensor", () => {
  const parts = ["q", "k", "v"].flatMap((part) =>
    [0, 1].flatMap((layer) => ["weight", "bias"].map((kind) => `blk.${layer}.attn_${part}.${kind}`))
  );
  const fused = [0, 1].flatMap((layer) =>
    [[`blk.${layer}.attn_qkv.weight`, [256, 768]], [`blk.${layer}.attn_qkv.bias`, [768]]] as const
  );
  let file = FILES.phi2;
  for (const name of parts) file = changed(file, { tensor: [name, undefined] });
  for (const [name, shape] of fused) file = changed(file, { tensor: [name, shape] });
  assertEquals(names(file), names(FILES.phi2));
});

Deno.test("gpt_neox: computes logits with a bias from two planes, without an exact pass", () => {
  const output = (file: GgufFile) => {
    const plan = buildPlan(file);
    const [{ parts: [{ bias, fine }] }] = opsOf(plan, "matmul").slice(-1);
    return [bias !== undefined, fine, opsOf(plan, "candidates")[0].exact !== undefined];
  };
  assertEquals(output(read("phi2", "Q8_0")), [true, 500, false]);
  assertEquals(output(read("stablelm", "Q8_0")), [false, 0, true]);
});

Deno.test("stablelm: feed-forward runs after attention; the 12B runs both in parallel and has head norms", () => {
  assertEquals(names(FILES.stablelm), `layer_norm ${ATTENTION} layer_norm glu matmul`);
  const normed = "matmul layer_norm layer_norm rope_append attention matmul";
  assertEquals(names(FILES["stablelm-12b"]), `layer_norm ${normed} glu matmul`);
});

testRefusals("gptneox", FILES.gptneox, {
  keys: [
    ["use_parallel_residual", undefined],
    ["attention.layer_norm_epsilon", undefined],
    ["rope.dimension_count", 65],
    ["expert_count", 8],
    ["attention.causal", false],
  ],
  tensors: [
    ["blk.1.ffn_norm.weight", undefined],
    ["blk.0.attn_qkv.weight", [256, 256]],
    ["blk.0.attn_qkv.bias", [256]],
    ["blk.0.attn_q.weight", [256, 256]],
    ["blk.0.ffn_gate.weight", [256, 768]],
  ],
});
testRefusals("phi2", FILES.phi2, {
  keys: [["attention.layer_norm_epsilon", 0]],
  tensors: [
    ["blk.0.ffn_norm.weight", [256]],
    ["blk.1.attn_qkv.weight", [256, 768]],
    ["output.bias", [256]],
    ["blk.0.attn_output.bias", [64]],
  ],
});
testRefusals("stablelm", FILES.stablelm, {
  keys: [["attention.layer_norm_epsilon", undefined]],
  tensors: [
    ["blk.1.ffn_norm.weight", undefined],
    ["blk.1.attn_q_norm.weight", [32, 8]],
    ["blk.0.ffn_gate.weight", undefined],
    ["output_norm.bias", [128]],
  ],
});
testRefusals("stablelm-12b", FILES["stablelm-12b"], {
  keys: [["use_parallel_residual", false]],
  tensors: [
    ["blk.1.attn_q_norm.weight", undefined],
    ["blk.0.attn_k_norm.weight", [64, 4]],
    ["blk.1.ffn_norm.weight", [256]],
  ],
});
