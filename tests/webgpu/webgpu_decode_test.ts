import { assert, assertEquals, assertRejects } from "@std/assert";
import {
  type Candidates,
  type Draw,
  greedyRequest,
  type LogitsRequest,
  MAX_CANDIDATES,
  type StepInput,
  type StepOutput,
  StepStopped,
} from "../../engine/backend/backend.ts";
import { WebGpuBackend } from "../../engine/backend/webgpu/webgpu.ts";
import { gpuTest } from "../../testing/gpu.ts";
import { KernelModel, shuffledBlocks } from "../../testing/kernel_model.ts";
import { withLiveServer } from "../../testing/live_server.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";

/* Tokens drawn on the GPU, and several steps per submit. */

const VOCABULARY = 300;
const BLOCKS = 2;
const SEQUENCES = 8;
const LIMITS = { kvBlocks: SEQUENCES * BLOCKS, maxRows: 64, maxLogitRows: 32 };
const PROMPT = 29; // the steps cross into a second block

const load = async (architecture: Architecture, layers: number) => {
  const bytes = synthesize({ architecture, types: ["Q8_0"], layers, seed: 3, vocabulary: VOCABULARY });
  return await KernelModel.load(bytes, LIMITS, await WebGpuBackend.open());
};

const GREEDY: Draw = {
  temperature: 0,
  topK: MAX_CANDIDATES,
  topP: 1,
  minP: 0,
  whole: false,
  massOfAll: true,
  key: [0, 0],
  ends: new Int32Array(0),
};

const token = (sequence: number, position: number) => (position * 53 + sequence * 91 + 7) % VOCABULARY;

/** Puts all but the last token of each sequence's prompt into the cache. */
async function prefill({ backend }: KernelModel): Promise<void> {
  for (let s = 0; s < SEQUENCES; s++) {
    const tokens = Int32Array.from({ length: PROMPT - 1 }, (_, i) => token(s, i));
    const blockTable = shuffledBlocks(s * BLOCKS, BLOCKS);
    const state = { read: undefined, write: s, saves: [] };
    await backend.step({
      tokens,
      sequences: [{ start: 0, length: PROMPT - 1, cached: 0, blockTable, state }],
      logits: [],
    });
  }
}

/** Returns the step of all sequences after `taken` tokens of each; `last` are their last tokens. */
function decodeStep(taken: number, last: readonly number[], draw: (s: number) => Draw): StepInput {
  return {
    tokens: Int32Array.from(last),
    sequences: last.map((_, s) => ({
      start: s,
      length: 1,
      cached: PROMPT - 1 + taken,
      blockTable: shuffledBlocks(s * BLOCKS, BLOCKS),
      state: { read: s, write: s, saves: [] },
    })),
    logits: last.map((_, s) => ({ ...greedyRequest(s), draw: draw(s) })),
  };
}

const FIRST = Array.from({ length: SEQUENCES }, (_, s) => token(s, PROMPT - 1));

const drawnOf = ({ ids, drawn }: Candidates) => drawn === undefined ? undefined : ids[drawn];

/** Returns the answers of all sequences, with `calls` steps per call. */
async function decode(
  model: KernelModel,
  calls: readonly number[],
  draw: (s: number) => Draw,
  want: Partial<LogitsRequest> = {},
) {
  await prefill(model);
  const outputs: StepOutput[] = [];
  let last: number[] = FIRST;
  for (const steps of calls) {
    const input = decodeStep(outputs.length, last, draw);
    const logits = input.logits.map((request) => ({ ...request, ...want }));
    outputs.push(...await model.backend.abilities.draws!.decode({ ...input, logits }, steps));
    last = outputs.at(-1)!.rows.map((row) => drawnOf(row) ?? 0);
  }
  return outputs;
}

const idsOf = (outputs: readonly StepOutput[]) => outputs.map(({ rows }) => rows.map(drawnOf));

for (const [architecture, layers] of [["qwen3", 1], ["qwen35", 4]] as const) {
  gpuTest(
    `${architecture}: eight sequences draw the same tokens with several steps per submit as with one`,
    async () => {
      using model = await load(architecture, layers);
      const greedy = () => GREEDY;
      const alone = await decode(model, [1, 1, 1, 1, 1], greedy);
      assertEquals(await decode(model, [4, 1], greedy), alone);
      const seeded = (s: number): Draw => ({ ...GREEDY, temperature: 1.2, whole: s % 2 > 0, key: [7, s] });
      const drawn = await decode(model, [1, 1, 1, 1, 1], seeded);
      assertEquals(await decode(model, [2, 3], seeded), drawn);
      assert(idsOf(drawn).join() !== idsOf(alone).join());
    },
  );
}

