import { assertEquals, assertThrows } from "@std/assert";
import { buildPlan } from "../../architectures/registry.ts";
import { GgufError } from "../errors.ts";
import { readExpertHparams } from "./expert_hparams.ts";
import { readHparams } from "./hparams.ts";
import { parseGguf } from "../reader.ts";
import { GgufBuilder } from "../testing.ts";

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

/** Returns a header after changes to keys; undefined removes a key. */
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

Deno.test("expert hparams: reads the keys, and derives a missing expert width", () => {
  assertEquals(read(), { count: 5, used: 2, feedForwardLength: 32 });
  assertEquals(read({ expert_feed_forward_length: undefined }).feedForwardLength, 48);
  // Values that mean the unscaled softmax over all experts.
  const plain = {
    expert_gating_func: 1,
    expert_weights_scale: 1,
    expert_group_count: 1,
    expert_shared_count: 0,
  };
  assertEquals(read(plain), read());
  // The softmax over the chosen experts equals the softmax over all, divided by the sum of the chosen.
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
  Deno.test(`expert hparams: refuses ${key} ${value === undefined ? "missing" : `of ${value}`}`, () => {
    const error = assertThrows(() => read({ [key]: value }), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `key "qwen3moe.${key}"`]);
  });
}

Deno.test("expert hparams: refuses more than 256 chosen experts per row", () => {
  const error = assertThrows(() => read({ expert_count: 4096, expert_used_count: 300 }), GgufError);
  assertEquals(error.field, 'key "qwen3moe.expert_used_count"');
});

Deno.test("expert hparams: refuses experts in architectures that do not support experts", () => {
  for (const architecture of ["llama", "qwen2", "qwen3", "qwen35"]) {
    const file = parseGguf(header({}, architecture).build().bytes);
    const error = assertThrows(() => buildPlan(file), GgufError);
    assertEquals(error.field, `key "${architecture}.expert_count"`);
  }
});

/** Returns a file of one layer. `changed` gives tensors another shape, or removes them where undefined. */
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

Deno.test("expert tensors: need three dimensions, and errors name the tensor", () => {
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

Deno.test("expert tensors: need a multiple of 16 rows per expert, and errors name the tensor", () => {
  const exps = { "blk.0.ffn_gate_exps": [64, 24, 5], "blk.0.ffn_up_exps": [64, 24, 5] };
  const file = fileWith({ ...exps, "blk.0.ffn_down_exps": [24, 64, 5] }, { expert_feed_forward_length: 24 });
  const error = assertThrows(() => buildPlan(file), GgufError);
  assertEquals(error.field, 'tensor "blk.0.ffn_gate_exps.weight"');
  assertEquals(error.message.includes("multiple of 16 rows (got 24)"), true, error.message);
});
