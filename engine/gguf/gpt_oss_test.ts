/** gpt-oss: files that are refused by key or tensor. */
import { assertEquals, assertThrows } from "@std/assert";
import { synthesize } from "../../testing/synth/synth.ts";
import { buildPlan } from "../architectures/registry.ts";
import { GgufError } from "./errors.ts";
import { parseGguf } from "./reader.ts";
import { changed } from "./testing_changes.ts";
import type { MetadataValue } from "./types.ts";

const FILE = parseGguf(synthesize({ architecture: "gpt-oss", types: ["F32"], seed: 1, layers: 1 }));

const KEYS: readonly (readonly [name: string, value: MetadataValue | undefined])[] = [
  ["attention.sliding_window", undefined],
  ["attention.sliding_window", 0],
  ["attention.sliding_window", 2 ** 31],
  ["expert_count", 0],
  ["expert_used_count", 11],
  ["expert_feed_forward_length", 0],
  ["expert_gating_func", 2],
  ["expert_shared_count", 1],
  ["rope.scaling.type", "ntk"],
  ["rope.scaling.factor", -1],
  ["rope.scaling.original_context_length", 2 ** 40],
];

for (const [name, value] of KEYS) {
  Deno.test(`gpt-oss: refuses ${name} ${value === undefined ? "missing" : `of ${value}`}`, () => {
    const error = assertThrows(() => buildPlan(changed(FILE, { key: [name, value] })), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `key "gpt-oss.${name}"`]);
  });
}

const TENSORS: readonly (readonly [name: string, shape: number[] | undefined])[] = [
  ["attn_sinks.weight", undefined],
  ["attn_sinks.weight", [2]],
  ["attn_q.bias", undefined],
  ["attn_output.bias", [64]],
  ["post_attention_norm.weight", undefined],
  ["ffn_gate_inp.bias", undefined],
  ["ffn_gate_exps.bias", undefined],
  ["ffn_up_exps.bias", [256]],
  ["ffn_down_exps.bias", [256, 9]],
  ["ffn_down_exps.weight", [256, 256]],
];

for (const [name, shape] of TENSORS) {
  const how = shape ? `of ${shape.join(" x ")}` : "missing";
  Deno.test(`gpt-oss: refuses the tensor ${name} ${how}`, () => {
    const error = assertThrows(
      () => buildPlan(changed(FILE, { tensor: [`blk.0.${name}`, shape] })),
      GgufError,
    );
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `tensor "blk.0.${name}"`]);
  });
}

Deno.test("gpt-oss: builds a plan", () => {
  assertEquals(buildPlan(FILE).architecture, "gpt-oss");
});
