/** Gemma: files that are refused by key or tensor, and the memory of long contexts with windows. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { SYNTH_MODELS } from "../../testing/synth/registry.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";
import { leftOutParts } from "../architectures/left_out.ts";
import { buildPlan } from "../architectures/registry.ts";
import { lower } from "../backend/webgpu/lowering.ts";
import { blocksOfSequence } from "../cache/kv_blocks.ts";
import { kvBlockBytes, kvBytesPerToken } from "../plan/plan.ts";
import { printPlan } from "../plan/print.ts";
import { GgufError } from "./errors.ts";
import { MetadataMap } from "./metadata.ts";
import { parseGguf } from "./reader.ts";
import type { GgufFile, TensorInfo } from "./types.ts";

const FILES = new Map((["gemma2", "gemma3", "gemma4", "gemma4_moe"] as const).map((architecture) => {
  return [architecture as Architecture, parseGguf(synthesize({ architecture, types: ["F32"], seed: 1 }))];
}));

interface Change {
  readonly architecture: Architecture;
  /** A key without the architecture, or a tensor. An undefined `value` or `shape` removes it. */
  readonly key?: readonly [name: string, value: unknown];
  readonly tensor?: readonly [name: string, shape: number[] | undefined];
}

function changed({ architecture, key, tensor }: Change): GgufFile {
  const file = FILES.get(architecture)!;
  const [tensors, entries] = [new Map(file.tensors), new Map(file.metadata.entries)];
  const name = `${file.metadata.getString("general.architecture")}.${key?.[0]}`;
  if (key?.[1] === undefined) entries.delete(name);
  else entries.set(name, key[1] as never);
  if (tensor?.[1]) tensors.set(tensor[0], { ...tensors.get(tensor[0])!, shape: tensor[1] });
  else if (tensor) tensors.delete(tensor[0]);
  return { ...file, tensors, metadata: new MetadataMap(entries) };
}

const KEYS: readonly (readonly [Architecture, name: string, value: unknown])[] = [
  ["gemma2", "attn_logit_softcapping", -50],
  ["gemma2", "final_logit_softcapping", -30],
  ["gemma2", "attention.sliding_window", 2 ** 31],
  ["gemma2", "expert_count", 8],
  ["gemma3", "attention.sliding_window", 2 ** 31],
  ["gemma3", "attention.sliding_window_pattern", 0],
  ["gemma3", "rope.freq_base_swa", -1],
  ["gemma3", "final_logit_softcapping", -30],
  ["gemma3", "attention.causal", false],
  ["gemma3", "expert_count", 8],
  ["gemma4", "attention.sliding_window", 0],
  ["gemma4", "attention.sliding_window_pattern", undefined],
  ["gemma4", "attention.shared_kv_layers", 6],
  ["gemma4", "attention.shared_kv_layers", 5],
  ["gemma4", "attention.key_length_swa", 24],
  ["gemma4", "attention.value_length_swa", 32],
  ["gemma4", "rope.dimension_count_swa", 128],
  ["gemma4", "rope.dimension_count_swa", 3],
  ["gemma4", "rope.freq_base_swa", 0],
  ["gemma4", "embedding_length_per_layer_input", 2 ** 31],
  ["gemma4", "final_logit_softcapping", -1],
  ["gemma4_moe", "expert_count", 2 ** 31],
  ["gemma4_moe", "expert_used_count", undefined],
  ["gemma4_moe", "expert_used_count", 13],
  ["gemma4_moe", "expert_feed_forward_length", 0],
  ["gemma4_moe", "expert_gating_func", 2],
];

for (const [architecture, name, value] of KEYS) {
  Deno.test(`${architecture}: refuses ${name} ${value === undefined ? "missing" : `of ${value}`}`, () => {
    const error = assertThrows(() => buildPlan(changed({ architecture, key: [name, value] })), GgufError);
    assertEquals(error.field, `key "${architecture.replace("_moe", "")}.${name}"`);
  });
}

const TENSORS: readonly (readonly [Architecture, name: string, shape: number[] | undefined])[] = [
  ["gemma3", "blk.0.post_attention_norm.weight", undefined],
  ["gemma3", "blk.0.post_ffw_norm.weight", [255]],
  ["gemma3", "blk.0.attn_q_norm.weight", undefined],
  ["gemma4", "per_layer_token_embd.weight", undefined],
  ["gemma4", "per_layer_model_proj.weight", [256, 256]],
  ["gemma4", "per_layer_proj_norm.weight", [255]],
  ["gemma4", "blk.0.inp_gate.weight", undefined],
  ["gemma4", "blk.0.proj.weight", [256, 128]],
  ["gemma4", "blk.0.post_norm.weight", undefined],
  ["gemma4", "blk.0.layer_output_scale.weight", [2]],
  ["gemma4", "blk.0.attn_v.weight", [256, 64]],
  ["gemma4", "blk.0.attn_k.weight", undefined],
  ["gemma4_moe", "blk.0.ffn_gate_inp.weight", undefined],
  ["gemma4_moe", "blk.0.ffn_gate_inp.scale", undefined],
  ["gemma4_moe", "blk.0.ffn_gate_inp.scale", [12]],
  ["gemma4_moe", "blk.1.ffn_down_exps.scale", undefined],
  ["gemma4_moe", "blk.1.ffn_down_exps.scale", [11]],
  ["gemma4_moe", "blk.0.pre_ffw_norm_2.weight", [255]],
  ["gemma4_moe", "blk.0.post_ffw_norm_1.weight", undefined],
  ["gemma4_moe", "blk.0.post_ffw_norm_2.weight", undefined],
  ["gemma4_moe", "blk.0.ffn_up_exps.weight", [256, 256, 9]],
];

