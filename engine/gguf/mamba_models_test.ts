import { assertEquals, assertThrows } from "@std/assert";
import { buildPlan } from "../architectures/registry.ts";
import { mambaColumns } from "../plan/ops/mamba2.ts";
import { GgufError } from "./errors.ts";
import { parseGguf } from "./reader.ts";
import { GgufBuilder } from "./testing.ts";
import type { GgufFile } from "./types.ts";

/*
 * Files of granitehybrid, nemotron_h, nemotron_h_moe and falcon-h1 with corrupt keys or tensors. The first
 * three have one Mamba2 and one attention layer. nemotron_h has a third, feed-forward layer, with experts
 * in nemotron_h_moe. granitehybrid has experts in each layer. falcon-h1 has Mamba2, attention and
 * feed-forward in one layer.
 */

const WIDTH = 64;
const FFN = 96;
const MAMBA = { heads: 4, headDim: 32, groups: 2, stateSize: 16 };
const INNER = MAMBA.heads * MAMBA.headDim;
const CHANNELS = INNER + 2 * MAMBA.groups * MAMBA.stateSize;

/** Removes a key that has a default value in the test file. */
const NO_KEY = "none";
const RMS_EPSILON = "attention.layer_norm_rms_epsilon";

type Name = "granitehybrid" | "nemotron_h" | "nemotron_h_moe" | "falcon-h1";
type Value = number | boolean | readonly number[] | typeof NO_KEY;
type Changes = Readonly<Record<string, Value | undefined>>;

const KEYS: Changes = {
  context_length: 128,
  embedding_length: WIDTH,
  "attention.head_count": 4,
  "ssm.conv_kernel": 4,
  "ssm.inner_size": INNER,
  "ssm.state_size": MAMBA.stateSize,
  "ssm.time_step_rank": MAMBA.heads,
  "ssm.group_count": MAMBA.groups,
};
const OWN: Readonly<Record<Name, Changes>> = {
  granitehybrid: { block_count: 2, feed_forward_length: FFN, "attention.head_count_kv": [0, 2] },
  "falcon-h1": { block_count: 1, feed_forward_length: FFN, "attention.head_count_kv": 2 },
  nemotron_h: { block_count: 3, feed_forward_length: [0, 0, FFN], "attention.head_count_kv": [0, 2, 0] },
  nemotron_h_moe: {
    block_count: 3,
    feed_forward_length: [0, 0, FFN],
    "attention.head_count_kv": [0, 2, 0],
    expert_count: 5,
    expert_used_count: 2,
    expert_feed_forward_length: FFN,
    expert_shared_feed_forward_length: 32,
    expert_shared_count: 1,
    expert_weights_norm: true,
    expert_weights_scale: 2.5,
  },
};
const LATENT = 128;
const EXPERTS: Changes = { expert_count: 5, expert_used_count: 2, expert_shared_feed_forward_length: 32 };

function setKeys(builder: GgufBuilder, architecture: Name, changes: Changes): void {
  builder.set("general.architecture", "STRING", architecture);
  for (const [key, value] of Object.entries({ ...KEYS, ...OWN[architecture], ...changes })) {
    const name = `${architecture}.${key}`;
    if (value === NO_KEY) continue;
    if (typeof value === "object") builder.array(name, "INT32", value);
    else if (typeof value === "boolean") builder.set(name, "BOOL", value);
    else if (value !== undefined && /(scale|epsilon)$/.test(key)) builder.set(name, "FLOAT32", value);
    else if (value !== undefined) builder.set(name, "UINT32", value);
  }
  if (changes[RMS_EPSILON] === undefined) builder.set(`${architecture}.${RMS_EPSILON}`, "FLOAT32", 1e-5);
  builder.array("tokenizer.ggml.tokens", "STRING", ["a"]);
}

