/** DeepSeek V3.2 and GLM-5: which layers choose tokens, and files that are refused by key or tensor. */
import { assertEquals } from "@std/assert";
import { synthesize } from "../../../testing/synth/synth.ts";
import { parseGguf } from "../../gguf/reader.ts";
import { changed } from "../../gguf/testing_changes.ts";
import type { GgufFile } from "../../gguf/types.ts";
import { buildPlan } from "../registry.ts";
import { testRefusals } from "../testing.ts";

const read = (architecture: "deepseek32" | "glm-dsa", layers: number) =>
  parseGguf(synthesize({ architecture, types: ["F32"], seed: 1, layers, hollow: true }));
const DEEPSEEK = read("deepseek32", 2);
const GLM = read("glm-dsa", 4);

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