for (const [architecture, name, shape] of TENSORS) {
  const how = shape ? `of ${shape.join(" x ")}` : "missing";
  Deno.test(`${architecture}: refuses the tensor ${name} ${how}`, () => {
    const error = assertThrows(() => buildPlan(changed({ architecture, tensor: [name, shape] })), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `tensor "${name}"`]);
  });
}

Deno.test("gemma: the GPU refuses the scaled embedding, and the message names the embedding", () => {
  for (const architecture of ["gemma2", "gemma3", "gemma4"] as const) {
    const error = assertThrows(() => lower(buildPlan(changed({ architecture }))), Error);
    assertEquals(
      error.message,
      'Cannot run this model on the GPU: its embedding is scaled; use backend: "cpu"',
    );
  }
});

Deno.test("gemma2: missing keys default to the published models' values", () => {
  const attentions = (name: string, value: unknown) =>
    buildPlan(changed({ architecture: "gemma2", key: [name, value] })).ops.flatMap((op) =>
      op.op === "attention" ? [op] : []
    );
  const [first, second] = attentions("attn_logit_softcapping", undefined);
  assertEquals([first.softcap, first.window, second.window], [50, 24, 0]);
  assertEquals(attentions("attention.sliding_window", undefined)[0].window, 4096);
  const logits = buildPlan(changed({ architecture: "gemma2", key: ["final_logit_softcapping", undefined] }));
  assert(printPlan(logits).includes("softcap 30"));
});

Deno.test("gemma4: the last layers cache nothing, and full layers use their keys as values", () => {
  const plan = buildPlan(changed({ architecture: "gemma4" }));
  assertEquals(plan.kv.layers.length, 4);
  const text = printPlan(plan);
  assert(text.includes("values normed"), text);
  assert(text.includes("softcap 30"), text);
});

Deno.test("gemma3: 32,768 tokens in the 1B take little more memory than its four layers without a window", () => {
  const { layers } = SYNTH_MODELS.gemma3.real!["gemma3-1b"];
  const file = synthesize({ architecture: "gemma3", types: ["Q8_0"], seed: 1, layers });
  const plan = buildPlan(parseGguf(file));
  const demand = { windows: plan.kv.windows.slice(1), maxRows: 512 };
  const bytes = blocksOfSequence(demand, 32_768) * kvBlockBytes(plan);
  const share = bytes / (32_768 * kvBytesPerToken(plan));
  assert(share >= 4 / 26 && share < 1.4 * 4 / 26, `${share} of what all layers would take`);
});

Deno.test("gemma4: refuses tensors of experts in a file without experts", () => {
  const file = changed({ architecture: "gemma4_moe", key: ["expert_count", 0] });
  const error = assertThrows(() => buildPlan(file), GgufError);
  assertEquals(error.field, 'tensor "blk.0.post_ffw_norm_1.weight"');
});

Deno.test("gemma4: accepts gate and up of experts as one tensor", () => {
  const file = changed({ architecture: "gemma4_moe" });
  for (let layer = 0; layer < 6; layer++) {
    const name = (part: string) => `blk.${layer}.ffn_${part}_exps.weight`;
    const gate = file.tensors.get(name("gate"))!;
    const tensors = file.tensors as Map<string, typeof gate>;
    for (const part of ["gate", "up"]) tensors.delete(name(part));
    const shape = [256, 512, 12];
    tensors.set(name("gate_up"), { ...gate, name: name("gate_up"), shape, byteLength: 2 * gate.byteLength });
  }
  const text = printPlan(buildPlan(file));
  assert(text.includes("ffn_gate_up_exps"), text);
});

Deno.test("gemma4: leaves out keys and values of layers that read another's cache", () => {
  const file = changed({ architecture: "gemma4" });
  const tensors = file.tensors as Map<string, TensorInfo>;
  for (const part of ["attn_k", "attn_v", "attn_k_norm"]) {
    const name = `blk.4.${part}.weight`;
    tensors.set(name, { ...tensors.get(`blk.0.${part}.weight`)!, name });
  }
  const plan = buildPlan(file);
  assertEquals(plan.tensors.some(({ info }) => info.name === "blk.4.attn_k.weight"), false);
  assertEquals(leftOutParts(file, plan).map(({ part, tensors }) => [part, tensors]), [
    ["keys and values that are never read", 3],
  ]);
});