/** Returns a file. `tensors` changes, adds or removes tensors, and `changes` does the same for keys. */
function fileWith(
  architecture: Name,
  tensors: Readonly<Record<string, number[] | undefined>> = {},
  changes: Changes = {},
): GgufFile {
  const shapes: Record<string, number[]> = { "token_embd.weight": [WIDTH, 1], "output_norm.weight": [WIDTH] };
  const add = (name: string, ...shape: number[]) => shapes[name] = shape;
  add("blk.0.attn_norm.weight", WIDTH);
  add("blk.0.ssm_in.weight", WIDTH, mambaColumns(MAMBA));
  add("blk.0.ssm_conv1d.weight", 4, CHANNELS);
  add("blk.0.ssm_conv1d.bias", CHANNELS);
  add("blk.0.ssm_dt.bias", MAMBA.heads);
  add("blk.0.ssm_a", 1, MAMBA.heads);
  add("blk.0.ssm_d", 1, MAMBA.heads);
  const both = architecture === "falcon-h1";
  if (!both) add("blk.0.ssm_norm.weight", INNER / MAMBA.groups, MAMBA.groups);
  add("blk.0.ssm_out.weight", INNER, WIDTH);
  const attention = both ? "blk.0." : "blk.1.";
  add(`${attention}attn_norm.weight`, WIDTH);
  add(`${attention}attn_q.weight`, WIDTH, WIDTH);
  add(`${attention}attn_k.weight`, WIDTH, 32);
  add(`${attention}attn_v.weight`, WIDTH, 32);
  add(`${attention}attn_output.weight`, WIDTH, WIDTH);
  if (architecture.startsWith("nemotron")) add("blk.2.attn_norm.weight", WIDTH);
  if (architecture === "nemotron_h") {
    add("blk.2.ffn_up.weight", WIDTH, FFN);
    add("blk.2.ffn_down.weight", FFN, WIDTH);
  }
  if (architecture === "nemotron_h_moe") {
    const latent = changes.moe_latent_size ? LATENT : WIDTH;
    add("blk.2.ffn_gate_inp.weight", WIDTH, 5);
    add("blk.2.exp_probs_b.bias", 5);
    add("blk.2.ffn_up_exps.weight", latent, FFN, 5);
    add("blk.2.ffn_down_exps.weight", FFN, latent, 5);
    add("blk.2.ffn_up_shexp.weight", WIDTH, 32);
    add("blk.2.ffn_down_shexp.weight", 32, WIDTH);
    if (changes.moe_latent_size) {
      add("blk.2.ffn_latent_down.weight", WIDTH, LATENT);
      add("blk.2.ffn_latent_up.weight", LATENT, WIDTH);
    }
  }
  const halves = { granitehybrid: [0, 1], "falcon-h1": [0], nemotron_h: [], nemotron_h_moe: [] };
  for (const layer of halves[architecture]) {
    add(`blk.${layer}.ffn_norm${both ? "" : ".weight"}`, WIDTH);
    if (changes.expert_count) {
      add(`blk.${layer}.ffn_gate_inp.weight`, WIDTH, 5);
      for (const name of ["gate", "up"]) add(`blk.${layer}.ffn_${name}_exps.weight`, WIDTH, FFN, 5);
      add(`blk.${layer}.ffn_down_exps.weight`, FFN, WIDTH, 5);
      for (const name of ["gate", "up"]) add(`blk.${layer}.ffn_${name}_shexp.weight`, WIDTH, 32);
      add(`blk.${layer}.ffn_down_shexp.weight`, 32, WIDTH);
    } else {
      for (const name of ["gate", "up"]) add(`blk.${layer}.ffn_${name}.weight`, WIDTH, FFN);
      add(`blk.${layer}.ffn_down.weight`, FFN, WIDTH);
    }
  }
  const builder = new GgufBuilder();
  setKeys(builder, architecture, changes);
  for (const [name, shape] of Object.entries({ ...shapes, ...tensors })) {
    if (shape) builder.tensor(name, "F32", shape);
  }
  return parseGguf(builder.build().bytes);
}

Deno.test("mamba models: layers without KV heads are Mamba2, except in falcon-h1, and only attention has a KV cache", () => {
  for (const architecture of ["granitehybrid", "nemotron_h", "nemotron_h_moe", "falcon-h1"] as const) {
    const plan = buildPlan(fileWith(architecture));
    assertEquals(plan.kv.layers, [{ heads: 2, headDim: 16, group: 0 }]);
    const { heads, headDim, stateSize } = MAMBA;
    const matrices = { heads, rows: headDim, columns: stateSize + 1 };
    assertEquals(plan.states, [{ conv: { inputs: 3, channels: CHANNELS }, matrices }]);
  }
});

