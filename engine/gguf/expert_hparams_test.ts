import { assertEquals, assertThrows } from "@std/assert";
import { buildPlan } from "../architectures/registry.ts";
import { GgufError } from "./errors.ts";
import { readExpertHparams } from "./expert_hparams.ts";
import { readHparams } from "./hparams.ts";
import { parseGguf } from "./reader.ts";
import { GgufBuilder } from "./testing.ts";

const KEYS = {
  block_count: 1,
  context_length: 128,
  embedding_length: 64,
  feed_forward_length: 96,
  "attention.head_count": 4,
  "attention.head_count_kv": 2,
  expert_count: 5,
  expert_used_count: 2,
  expert_feed_forward_length: 32,
};
type Changes = Readonly<Record<string, number | undefined>>;

/** A header with these keys changed; undefined takes one out. */
function header(changes: Changes, architecture = "qwen3moe"): GgufBuilder {
  const builder = new GgufBuilder().set("general.architecture", "STRING", architecture);
  for (const [key, value] of Object.entries({ ...KEYS, ...changes })) {
    const type = Number.isInteger(value) ? "UINT32" : "FLOAT32";
    if (value !== undefined) builder.set(`${architecture}.${key}`, type, value);
  }
  builder.set(`${architecture}.attention.layer_norm_rms_epsilon`, "FLOAT32", 1e-6);
  return builder.array("tokenizer.ggml.tokens", "STRING", ["a"]);
}

function read(changes: Changes = {}) {
  const file = parseGguf(header(changes).build().bytes);
  return readExpertHparams(file, readHparams(file, { experts: true }));
}

Deno.test("hyper-parameters of experts are read; their width is by default what all of a row's share", () => {
  assertEquals(read(), { count: 5, used: 2, feedForwardLength: 32 });
  assertEquals(read({ expert_feed_forward_length: undefined }).feedForwardLength, 48);
  // What stands for the softmax over all experts, unscaled.
  const plain = {
    expert_gating_func: 1,
    expert_weights_scale: 1,
    expert_group_count: 1,
    expert_shared_count: 0,
  };
  assertEquals(read(plain), read());
  // The softmax over the chosen is that over all, divided by their sum.
  assertEquals(read({ expert_gating_func: 3 }), read());
});

const REFUSED: readonly (readonly [key: string, value: number | undefined])[] = [
  ["expert_count", undefined],
  ["expert_count", 0],
  ["expert_count", 5000],
  ["expert_count", 2 ** 32 - 1],
  ["expert_used_count", undefined],
  ["expert_used_count", 0],
  ["expert_used_count", 6],
  ["expert_feed_forward_length", 0],
  ["expert_feed_forward_length", 2 ** 31],
  ["expert_gating_func", 2],
  ["expert_weights_scale", 2.5],
  ["expert_group_count", 4],
  ["expert_shared_count", 1],
];

for (const [key, value] of REFUSED) {
  Deno.test(`${key} ${value === undefined ? "left out" : `of ${value}`} is refused`, () => {
    const error = assertThrows(() => read({ [key]: value }), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `key "qwen3moe.${key}"`]);
  });
}

Deno.test("a row may choose a few hundred experts at most", () => {
  const error = assertThrows(() => read({ expert_count: 4096, expert_used_count: 300 }), GgufError);
  assertEquals(error.field, 'key "qwen3moe.expert_used_count"');
});

Deno.test("an architecture that compy has without experts is refused with them", () => {
  for (const architecture of ["llama", "qwen2", "qwen3", "qwen35"]) {
    const file = parseGguf(header({}, architecture).build().bytes);
    const error = assertThrows(() => buildPlan(file), GgufError);
    assertEquals(error.field, `key "${architecture}.expert_count"`);
  }
});

/** A whole file of one layer, whose tensors of that name have another shape, or are left out. */
function fileWith(changed: Readonly<Record<string, number[] | undefined>>, keys: Changes = {}) {
  const shapes: Record<string, number[]> = {
    "token_embd": [64, 1],
    "output_norm": [64],
    "blk.0.attn_norm": [64],
    "blk.0.attn_q": [64, 64],
    "blk.0.attn_k": [64, 32],
    "blk.0.attn_v": [64, 32],
    "blk.0.attn_q_norm": [16],
    "blk.0.attn_k_norm": [16],
    "blk.0.attn_output": [64, 64],
    "blk.0.ffn_norm": [64],
    "blk.0.ffn_gate_inp": [64, 5],
    "blk.0.ffn_gate_exps": [64, 32, 5],
    "blk.0.ffn_up_exps": [64, 32, 5],
    "blk.0.ffn_down_exps": [32, 64, 5],
  };
  const builder = header(keys);
  for (const [name, shape] of Object.entries({ ...shapes, ...changed })) {
    if (shape) builder.tensor(`${name}.weight`, "F32", shape);
  }
  return parseGguf(builder.build().bytes);
}

Deno.test("experts' tensors have three dimensions, and what has another shape is named", () => {
  assertEquals(buildPlan(fileWith({})).architecture, "qwen3moe");
  const bad: readonly (readonly [name: string, shape: number[] | undefined])[] = [
    ["ffn_gate_exps", [64, 32]],
    ["ffn_gate_exps", [64, 32, 4]],
    ["ffn_up_exps", [32, 64, 5]],
    ["ffn_up_exps", [64, 160]],
    ["ffn_down_exps", [32, 64, 5, 1]],
    ["ffn_down_exps", undefined],
    ["ffn_gate_inp", [64, 6]],
    ["ffn_gate", [64, 96]],
    ["ffn_gate_shexp", [64, 32]],
  ];
  for (const [name, shape] of bad) {
    const error = assertThrows(() => buildPlan(fileWith({ [`blk.0.${name}`]: shape })), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `tensor "blk.0.${name}.weight"`]);
  }
});

Deno.test("an expert's rows come in sixteens, and the tensor that has others is named", () => {
  const exps = { "blk.0.ffn_gate_exps": [64, 24, 5], "blk.0.ffn_up_exps": [64, 24, 5] };
  const file = fileWith({ ...exps, "blk.0.ffn_down_exps": [24, 64, 5] }, { expert_feed_forward_length: 24 });
  const error = assertThrows(() => buildPlan(file), GgufError);
  assertEquals(error.field, 'tensor "blk.0.ffn_gate_exps.weight"');
  assertEquals(error.message.includes("multiple of 16 rows (got 24)"), true, error.message);
});
