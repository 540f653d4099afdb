import { assertEquals, assertThrows } from "@std/assert";
import { buildPlan } from "../../architectures/registry.ts";
import { GgufError } from "../errors.ts";
import { readHparams } from "./hparams.ts";
import { readLfm2Hparams } from "./lfm2_hparams.ts";
import { parseGguf } from "../reader.ts";
import { GgufBuilder } from "../testing.ts";
import type { GgufFile } from "../types.ts";

const WIDTH = 64;
const KEYS = {
  block_count: 3,
  context_length: 128,
  embedding_length: WIDTH,
  feed_forward_length: 96,
  "attention.head_count": 4,
  "attention.head_count_kv": [0, 2, 0],
  "shortconv.l_cache": 3,
};
const EXPERTS = {
  expert_count: 5,
  expert_used_count: 2,
  expert_feed_forward_length: 32,
  expert_gating_func: 2,
  leading_dense_block_count: 1,
};
type Changes = Readonly<Record<string, number | readonly number[] | undefined>>;
type Name = "lfm2" | "lfm2moe";

/** Returns a header after changes to keys; undefined removes a key. */
function header(changes: Changes = {}, architecture: Name = "lfm2"): GgufBuilder {
  const builder = new GgufBuilder().set("general.architecture", "STRING", architecture);
  const keys: Changes = { ...KEYS, ...architecture === "lfm2moe" && EXPERTS, ...changes };
  for (const [key, value] of Object.entries(keys)) {
    if (typeof value === "object") builder.array(`${architecture}.${key}`, "INT32", value);
    else if (value !== undefined) builder.set(`${architecture}.${key}`, "UINT32", value);
  }
  builder.set(`${architecture}.attention.layer_norm_rms_epsilon`, "FLOAT32", 1e-5);
  return builder.array("tokenizer.ggml.tokens", "STRING", ["a"]);
}

/**
 * Returns a file with a convolution, attention and a convolution. `tensors` changes, adds or removes
 * (undefined) tensors.
 */
function fileWith(
  tensors: Readonly<Record<string, number[] | undefined>> = {},
  architecture: Name = "lfm2",
  changes: Changes = {},
): GgufFile {
  const shapes: Record<string, number[]> = { token_embd: [WIDTH, 1], token_embd_norm: [WIDTH] };
  for (const layer of [0, 1, 2]) {
    const add = (name: string, ...shape: number[]) => shapes[`blk.${layer}.${name}`] = shape;
    add("attn_norm", WIDTH);
    add("ffn_norm", WIDTH);
    if (layer === 1) {
      add("attn_q", WIDTH, 64);
      add("attn_k", WIDTH, 32);
      add("attn_v", WIDTH, 32);
      add("attn_q_norm", 16);
      add("attn_k_norm", 16);
      add("attn_output", 64, WIDTH);
    } else {
      add("shortconv.in_proj", WIDTH, 3 * WIDTH);
      add("shortconv.conv", 3, WIDTH);
      add("shortconv.out_proj", WIDTH, WIDTH);
    }
    if (architecture === "lfm2moe" && layer > 0) {
      add("ffn_gate_inp", WIDTH, 5);
      add("exp_probs_b", 5);
      add("ffn_gate_exps", WIDTH, 32, 5);
      add("ffn_up_exps", WIDTH, 32, 5);
      add("ffn_down_exps", 32, WIDTH, 5);
    } else {
      add("ffn_gate", WIDTH, 96);
      add("ffn_up", WIDTH, 96);
      add("ffn_down", 96, WIDTH);
    }
  }
  const builder = header(changes, architecture);
  for (const [name, shape] of Object.entries({ ...shapes, ...tensors })) {
    if (shape) builder.tensor(`${name}.${name.endsWith("exp_probs_b") ? "bias" : "weight"}`, "F32", shape);
  }
  return parseGguf(builder.build().bytes);
}

const ALLOWED = { layersDiffer: true, experts: true };

function read(changes: Changes, architecture: Name = "lfm2") {
  const file = parseGguf(header(changes, architecture).build().bytes);
  return readLfm2Hparams(file, readHparams(file, ALLOWED), architecture === "lfm2moe");
}

Deno.test("lfm2: reads hyper-parameters, and counts leading dense layers only with experts", () => {
  assertEquals(read({}), { taps: 3, window: 0, denseLayers: 3 });
  const changes = { "attention.sliding_window": 32, leading_dense_block_count: 1 };
  assertEquals(read(changes), { taps: 3, window: 32, denseLayers: 3 });
  assertEquals(read({}, "lfm2moe"), { taps: 3, window: 0, denseLayers: 1 });
  assertEquals(read({ leading_dense_block_count: undefined }, "lfm2moe").denseLayers, 0);
});