gpuTest(
  "decode: a stopped step ends between submits, and later steps are correct",
  async () => {
    using model = await load("qwen3", 1);
    const wanted = idsOf(await decode(model, [1, 3], () => GREEDY));
    const { submit } = GPUQueue.prototype;
    for (const after of [1, 2, 5]) {
      await prefill(model);
      let left = after;
      GPUQueue.prototype.submit = function (commands) {
        submit.call(this, commands);
        if (--left === 0) model.backend.requestStop();
      };
      try {
        const stopped = model.backend.abilities.draws!.decode(decodeStep(0, FIRST, () => GREEDY), 8);
        await assertRejects(() => stopped, StepStopped);
      } finally {
        GPUQueue.prototype.submit = submit;
      }
      // The discarded tokens' cache entries are overwritten.
      assertEquals(idsOf(await decode(model, [1, 3], () => GREEDY)), wanted);
    }
  },
);

gpuTest("draw: temperature 0 takes the best candidate, also with a bias", async () => {
  using model = await load("qwen3", 1);
  await prefill(model);
  const bias = { biasTokens: Int32Array.of(9, 17), biasValues: Float32Array.of(3, 30) };
  const input = decodeStep(0, FIRST, () => GREEDY);
  const wants: Partial<LogitsRequest>[] = [{}, bias];
  for (const want of wants) {
    const logits = input.logits.map((request) => ({ ...request, ...want }));
    const { rows: drawn } = await model.backend.step({ ...input, logits });
    const plain = logits.map((request) => ({ ...request, draw: undefined }));
    const best = (await model.backend.step({ ...input, logits: plain })).rows;
    assertEquals(drawn, best.map((row) => ({ ...row, drawn: 0 })));
  }
});

gpuTest("draw: the drawn token does not depend on how many candidates are reported", async () => {
  using model = await load("qwen3", 1);
  const bias = { biasTokens: Int32Array.of(9, 17), biasValues: Float32Array.of(3, 4) };
  const draws: readonly [Partial<Draw>, Partial<LogitsRequest>][] = [
    [{ whole: true }, {}],
    [{ topK: 5 }, { candidates: 5 }],
    [{ topK: 5, topP: 0.7, minP: 0.1, massOfAll: false }, { candidates: 5, ...bias }],
  ];
  for (const [draw, want] of draws) {
    const seeded = (s: number): Draw => ({ ...GREEDY, temperature: 1.5, ...draw, key: [s, 3] });
    const few = await decode(model, [4], seeded, want);
    const many = await decode(model, [1, 3], seeded, { ...want, candidates: 20 });
    assertEquals(idsOf(many), idsOf(few));
    const log = ({ rawLogits, logSumExp, drawn }: Candidates) => rawLogits[drawn!] - logSumExp;
    const logs = (outputs: readonly StepOutput[]) => outputs.map(({ rows }) => rows.map(log));
    assertEquals(logs(many), logs(few));
    for (const { ids, logits, drawn } of many.flatMap(({ rows }) => rows)) {
      assertEquals(ids.length, Math.max(20, drawn! + 1));
      assertEquals(logits, logits.toSorted((a, b) => b - a));
    }
  }
});

gpuTest("decode: a sequence returns no tokens after its end, and other sequences continue", async () => {
  using model = await load("qwen3", 1);
  const steps = idsOf(await decode(model, [6], () => GREEDY));
  const sequence = 3;
  const third = steps[2][sequence]!;
  const first = steps.findIndex((ids) => ids[sequence] === third);
  const ends = (s: number) => ({ ...GREEDY, ends: s === sequence ? Int32Array.of(299, third) : GREEDY.ends });
  const ended = idsOf(await decode(model, [6], ends));
  const expected = steps.map((ids, i) => ids.map((id, s) => s === sequence && i > first ? undefined : id));
  assertEquals(ended, expected);
});

/**
 * Returns the chi-square statistic of the observed token counts over many keys against the expected counts.
 */
