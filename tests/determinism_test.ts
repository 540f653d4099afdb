import { assert, assertEquals, assertRejects } from "@std/assert";
import { KV_TYPES, StepStopped } from "../engine/backend/backend.ts";
import { FORMATS } from "../engine/gguf/formats.ts";
import type { TensorType } from "../engine/gguf/types.ts";
import { instructionSets, KernelModel, type Run, shuffledBlocks, type Wanted } from "./kernel_model.ts";
import { prompt } from "./parity_cases.ts";
import { type Architecture, synthesize } from "./synth.ts";

/*
 * What a sequence is answered depends on its own tokens and on nothing else, to the last bit: not on how its prompt is
 * cut, what runs beside it, which KV blocks it got, or how many threads compute.
 */

const PROMPT = 200;
const ANSWER = 4;
const VOCABULARY = 500;
const BLOCKS = 7;
const LIMITS = { kvBlocks: 8 * BLOCKS, maxRows: 256, maxLogitRows: 32 };
const EVERYTHING: Wanted = { candidates: 8, probe: Array.from({ length: VOCABULARY }, (_, i) => i) };

/** All formats in one model. */
const model = (architecture: Architecture) =>
  synthesize({
    architecture,
    seed: 5,
    types: Object.keys(FORMATS) as TensorType[],
    vocabulary: VOCABULARY,
  });

/** How the same sequence is computed. */
interface Way {
  /** Most tokens of the prompt in one step. */
  readonly chunk: number;
  /** Sequences beside it. */
  readonly others?: number;
  /** Which of the eight ranges of KV blocks it gets, and whether in order. */
  readonly range?: number;
  readonly ordered?: boolean;
}

/** The bits of every logit, of the log-sum-exp and of the candidates: after the prompt and after each token that follows. */
async function bits(model: KernelModel, way: Way): Promise<Uint32Array[]> {
  const { chunk, others = 0, range = 0, ordered } = way;
  const blockTable = ordered
    ? Int32Array.from({ length: BLOCKS }, (_, i) => range * BLOCKS + i)
    : shuffledBlocks(range * BLOCKS, BLOCKS);
  const tokens = [...prompt(PROMPT), 7, 7, 300, 499];
  const out: Uint32Array[] = [];
  for (let cached = 0, step = 0; cached < PROMPT + ANSWER; step++) {
    const length = cached < PROMPT ? Math.min(chunk, PROMPT - cached) : 1;
    const wanted = cached + length >= PROMPT ? [EVERYTHING] : [];
    const run: Run = {
      tokens: tokens.slice(cached, cached + length),
      cached,
      blockTable,
      wanted,
      slot: range,
    };
    const beside = Array.from({ length: others }, (_, i) => neighbour(i, step, (range + 1 + i) % 8 * BLOCKS));
    const middle = others >> 1;
    const answers = await model.step([...beside.slice(0, middle), run, ...beside.slice(middle)]);
    for (const { ids, logits, logSumExp, probed } of answers[middle]) {
      const floats = new Float32Array([...ids, ...logits, logSumExp, ...probed]);
      out.push(new Uint32Array(floats.buffer));
    }
    cached += length;
  }
  return out;
}

/** Neighbour `i` at step `step`: it starts over when its blocks are full, and half of the time wants logits. */
function neighbour(i: number, step: number, firstBlock: number): Run {
  const length = 1 + (i * 3 + step) % 8;
  const cached = step * 8 % (BLOCKS * 32 - 8);
  const tokens = Array.from({ length }, (_, k) => (i * 91 + step * 17 + k * 53) % VOCABULARY);
  return {
    tokens,
    cached,
    blockTable: shuffledBlocks(firstBlock, BLOCKS),
    slot: firstBlock / BLOCKS,
    wanted: (i + step) % 2 ? [{}] : [],
  };
}

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

for (const architecture of ["llama", "qwen2", "qwen3", "qwen3moe", "qwen35"] as const) {
  Deno.test(`${architecture}: chunks, neighbours, KV blocks and threads change no bit of the logits`, async () => {
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

for (const [i, isa] of instructionSets().entries()) {
  for (const architecture of ["qwen3", "qwen3moe", "qwen35"] as const) {
    // The best set's halves are looked at above.
    for (const kvType of i === 0 ? ["q8_0"] as const : KV_TYPES) {
      const name = `${architecture} on ${isa}, cache in ${kvType}`;
      Deno.test(`${name}: chunks and neighbours change no bit of the logits`, async () => {
        using loaded = await KernelModel.load(model(architecture), LIMITS, { isa, kvType });
        const whole = await bits(loaded, { chunk: PROMPT });
        assertEquals(await bits(loaded, { chunk: 27, others: 7, range: 4 }), whole);
      });
    }
  }
}

Deno.test("a stop ends a long step early, and the next step is as if there had been none", async () => {
  // Slow on purpose: one thread of the scalar kernels.
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
