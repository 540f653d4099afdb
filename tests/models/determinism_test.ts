import { assert, assertEquals, assertRejects } from "@std/assert";
import { readPlan } from "../../engine/architectures/registry.ts";
import { KV_TYPES, StepStopped } from "../../engine/backend/backend.ts";
import { FORMATS } from "../../engine/gguf/formats.ts";
import type { GgufFile, TensorType } from "../../engine/gguf/types.ts";
import {
  ANSWER,
  bits,
  BLOCKS,
  EVERYTHING,
  LIMITS,
  mixedModel,
  PROMPT,
  VOCABULARY,
  type Way,
} from "./determinism.ts";
import { instructionSets, KernelModel, type Run, shuffledBlocks } from "../../testing/kernel_model.ts";
import { prompt } from "./parity_cases.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";
import { firstTier, fullTier } from "../../testing/tier.ts";

/*
 * A sequence's answer depends only on its own tokens, to the last bit. Chunking, concurrent sequences, KV blocks and
 * the number of threads must not change it.
 */

/** Returns a model with all formats. */
const model = (architecture: Architecture) => mixedModel(architecture, Object.keys(FORMATS) as TensorType[]);

const WAYS: readonly Way[] = [
  { chunk: 1 },
  { chunk: 7, range: 3 },
  { chunk: 32, ordered: true },
  { chunk: PROMPT, range: 5 },
  { chunk: 1, others: 7, range: 2 },
  { chunk: 7, others: 7 },
  { chunk: 32, others: 3, range: 7 },
  { chunk: PROMPT, others: 7, range: 4 },
];

for (const architecture of ["llama", "qwen2", "qwen3", "qwen3moe", "qwen35", "lfm2", "lfm2moe"] as const) {
  const tier = architecture === "llama" ? firstTier : fullTier;
  tier.test(`${architecture}: chunks, neighbours, KV blocks and threads change no bit of the logits`, async () => {
    const bytes = model(architecture);
    let first: Uint32Array[] | undefined;
    for (const threads of [1, 2, 3]) {
      using model = await KernelModel.load(bytes, LIMITS, { threads });
      for (const way of threads === 1 ? WAYS : WAYS.slice(5)) {
        const found = await bits(model, way);
        first ??= found;
        assertEquals(found, first, `${JSON.stringify(way)} on ${threads} threads`);
      }
    }
    assertEquals(first?.length, 1 + ANSWER);
  });
}

for (const architecture of ["qwen3", "qwen3moe", "qwen35"] as const) {
  const tier = architecture === "qwen3" ? firstTier : fullTier;
  tier.test(`${architecture}, activations in two planes: chunks, neighbours and threads change no bit`, async () => {
    const plan = async (file: GgufFile) => await readPlan(file, undefined, { activations: "fine" });
    let whole: Uint32Array[] | undefined;
    for (const threads of [1, 3]) {
      using loaded = await KernelModel.loadAs(plan, model(architecture), LIMITS, { threads });
      for (const way of [{ chunk: PROMPT }, { chunk: 27, others: 7, range: 4 }, { chunk: 3 }]) {
        const found = await bits(loaded, way);
        assertEquals(found, whole ??= found, `${JSON.stringify(way)} on ${threads} threads`);
      }
    }
  });
}

for (const [i, isa] of instructionSets().entries()) {
  for (const architecture of ["qwen3", "qwen3moe", "qwen35", "lfm2"] as const) {
    // The tests above cover the best set's parts.
    for (const kvType of i === 0 ? ["q8_0", "q4_0"] as const : KV_TYPES) {
      const name = `${architecture} on ${isa}, cache in ${kvType}`;
      const tier = i === 0 && architecture === "qwen3" ? firstTier : fullTier;
      tier.test(`${name}: chunks and neighbours change no bit of the logits`, async () => {
        using loaded = await KernelModel.load(model(architecture), LIMITS, { isa, kvType });
        const whole = await bits(loaded, { chunk: PROMPT });
        assertEquals(await bits(loaded, { chunk: 27, others: 7, range: 4 }), whole);
      });
    }
  }
}

for (const [extension, base] of [["avx512-amx", "avx512-vnni"], ["neon-i8mm", "neon-dotprod"]]) {
  Deno.test({
    name: `${extension}: results are bit-identical to ${base}`,
    ignore: !instructionSets().includes(extension),
    fn: async () => {
      const found: Uint32Array[][] = [];
      for (const isa of [extension, base]) {
        using loaded = await KernelModel.load(model("qwen3"), LIMITS, { isa });
        found.push(await bits(loaded, { chunk: PROMPT }));
      }
      assertEquals(found[0], found[1]);
    },
  });
}

Deno.test("requestStop: ends a long step early and does not change the next step", async () => {
  // One thread of the scalar kernels makes the step deliberately slow.
  const bytes = synthesize({
    architecture: "llama",
    seed: 5,
    types: ["Q8_0"],
    layers: 8,
    vocabulary: VOCABULARY,
  });
  using model = await KernelModel.load(bytes, LIMITS, { isa: "scalar", threads: 1 });
  const run: Run = { tokens: prompt(PROMPT), blockTable: shuffledBlocks(0, BLOCKS), wanted: [EVERYTHING] };
  const began = performance.now();
  const [[whole]] = await model.step([run]);
  const full = performance.now() - began;

  const again = performance.now();
  const stopped = assertRejects(() => model.step([run]), StepStopped);
  model.backend.requestStop();
  await stopped;
  const early = performance.now() - again;
  assert(early < full / 2, `a step of ${full.toFixed()} ms took ${early.toFixed()} ms though it was stopped`);

  const [[after]] = await model.step([run]);
  assertEquals(after, whole);
});