async function frequencies(
  draw: Partial<Draw>,
  candidates: number,
  probability: (c: Candidates) => number[],
) {
  using model = await load("qwen3", 1);
  await prefill(model);
  const row = decodeStep(0, FIRST.slice(0, 1), () => GREEDY);
  const all = { ...greedyRequest(0), candidates: 256 };
  const { rows: [best] } = await model.backend.step({ ...row, logits: [all] });
  const right = probability(best);
  const counts = new Map<number, number>();
  const [draws, together] = [1600, LIMITS.maxLogitRows];
  for (let key = 0; key < draws; key += together) {
    const logits = Array.from({ length: together }, (_, i): LogitsRequest => ({
      ...greedyRequest(0),
      candidates,
      draw: { ...GREEDY, ...draw, key: [key + i, 5] },
    }));
    for (const answer of (await model.backend.step({ ...row, logits })).rows) {
      const id = drawnOf(answer)!;
      counts.set(id, (counts.get(id) ?? 0) + 1);
    }
  }
  let [chi, freedom, rest, restCount] = [0, 0, 1, draws];
  for (const [i, p] of right.entries()) {
    const count = counts.get(best.ids[i]) ?? 0;
    if (p === 0) assertEquals(count, 0, `token ${best.ids[i]} should never be drawn`);
    if (p * draws < 10) continue;
    chi += (count - p * draws) ** 2 / (p * draws);
    [freedom, rest, restCount] = [freedom + 1, rest - p, restCount - count];
  }
  if (rest * draws >= 10) chi += (restCount - rest * draws) ** 2 / (rest * draws);
  else assert(restCount < 40, `${restCount} draws of unlikely tokens`);
  // Five standard deviations. The keys are fixed, so this never fails by chance.
  assert(chi < freedom + 5 * Math.sqrt(2 * freedom), `chi-square ${chi} with ${freedom} degrees of freedom`);
}

/** Returns the probabilities of the kept candidates at a temperature. */
function softmax({ logits }: Candidates, temperature: number, kept: (i: number) => boolean): number[] {
  const masses = Array.from(logits, (x, i) => kept(i) ? Math.exp((x - logits[0]) / temperature) : 0);
  const total = masses.reduce((a, b) => a + b, 0);
  return masses.map((mass) => mass / total);
}

gpuTest("draw: samples the whole vocabulary with the model's probabilities", async () => {
  await frequencies({ temperature: 0.5, whole: true }, 1, ({ rawLogits, ...c }) => {
    return softmax({ rawLogits, ...c }, 0.5, () => true); // tokens beyond the 256 best have almost no probability
  });
});

gpuTest("draw: samples the tokens that top-k, top-p and min-p leave with their probabilities", async () => {
  await frequencies({ temperature: 2, topK: 12 }, 12, (c) => softmax(c, 2, (i) => i < 12));
  await frequencies({ temperature: 1, topP: 0.6, minP: 0.02 }, 256, (c) => {
    const p = Array.from(c.rawLogits, (x) => Math.exp(x - c.logSumExp));
    const before = (i: number) => p.slice(0, i).reduce((a, b) => a + b, 0);
    return softmax(c, 1, (i) => before(i) < 0.6 && p[i] >= 0.02 * p[0]);
  });
});

gpuTest("decode: leaves the thread free between steps", async () => {
  using model = await load("qwen3", 1);
  await prefill(model);
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  const end = performance.now() + 300;
  while (performance.now() < end) {
    await model.backend.abilities.draws!.decode(decodeStep(0, FIRST, () => GREEDY), 2);
  }
  clearInterval(timer);
  assert(turns > 5, `${turns} turns in 300 ms`);
});

gpuTest(
  "server: eight requests at once get the answers of each alone",
  () =>
    withLiveServer(["--backend", "webgpu", "--parallel", "8"], async ({ client, metric }) => {
      const ask = (n: number, temperature: number) =>
        client.completions.create({
          model: "demo",
          prompt: `${n} little compys`,
          max_tokens: 6,
          temperature,
          seed: n,
        });
      const texts = (answers: { choices: { text: string }[] }[]) => answers.map((a) => a.choices[0].text);
      for (const temperature of [0, 0.8]) {
        const together = await Promise.all(Array.from({ length: 8 }, (_, n) => ask(n, temperature)));
        const alone = [];
        for (let n = 0; n < 8; n++) alone.push(await ask(n, temperature));
        assertEquals(texts(together), texts(alone));
      }
      const seeded = { model: "demo", prompt: "Once", max_tokens: 6, temperature: 1, seed: 5 };
      const { choices: [plain] } = await client.completions.create(seeded);
      const { choices: [scored] } = await client.completions.create({ ...seeded, logprobs: 3 });
      assertEquals(scored.text, plain.text);
      assertEquals(scored.logprobs!.top_logprobs!.length, 6);
      assert(await metric("compy_submits_total") <= await metric("compy_steps_total"));
    }),
);
