import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { buildPlan } from "../../engine/architectures/registry.ts";
import type { Arithmetic, Candidates } from "../../engine/backend/backend.ts";
import { prepareBackend } from "../../engine/backend/choose.ts";
import { GpuError } from "../../engine/backend/webgpu/errors.ts";
import { WebGpuBackend } from "../../engine/backend/webgpu/webgpu.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import type { TensorType } from "../../engine/gguf/types.ts";
import { loadEngine } from "../../engine/load/load.ts";
import type { Engine } from "../../engine/mod.ts";
import { gpuTest } from "../../testing/gpu.ts";
import { KernelModel, type Run, shuffledBlocks } from "../../testing/kernel_model.ts";
import { synthesize } from "../../testing/synth/synth.ts";

/* A hybrid of Gated DeltaNet and gated attention on the GPU, compared with the CPU. */

const VOCABULARY = 300;
const BLOCKS = 3;
const LIMITS = { kvBlocks: 8 * BLOCKS, maxRows: 80, maxLogitRows: 16 };
const ALL = Array.from({ length: VOCABULARY }, (_, token) => token);
const EVERYTHING = { candidates: 3, probe: ALL };
const STEPS = 16;

/** Largest mean divergence from the CPU's f32, for f32 and for f16. */
const FLOATS = 2e-6;
const HALF = 2e-4;

/** Three recurrent layers and one of attention. */
const model = (types: TensorType | readonly TensorType[], dequantized = false) =>
  synthesize({
    architecture: "qwen35",
    types: [types].flat(),
    layers: 4,
    seed: 3,
    vocabulary: VOCABULARY,
    dequantized,
  });

const text = (length: number, seed = 0) =>
  Array.from({ length }, (_, i) => (i * 53 + seed * 91 + 7) % VOCABULARY);

const load = async (bytes: Uint8Array, arithmetic: Arithmetic = "f32") =>
  await KernelModel.load(bytes, LIMITS, await WebGpuBackend.open({ arithmetic }));

/**
 * Returns a model's predictions and choices after a prompt and after each appended token: its own choice, or
 * the given one.
 */
async function decode(on: KernelModel, prompt: number, given?: readonly number[]) {
  const tokens = text(prompt);
  const blockTable = shuffledBlocks(0, BLOCKS);
  const rows: Float64Array[] = [];
  const choices: number[] = [];
  for (let cached = 0; cached < prompt + STEPS; cached = tokens.length - 1) {
    const [[{ ids, probed, logSumExp }]] = await on.step([
      { tokens: tokens.slice(cached), cached, blockTable, wanted: [EVERYTHING] },
    ]);
    rows.push(Float64Array.from(probed, (x) => x - logSumExp));
    choices.push(ids[0]);
    tokens.push(given?.[rows.length - 1] ?? ids[0]);
  }
  return { rows, choices, tokens: tokens.slice(prompt) };
}

/** Returns the mean Kullback-Leibler divergence of b from a. */
function divergence(a: readonly Float64Array[], b: readonly Float64Array[]): number {
  const rows = a.map((row, i) => row.reduce((sum, p, t) => sum + Math.exp(p) * (p - b[i][t]), 0));
  return rows.reduce((x, y) => x + y, 0) / rows.length;
}

for (const type of ["F16", "Q8_0", "Q4_0", "MXFP4"] as const) {
  gpuTest(`qwen35 in ${type}: gives the CPU's answers for the same values in F32`, async () => {
    using cpu = await KernelModel.load(model(type, true), LIMITS);
    using gpu = await load(model(type));
    for (const prompt of [3, 65]) {
      const exact = await decode(cpu, prompt);
      const found = await decode(gpu, prompt, exact.tokens);
      const kl = divergence(exact.rows, found.rows);
      assert(kl < FLOATS, `${prompt} tokens: mean KL ${kl}`);
      assertEquals(found.choices, exact.choices);
    }
  });
}

gpuTest("qwen35: gives the CPU's answers when projections have two formats", async () => {
  const types = ["Q4_0", "Q4_0", "F32"] as const;
  using cpu = await KernelModel.load(model(types, true), LIMITS);
  using gpu = await load(model(types));
  const exact = await decode(cpu, 3);
  const kl = divergence(exact.rows, (await decode(gpu, 3, exact.tokens)).rows);
  assert(kl < FLOATS, `mean KL ${kl}`);
});

