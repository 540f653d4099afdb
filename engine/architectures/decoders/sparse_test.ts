/**
 * DeepSeek V3.2, GLM-5 and MiniMax M3: layers that choose tokens or blocks of tokens, and files that are refused by key
 * or tensor.
 */
import { assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { planCost } from "../../plan/cost.ts";
import { keyBytesPerLayer, kvBytesPerLayer } from "../../plan/plan.ts";
import { buildPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const read = (architecture: "deepseek32" | "glm-dsa" | "minimax-m3", layers: number) =>
  parseGguf(synthesize({ architecture, types: ["F32"], seed: 1, layers, hollow: true }));
const DEEPSEEK = read("deepseek32", 2);
const GLM = read("glm-dsa", 4);
const MINIMAX = read("minimax-m3", 3);

/** The number of choices before each attention. */
function choosing(file: GgufFile): number[] {
  let choices = 0;
  return buildPlan(file).ops.flatMap((op) => {
    if (op.op === "choose") choices++;
    return op.op === "attention" ? [op.chosen === undefined ? 0 : choices] : [];
  });
}

Deno.test("deepseek32: every layer chooses tokens, by keys in a cache of their own", () => {
  assertEquals(choosing(DEEPSEEK), [1, 2]);
  const layers = buildPlan(DEEPSEEK).kv.layers.map(({ heads, headDim }) => [heads, headDim]);
  assertEquals(layers, [[1, 64], [1, 288], [1, 64], [1, 288]]);
});

Deno.test("deepseek32, glm-dsa: the indexers rotate other pairs", () => {
  const pairs = (file: GgufFile) =>
    buildPlan(file).ops.flatMap((op) => op.op === "rope_append" ? [op.interleaved] : []).slice(0, 2);
  assertEquals([pairs(DEEPSEEK), pairs(GLM)], [[false, true], [true, true]]);
});

Deno.test("glm-dsa: a layer uses the choices of the last layer that chose", () => {
  assertEquals(choosing(GLM), [1, 1, 2, 3]);
  // Without the key, a long context means GLM-5.2: layers 0, 1 and 2 choose.
  const silent = changed(GLM, { key: ["attention.indexer.types", undefined] });
  const tensors = new Map(silent.tensors);
  for (const tensor of GLM.tensors.values()) {
    const name = tensor.name.replace("blk.0.indexer", "blk.1.indexer");
    tensors.set(name, { ...tensor, name });
  }
  const whole = { ...silent, tensors };
  assertEquals(choosing(whole), [1, 2, 3, 4]);
  assertEquals(choosing(changed(whole, { key: ["context_length", 2 ** 20] })), [1, 2, 3, 3]);
});

Deno.test("minimax-m3: layers after the dense layers choose blocks, with one list per KV head", () => {
  assertEquals(choosing(MINIMAX), [0, 1, 2]);
  const { ops, buffers, kv, contextLength } = buildPlan(changed(MINIMAX, { key: ["context_length", 4096] }));
  const lists = ops.flatMap((op) =>
    op.op === "choose" ? [[op.weights, op.heads.heads, op.length, op.local, buffers[op.out].columns]] : []
  );
  assertEquals(lists, Array(2).fill([undefined, 2, 32, 1, 2 * 2]));
  const read = ops.flatMap((op) =>
    op.op === "attention" && op.chosen ? [[op.chosen.count, op.chosen.length]] : []
  );
  assertEquals(read, Array(2).fill([2, 32]));
  const keys = kv.layers.map(({ heads, headDim }) => [heads, headDim]);
  assertEquals(keys, [[2, 64], [2, 64], [1, 64], [2, 64], [1, 64]]);
  assertEquals(contextLength, 4096);
});

Deno.test("minimax-m3: a step reads a bounded number of keys and values if blocks fill the kernels' chunks", () => {
  const { kv } = buildPlan(MINIMAX);
  const dense = kvBytesPerLayer(kv.type, kv.layers[0]);
  const indexer = keyBytesPerLayer(kv.type, kv.layers[2]); // it has no values
  const bytes = (length: number) => {
    const plan = buildPlan(changed(MINIMAX, { key: ["attention.indexer.block_size", length] }));
    return planCost(plan, () => 0).kvBytesPerToken;
  };
  assertEquals([bytes(32), bytes(128)], [3 * dense + 2 * indexer, dense + 2 * indexer]);
});

const KEYS: [string, number | undefined][] = [
  ["attention.indexer.head_count", undefined],
  ["attention.indexer.head_count", 65],
  ["attention.indexer.key_length", 24],
  ["attention.indexer.key_length", 16],
  ["attention.indexer.top_k", 0],
  ["attention.q_lora_rank", 0],
];

testRefusals("deepseek32", DEEPSEEK, {
  keys: KEYS,
  tensors: [
    ["blk.0.indexer.k_norm.weight", undefined],
    ["blk.1.indexer.proj.weight", [256, 8]],
    ["blk.1.indexer.attn_q_b.weight", [256, 512]],
  ],
});

testRefusals("glm-dsa", GLM, {
  keys: [
    ["attention.indexer.types", [false, true, true, true]],
    ["attention.indexer.types", [true]],
    ["rope.dimension_sections", Int32Array.of(8, 12, 12, 0)],
  ],
  tensors: [["blk.3.indexer.attn_k.weight", undefined]],
});

testRefusals("minimax-m3", MINIMAX, {
  keys: [
    ["attention.indexer.head_count", undefined],
    ["attention.indexer.head_count", 1],
    ["attention.indexer.key_length", 24],
    ["attention.indexer.key_length", 16],
    ["attention.indexer.top_k", undefined],
    ["attention.indexer.top_k", 2 ** 20],
    ["attention.indexer.block_size", 0],
    ["attention.indexer.block_size", 2 ** 20],
    ["attention.indexer.local_blocks", undefined],
    ["attention.indexer.local_blocks", 0],
    ["attention.indexer.local_blocks", 3],
  ],
  tensors: [
    ["blk.1.indexer.q_proj.weight", [256, 64]],
    ["blk.2.indexer.k_proj.weight", undefined],
    ["blk.1.indexer.q_norm.weight", [32]],
    ["blk.1.indexer.k_norm.weight", undefined],
    ["blk.0.indexer.k_proj.weight", [256, 64]],
  ],
});
