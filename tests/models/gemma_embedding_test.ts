/**
 * Compares EmbeddingGemma's vectors with exact ones and llama.cpp's. The table has unit vectors of the prompts, from
 * `exact --pool mean` and tools/parity/llama_cpp_texts.mjs.
 */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { decodeBase64 } from "@std/encoding/base64.js";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { GgufError } from "../../engine/gguf/errors.ts";
import { MetadataMap } from "../../engine/gguf/metadata.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import { loadEngine } from "../../engine/load/load.ts";
import { normalized } from "../../engine/answers/rows.ts";
import { digest, prompt } from "./parity_cases.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";

interface Answers {
  readonly sha256: string;
  /** A vector for each prompt: f32 as base64. */
  readonly exact: readonly string[];
  readonly llamaCpp: readonly string[];
}

/** Cases with distances only: `llamaCpp` has the distances of llama.cpp's vectors from the exact ones. */
interface Distances extends Omit<Answers, "llamaCpp"> {
  readonly llamaCpp: readonly number[];
}

/** Exact and llama.cpp's answers by format, for seeds 1, 2 and so on. */
const TABLE: { readonly F32: readonly Answers[]; readonly Q8_0: readonly Distances[] } = JSON.parse(
  await Deno.readTextFile(new URL("gemma_embedding_expected.json", import.meta.url)),
);
/** The longest prompt exceeds the windows on both sides. */
const PROMPTS = [1, 9, 70].map(prompt);

const fileOf = (type: "F32" | "Q8_0", seed = 1) =>
  synthesize({ architecture: "gemma-embedding", types: [type], seed });
const floatsOf = (packed: string) => new Float32Array(decodeBase64(packed).buffer);

/** Returns 1 - cosine of vectors of length 1, for all prompts. */
function angles(a: readonly Float32Array[], b: readonly Float32Array[]): number[] {
  return a.map((vector, i) => vector.reduce((sum, x, k) => sum + (x - b[i][k]) ** 2, 0) / 2);
}

const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

/** The vectors of prompts in one request. */
async function vectorsOf(bytes: Uint8Array<ArrayBuffer>, prompts: number[][]): Promise<Float32Array[]> {
  const path = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
  try {
    await Deno.writeFile(path, bytes);
    const { engine } = await loadEngine({ model: path, threads: 2 });
    try {
      const { rows } = await engine.embed({ inputs: prompts });
      return rows.map((row) => normalized(row));
    } finally {
      await engine.close();
    }
  } finally {
    await Deno.remove(path);
  }
}

/** The vectors of a seed's file, which must match the table's digest. */
async function judged(type: "F32" | "Q8_0", seed: number): Promise<Float32Array[]> {
  const bytes = fileOf(type, seed);
  assertEquals(await digest(bytes), TABLE[type][seed - 1].sha256);
  return await vectorsOf(bytes, PROMPTS);
}

Deno.test("gemma-embedding: F32 vectors match the exact ones and llama.cpp's", async () => {
  for (const [i, { exact, llamaCpp }] of TABLE.F32.entries()) {
    const ours = await judged("F32", i + 1);
    const far = Math.max(...[exact, llamaCpp].flatMap((others) => angles(ours, others.map(floatsOf))));
    assert(far <= 1e-5, `${far} is more than 1e-5`);
  }
});

/*
 * For a single seed, chance decides whether compy or llama.cpp is nearer. One different rounding changes later ones,
 * and moves a seed's distance by up to a tenth, for llama.cpp also between two processors. Over 48 seeds the difference
 * averages out to a fiftieth.
 */
fullTier.test("gemma-embedding: Q8_0 vectors are nearer to the exact ones than llama.cpp's", async () => {
  let [us, them] = [0, 0];
  for (const [i, { exact, llamaCpp }] of TABLE.Q8_0.entries()) {
    us += sum(angles(await judged("Q8_0", i + 1), exact.map(floatsOf)));
    them += sum(llamaCpp);
  }
  assert(us <= them, `off by ${us} in sum, llama.cpp by ${them}`);
});

Deno.test("gemma-embedding: a text's vector is the same alone and among others", async () => {
  const bytes = fileOf("Q8_0");
  const together = await vectorsOf(bytes, [...PROMPTS, prompt(300), prompt(40)]);
  for (const [i, input] of PROMPTS.entries()) {
    assertEquals((await vectorsOf(bytes, [input]))[0], together[i]);
  }
});

const FILE = parseGguf(fileOf("F32"));

for (
  const [name, value, key] of [
    ["dense_2_feat_out", 0],
    ["dense_2_feat_out", 511, "dense_2.weight"],
    ["attention.sliding_window_pattern", 0],
    ["pooling_type", 9],
  ] as const
) {
  Deno.test(`gemma-embedding: ${name} of ${value} is refused`, () => {
    const entries = new Map(FILE.metadata.entries).set(`gemma-embedding.${name}`, value);
    const file = { ...FILE, metadata: new MetadataMap(entries) };
    const error = assertThrows(() => buildPlan(file), GgufError);
    assertEquals(error.field, key ? `tensor "${key}"` : `key "gemma-embedding.${name}"`);
  });
}

Deno.test("gemma-embedding: a file with one of the two dense matrices is refused, and a file with neither is accepted", () => {
  const without = (...names: string[]) => {
    const tensors = new Map(FILE.tensors);
    for (const name of names) tensors.delete(name);
    return { ...FILE, tensors };
  };
  for (const name of ["dense_2.weight", "dense_3.weight"]) {
    const error = assertThrows(() => buildPlan(without(name)), GgufError);
    assertEquals(error.field, `tensor "${name}"`);
  }
  assertEquals(buildPlan(without("dense_2.weight", "dense_3.weight")).architecture, "gemma-embedding");
});