const ROUNDED = [
  ["Q4_0", "f16", HALF],
] as const;
for (const [type, arithmetic, gate] of ROUNDED) {
  gpuTest(`qwen35 in ${type}: answers in ${arithmetic} as in f32`, async () => {
    using cpu = await KernelModel.load(model(type, true), LIMITS);
    using gpu = await load(model(type), arithmetic);
    const exact = await decode(cpu, 3);
    const kl = divergence(exact.rows, (await decode(gpu, 3, exact.tokens)).rows);
    assert(kl < gate, `mean KL ${kl}`);
  });
}

gpuTest(
  "qwen35: each of eight sequences has the bits that it has alone when states are kept, copied and continued",
  async () => {
    using gpu = await load(model("Q4_0"));
    // Logits do not depend on the number of rows (docs/WEBGPU.md).
    const whole = (i: number): Run => ({
      tokens: text(4, i),
      blockTable: shuffledBlocks(i * BLOCKS, BLOCKS),
      slot: i,
      wanted: [EVERYTHING, EVERYTHING],
    });
    const alone: Candidates[][] = [];
    for (let i = 0; i < 8; i++) alone.push(...await gpu.step([whole(i)]));

    // The first two tokens. Each state stays in its own slot and is copied to another, after one token or
    // after two.
    const beginning = (i: number): Run => ({
      ...whole(i),
      tokens: text(4, i).slice(0, 2),
      slot: 8 + i,
      saves: [{ after: 1 + i % 2, slot: 16 + i }],
      wanted: [],
    });
    await gpu.step(Array.from({ length: 8 }, (_, i) => beginning(i)));
    // Continue from the own slot or the copy; store into the slot that was read, or into a third one.
    const rest = (i: number): Run => {
      const own = i % 4 === 3;
      const cached = own ? 2 : 1 + i % 2;
      const source = own ? 8 + i : 16 + i;
      return { ...whole(i), tokens: text(4, i).slice(cached), cached, source, slot: i < 4 ? source : i };
    };
    const answers: Candidates[][] = [];
    for (const group of [[0, 1, 2, 3], [4, 5, 6, 7]]) answers.push(...await gpu.step(group.map(rest)));
    assertEquals(answers, alone);
  },
);

/** Calls `use` with the path of a model's file, then removes it. */
async function withFile(bytes: Uint8Array, use: (path: string) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
  try {
    await Deno.writeFile(path, bytes);
    await use(path);
  } finally {
    await Deno.remove(path);
  }
}

async function say(engine: Engine, prompt: number[], cacheSalt: string) {
  const tokens: number[] = [];
  const request = { prompt, maxTokens: 8, sampling: { temperature: 0 }, ignoreEos: true, cacheSalt };
  for await (const event of engine.submit(request)) if (event.type === "token") tokens.push(event.token);
  return tokens;
}

gpuTest(
  "qwen35: a shared prefix continues from a snapshot with the same answer",
  () =>
    withFile(model("Q4_0"), async (model) => {
      const { engine } = await loadEngine({ model, backend: "webgpu", contextLength: 96, parallel: 4 });
      const shared = text(40);
      const prompts = [1, 2, 3, 4].map((i) => [...shared, ...text(4 * i, i)]);
      const alone: number[][] = [];
      for (const [i, prompt] of prompts.entries()) alone.push(await say(engine, prompt, `alone ${i}`));
      assertEquals(engine.stats().cachedTokens, 0);
      assertEquals(await say(engine, prompts[0], "crowd"), alone[0]);
      assertEquals(await Promise.all(prompts.map((prompt) => say(engine, prompt, "crowd"))), alone);
      assertEquals(engine.stats().cachedTokens, 4 * 32);
      await engine.close();
    }),
);

gpuTest("qwen35: refuses more states than a binding holds, with advice", async () => {
  const backend = await WebGpuBackend.open();
  try {
    await assertRejects(
      () => KernelModel.load(model("F16"), { ...LIMITS, stateSlots: 1_000_000 }, backend),
      GpuError,
      "Cannot hold the buffer of layer 0's 1000000 recurrent states on the GPU",
    );
  } finally {
    backend.close();
  }
});

gpuTest("qwen35: auto measures both backends", () =>
  withFile(model("Q4_0"), async (path) => {
    const file = await openGguf(path);
    const size = { ...LIMITS, stateSlots: 1 };
    const { backend, choice } = await prepareBackend(file, buildPlan(file), size, { backend: "auto" });
    // Prompts are measured only where the GPU's decoding is not far slower than the CPU's.
    assertMatch(
      choice,
      /^auto: (a prompt of 512 tokens and 128 more through )?4 layers take [\d.]+ ms .*on the CPU.*, [\d.]+ ms on /,
    );
    backend.close();
  }));