Deno.test("mamba models: a single group's norm may have one dimension, as from llama.cpp's quantizer", () => {
  const { heads, headDim, stateSize } = MAMBA;
  const channels = INNER + 2 * stateSize;
  for (const norm of [[INNER], [INNER, 1]]) {
    const tensors = {
      "blk.0.ssm_in.weight": [WIDTH, mambaColumns({ heads, headDim, groups: 1, stateSize })],
      "blk.0.ssm_conv1d.weight": [4, channels],
      "blk.0.ssm_conv1d.bias": [channels],
      "blk.0.ssm_norm.weight": norm,
    };
    const plan = buildPlan(fileWith("granitehybrid", tensors, { "ssm.group_count": 1 }));
    assertEquals(plan.ops.flatMap((op) => op.op === "grouped_norm" ? [op.groups] : []), [1]);
  }
});

Deno.test("falcon-h1: attention and Mamba2 read the same rows, and Mamba2's output is normed if the file has the norm", () => {
  const norm = { "blk.0.ssm_norm.weight": [INNER / MAMBA.groups, MAMBA.groups] };
  for (const [tensors, what] of [[{}, "columns"], [norm, "grouped_norm"]] as const) {
    const { ops, tensors: read } = buildPlan(fileWith("falcon-h1", tensors));
    const results = ops.flatMap((op) => op.op === "columns" || op.op === "grouped_norm" ? [op] : []);
    assertEquals(results.map(({ op, first }) => [op, first]), [[what, INNER]]);
    const products = ops.flatMap((op) => op.op === "matmul" ? [op] : []);
    const [attention, mamba] = ["attn_q", "ssm_in"].map((name) =>
      products.find(({ parts }) => read[parts[0].weight].info.name === `blk.0.${name}.weight`)
    );
    assertEquals(attention!.x, mamba!.x);
    assertEquals(ops.flatMap((op) => op.op === "rope_append" ? [[op.rotated, op.interleaved]] : []), [[
      16,
      false,
    ]]);
  }
});

Deno.test("mamba models: the convolution's bias may be missing", () => {
  const plan = buildPlan(fileWith("nemotron_h", { "blk.0.ssm_conv1d.bias": undefined }));
  assertEquals(plan.ops.flatMap((op) => op.op === "short_conv" ? [op.bias] : []), [undefined]);
});

Deno.test("nemotron_h: accepts the epsilon under LayerNorm's key", () => {
  const epsilons = (changes: Changes) =>
    buildPlan(fileWith("nemotron_h", {}, changes)).ops.flatMap((op) =>
      op.op === "grouped_norm" ? [op.eps] : []
    );
  const other = { "attention.layer_norm_epsilon": 0.5 };
  assertEquals(epsilons({ ...other, [RMS_EPSILON]: NO_KEY }), [0.5]);
  assertEquals(epsilons({ ...other, [RMS_EPSILON]: 0.25 }), [0.25]);
});

Deno.test("nemotron_h_moe: experts read rows of the model's width or of the file's latent size, and expert weights are scaled", () => {
  for (const latent of [undefined, LATENT]) {
    const plan = buildPlan(fileWith("nemotron_h_moe", {}, { moe_latent_size: latent }));
    const routes = plan.ops.flatMap((op) => op.op === "route" ? [op] : []);
    assertEquals(routes.map(({ sigmoid, divided, scale }) => [sigmoid, divided, scale]), [[true, true, 2.5]]);
    const inner = plan.ops.flatMap((op) => op.op === "expert_activated" ? [op] : []);
    assertEquals(inner.map(({ activation }) => activation), ["squared_relu"]);
    assertEquals(plan.tensors[inner[0].weight].columns, latent ?? WIDTH);
  }
  const plan = buildPlan(
    fileWith("nemotron_h_moe", {}, { expert_weights_norm: undefined, expert_weights_scale: undefined }),
  );
  const routes = plan.ops.flatMap((op) => op.op === "route" ? [[op.divided, op.scale]] : []);
  assertEquals(routes, [[false, 1]]);
});

