/** qwen35moe: optional parts, and files that are refused by key or tensor. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { synthesize } from "../../testing/synth/synth.ts";
import { buildPlan } from "../architectures/registry.ts";
import { printPlan } from "../plan/print.ts";
import { GgufError } from "./errors.ts";
import { parseGguf } from "./reader.ts";
import { changed } from "./testing_changes.ts";

const FILE = parseGguf(synthesize({ architecture: "qwen35moe", types: ["F32"], seed: 1, layers: 4 }));

const KEYS = [
  ["expert_count", 0],
  ["expert_used_count", 13],
  ["expert_feed_forward_length", 0],
  ["expert_shared_feed_forward_length", 0],
  ["expert_shared_feed_forward_length", 2 ** 31],
  ["expert_gating_func", 2],
  ["expert_weights_scale", 2.5],
  ["expert_group_count", 4],
  ["ssm.conv_kernel", 3],
] as const;

for (const key of KEYS) {
  Deno.test(`qwen35moe: refuses ${key.join(" of ")}`, () => {
    const error = assertThrows(() => buildPlan(changed(FILE, { key })), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `key "qwen35moe.${key[0]}"`]);
  });
}

const TENSORS: readonly (readonly [name: string, shape: number[] | undefined])[] = [
  ["ffn_gate_inp_shexp.weight", undefined],
  ["ffn_gate_inp_shexp.weight", [256, 2]],
  ["ffn_gate_inp_shexp.weight", [255]],
  ["ffn_gate_shexp.weight", undefined],
  ["ffn_up_shexp.weight", [256, 256]],
  ["ffn_down_shexp.weight", [256, 512]],
  ["ffn_up_exps.weight", [256, 256, 11]],
  ["ffn_gate_exps.weight", undefined],
  ["ffn_gate.weight", [256, 768]],
];

for (const [name, shape] of TENSORS) {
  const how = shape ? `of ${shape.join(" x ")}` : "missing";
  Deno.test(`qwen35moe: refuses the tensor ${name} ${how}`, () => {
    const tensor = [`blk.0.${name}`, shape] as const;
    const error = assertThrows(() => buildPlan(changed(FILE, { tensor })), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `tensor "blk.0.${name}"`]);
  });
}

Deno.test("qwen35moe: accepts a shared gate of one matrix row, and a missing dense width", () => {
  const tensor = ["blk.0.ffn_gate_inp_shexp.weight", [256, 1]] as const;
  assertEquals(printPlan(buildPlan(changed(FILE, { tensor }))), printPlan(buildPlan(FILE)));
  const key = ["feed_forward_length", undefined] as const;
  assertEquals(printPlan(buildPlan(changed(FILE, { key }))), printPlan(buildPlan(FILE)));
});

Deno.test("qwen35moe: accepts gate and up of experts as one tensor", () => {
  let file = changed(FILE, { tensor: ["blk.0.ffn_gate_exps.weight", undefined] });
  file = changed(file, { tensor: ["blk.0.ffn_up_exps.weight", undefined] });
  file = changed(file, { tensor: ["blk.0.ffn_gate_up_exps.weight", [256, 512, 12]] });
  const both = "blk.0.ffn_gate_up_exps.weight:F32:12x512x256";
  assert(printPlan(buildPlan(file)).includes(`expert_swiglu(${both}, ${both}) of`));
  file = changed(file, { tensor: ["blk.0.ffn_gate_up_exps.weight", [256, 256, 12]] });
  const error = assertThrows(() => buildPlan(file), GgufError);
  assertEquals(error.field, 'tensor "blk.0.ffn_gate_up_exps.weight"');
});

Deno.test("qwen35moe: leaves out layers that draft, with their experts", () => {
  const drafting = changed(FILE, { key: ["block_count", 5] });
  const file = changed(drafting, { key: ["nextn_predict_layers", 1] });
  const extra = changed(file, { tensor: ["blk.4.ffn_up_exps.weight", [256, 256, 12]] });
  assertEquals(printPlan(buildPlan(extra)), printPlan(buildPlan(FILE)));
  const error = assertThrows(() => buildPlan(drafting), GgufError);
  assertEquals(error.field, 'tensor "blk.4.attn_norm.weight"');
});