Deno.test("lfm2: a layer without KV heads is a convolution whose state is its last inputs", () => {
  for (const architecture of ["lfm2", "lfm2moe"] as const) {
    const plan = buildPlan(fileWith({}, architecture));
    assertEquals(plan.kv.layers, [{ heads: 2, headDim: 16, group: 0 }]);
    assertEquals(plan.states, Array(2).fill({ conv: { inputs: 2, channels: WIDTH } }));
  }
});

Deno.test("lfm2: attention may have a window", () => {
  const plan = buildPlan(fileWith({}, "lfm2", { "attention.sliding_window": 40 }));
  assertEquals(plan.ops.flatMap((op) => op.op === "attention" ? [op.window] : []), [40]);
});

const REFUSED: readonly (readonly [Name, key: string, value: number | readonly number[] | undefined])[] = [
  ["lfm2", "shortconv.l_cache", undefined],
  ["lfm2", "shortconv.l_cache", 0],
  ["lfm2", "shortconv.l_cache", 1],
  ["lfm2", "shortconv.l_cache", 17],
  ["lfm2", "shortconv.l_cache", 2 ** 32 - 1],
  ["lfm2", "attention.head_count_kv", [0, 2]],
  ["lfm2", "attention.head_count_kv", [0, 2, -1]],
  ["lfm2", "attention.head_count_kv", [0, 3, 0]],
  ["lfm2", "attention.head_count", [4, 4, 0]],
  ["lfm2", "feed_forward_length", [96, 96, 0]],
  ["lfm2", "expert_count", 5],
  ["lfm2moe", "leading_dense_block_count", 4],
  ["lfm2moe", "expert_count", undefined],
  ["lfm2moe", "expert_used_count", 6],
  ["lfm2moe", "expert_gating_func", undefined],
  ["lfm2moe", "expert_gating_func", 1],
  ["lfm2moe", "expert_weights_scale", 2],
  ["lfm2moe", "attention.sliding_window", 40],
];

for (const [architecture, key, value] of REFUSED) {
  const what = value === undefined ? "missing" : `of ${JSON.stringify(value)}`;
  Deno.test(`${architecture}: refuses ${key} ${what}`, () => {
    const error = assertThrows(() => buildPlan(fileWith({}, architecture, { [key]: value })), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `key "${architecture}.${key}"`], error.message);
  });
}

Deno.test("lfm2: refuses a width that is not a whole number of blocks", () => {
  const changes = { embedding_length: 72, "attention.key_length": 16, "attention.value_length": 16 };
  const error = assertThrows(() => read(changes), GgufError);
  assertEquals(error.field, 'key "lfm2.embedding_length"');
});

const BAD: readonly (readonly [Name, tensor: string, shape: number[] | undefined])[] = [
  ["lfm2", "blk.0.shortconv.conv", [4, WIDTH]],
  ["lfm2", "blk.0.shortconv.conv", [WIDTH, 3]],
  ["lfm2", "blk.0.shortconv.in_proj", [WIDTH, WIDTH]],
  ["lfm2", "blk.2.shortconv.out_proj", undefined],
  ["lfm2", "blk.1.shortconv.conv", [3, WIDTH]],
  ["lfm2", "blk.0.attn_q", [WIDTH, WIDTH]],
  ["lfm2", "blk.1.attn_q_norm", undefined],
  ["lfm2", "token_embd_norm", undefined],
  ["lfm2", "output_norm", [WIDTH]],
  ["lfm2moe", "blk.0.ffn_gate_inp", [WIDTH, 5]],
  ["lfm2moe", "blk.1.exp_probs_b", undefined],
  ["lfm2moe", "blk.1.exp_probs_b", [6]],
  ["lfm2moe", "blk.2.ffn_gate_exps", [WIDTH, 32, 4]],
];

for (const [architecture, tensor, shape] of BAD) {
  Deno.test(`${architecture}: refuses ${tensor} ${shape ? `of ${shape.join(" x ")}` : "missing"}`, () => {
    const error = assertThrows(() => buildPlan(fileWith({ [tensor]: shape }, architecture)), GgufError);
    const kind = tensor.endsWith("exp_probs_b") ? "bias" : "weight";
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `tensor "${tensor}.${kind}"`], error.message);
  });
}