Deno.test("nemotron_h_moe: leaves out layers that draft", () => {
  const more = { "blk.3.attn_norm.weight": [WIDTH], "blk.3.nextn.eh_proj.weight": [2 * WIDTH, WIDTH] };
  const lists = { feed_forward_length: [0, 0, FFN, FFN], "attention.head_count_kv": [0, 2, 0, 2] };
  const changes = { block_count: 4, nextn_predict_layers: 1, ...lists };
  const plan = buildPlan(fileWith("nemotron_h_moe", more, changes));
  assertEquals(plan.ops, buildPlan(fileWith("nemotron_h_moe")).ops);
});

Deno.test("granitehybrid: has positions unless the file says no", () => {
  const tables = (changes: Changes) => buildPlan(fileWith("granitehybrid", {}, changes)).rope.length;
  assertEquals(tables({}), 1);
  assertEquals(tables({ "rope.scaling.finetuned": true }), 1);
  assertEquals(tables({ "rope.scaling.finetuned": false }), 0);
  assertEquals(buildPlan(fileWith("nemotron_h")).rope.length, 0);
});

Deno.test("granitehybrid: applies the file's multipliers", () => {
  const scales = {
    embedding_scale: 12,
    residual_scale: 0.25,
    "attention.scale": 0.5,
    logit_scale: 8,
  };
  const { ops } = buildPlan(fileWith("granitehybrid", {}, { ...scales, "rope.scaling.finetuned": false }));
  const found = ops.flatMap((op) => {
    switch (op.op) {
      case "embed":
      case "attention":
      case "candidates":
        return [op.scale];
      case "matmul":
        return op.parts.flatMap(({ add }) => add === undefined ? [] : [add]);
      default:
        return [];
    }
  });
  assertEquals(found, [12, 0.25, 0.25, 0.5, 0.25, 0.25, 1 / 8]);
});

const REFUSED: readonly (readonly [Name, key: string, value: Value | undefined, changes?: Changes])[] = [
  ["granitehybrid", "ssm.group_count", 3],
  ["granitehybrid", "ssm.inner_size", undefined],
  ["granitehybrid", "attention.head_count_kv", [0]],
  ["granitehybrid", "attention.head_count_kv", [0, 3]],
  ["granitehybrid", "attention.head_count_kv", [0, -1]],
  ["granitehybrid", "residual_scale", -1],
  ["granitehybrid", "logit_scale", NaN],
  ["granitehybrid", "embedding_scale", Infinity],
  ["granitehybrid", "attention.scale", -0.5],
  ["granitehybrid", "expert_used_count", 6, EXPERTS],
  ["granitehybrid", "expert_gating_func", 2, EXPERTS],
  ["falcon-h1", "attention.head_count_kv", 3],
  ["falcon-h1", "attention.head_count_kv", 0],
  ["falcon-h1", "feed_forward_length", undefined],
  ["falcon-h1", "ssm.conv_kernel", 3],
  ["falcon-h1", "ssm.group_count", undefined],
  ["falcon-h1", "ssm.inner_size", INNER - 32],
  ["falcon-h1", "ssm.state_size", 512],
  ["falcon-h1", "expert_count", 4],
  ["nemotron_h", "ssm.state_size", 24],
  ["nemotron_h", "ssm.time_step_rank", 2 ** 32 - 1],
  ["nemotron_h", "attention.head_count_kv", [0, 2]],
  ["nemotron_h", "feed_forward_length", [0, 0, -1]],
  ["nemotron_h", "attention.scale", NaN],
  ["nemotron_h", "expert_count", 4],
  ["nemotron_h", "nextn_predict_layers", 3],
  ["nemotron_h_moe", "expert_count", 0],
  ["nemotron_h_moe", "expert_used_count", 6],
  ["nemotron_h_moe", "expert_gating_func", 1],
  ["nemotron_h_moe", "expert_group_count", 2],
  ["nemotron_h_moe", "expert_weights_scale", -1],
  ["nemotron_h_moe", "expert_weights_norm", 1],
  ["nemotron_h_moe", "expert_feed_forward_length", [FFN, FFN, FFN]],
  ["nemotron_h_moe", "expert_shared_feed_forward_length", undefined],
  ["nemotron_h_moe", "moe_latent_size", 2 ** 32 - 1],
  ["nemotron_h_moe", "nextn_predict_layers", 4],
];

for (const [architecture, key, value, changes] of REFUSED) {
  const what = value === undefined
    ? "missing"
    : `of ${typeof value === "object" ? JSON.stringify(value) : value}`;
  Deno.test(`${architecture}: refuses ${key} ${what}`, () => {
    const file = fileWith(architecture, {}, { ...changes, [key]: value });
    const error = assertThrows(() => buildPlan(file), GgufError);
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `key "${architecture}.${key}"`], error.message);
  });
}

const BAD: readonly (readonly [Name, tensor: string, shape: number[] | undefined, changes?: Changes])[] = [
  ["granitehybrid", "blk.0.ssm_in.weight", [WIDTH, INNER]],
  ["granitehybrid", "blk.0.ssm_conv1d.weight", [CHANNELS, 4]],
  ["granitehybrid", "blk.0.ssm_conv1d.bias", [CHANNELS - 1]],
  ["granitehybrid", "blk.0.ssm_dt.bias", undefined],
  ["granitehybrid", "blk.0.ssm_a", [MAMBA.heads]],
  ["granitehybrid", "blk.0.ssm_d", [2, MAMBA.heads]],
  ["granitehybrid", "blk.0.ssm_norm.weight", [INNER]],
  ["granitehybrid", "blk.0.ssm_out.weight", undefined],
  ["granitehybrid", "blk.1.ssm_a", [1, MAMBA.heads]],
  ["granitehybrid", "blk.0.ffn_gate_exps.weight", [WIDTH, FFN, 5]],
  ["granitehybrid", "blk.1.ffn_gate_exps.weight", [WIDTH, FFN, 4], EXPERTS],
  ["granitehybrid", "blk.1.ffn_down_shexp.weight", undefined, EXPERTS],
  ["falcon-h1", "blk.0.ssm_in.weight", [WIDTH, mambaColumns(MAMBA) - 1]],
  ["falcon-h1", "blk.0.ssm_norm.weight", [INNER]],
  ["falcon-h1", "blk.1.ssm_norm.weight", [INNER / MAMBA.groups, MAMBA.groups]],
  ["falcon-h1", "blk.0.ssm_out.weight", [INNER / 2, WIDTH]],
  ["falcon-h1", "blk.0.attn_k.weight", undefined],
  ["falcon-h1", "blk.0.attn_q_norm.weight", [16]],
  ["falcon-h1", "blk.0.ffn_norm", undefined],
  ["falcon-h1", "blk.0.ffn_gate.weight", undefined],
  ["nemotron_h", "blk.0.ssm_norm.weight", [INNER / 4, 4]],
  ["nemotron_h", "blk.1.attn_q.weight", undefined],
  ["nemotron_h", "blk.2.ffn_up.weight", [WIDTH, 2 * FFN]],
  ["nemotron_h", "blk.2.ffn_gate.weight", [WIDTH, FFN]],
  ["nemotron_h_moe", "blk.2.exp_probs_b.bias", undefined],
  ["nemotron_h_moe", "blk.2.ffn_gate_exps.weight", [WIDTH, FFN, 5]],
  ["nemotron_h_moe", "blk.2.ffn_up_exps.weight", [WIDTH, FFN, 4]],
  ["nemotron_h_moe", "blk.2.ffn_down_shexp.weight", undefined],
  ["nemotron_h_moe", "blk.2.ffn_latent_down.weight", [WIDTH, LATENT]],
  ["nemotron_h_moe", "blk.2.ffn_latent_up.weight", undefined, { moe_latent_size: LATENT }],
];

for (const [architecture, tensor, shape, changes] of BAD) {
  Deno.test(`${architecture}: refuses ${tensor} ${shape ? `of ${shape.join(" x ")}` : "missing"}`, () => {
    const error = assertThrows(
      () => buildPlan(fileWith(architecture, { [tensor]: shape }, changes)),
      GgufError,
    );
    assertEquals([error.code, error.field], ["GGUF_HPARAM", `tensor "${tensor}"`], error.message);
  });
}
