import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import {
  type Draw,
  greedyRequest,
  type LogitsRequest,
  MAX_CANDIDATES,
} from "../../engine/backend/backend.ts";
import { WebGpuBackend } from "../../engine/backend/webgpu/webgpu.ts";
import { gpuTest } from "../../testing/gpu.ts";
import { KernelModel, shuffledBlocks } from "../../testing/kernel_model.ts";
import { synthesize } from "../../testing/synth/synth.ts";

/* Draws from the whole vocabulary: both backends use the softmax after penalties, biases and masks. */

const VOCABULARY = 700; // more than the maximum number of candidates
const ROWS = 32;
const LIMITS = { kvBlocks: 2, maxRows: ROWS, maxLogitRows: ROWS };
const ROUNDS = 100;

const bytes = () =>
  synthesize({ architecture: "qwen3", types: ["Q8_0"], layers: 1, seed: 9, vocabulary: VOCABULARY });

const MASK = Uint32Array.from(
  { length: Math.ceil(VOCABULARY / 32) },
  (_, i) => i % 2 ? 0xffffffff : 0x0f0f0f0f,
);

const adjustments: Record<string, Partial<LogitsRequest>> = {
  "as it is": {},
  "with biases and penalties": {
    biasTokens: Int32Array.of(3, 600),
    biasValues: Float32Array.of(2, 3),
    penaltyTokens: Int32Array.of(5, 650),
    penaltyCounts: Int32Array.of(1, 2),
    repetitionPenalty: 1.3,
    frequencyPenalty: 0.5,
  },
  "under a mask": { mask: Promise.resolve(MASK) },
};

function drawAt(temperature: number, key: number): Draw {
  const none = new Int32Array(0);
  const key2 = [Math.imul(key + 1, 0x9e3779b1) >>> 0, key] as const;
  return {
    temperature,
    topK: MAX_CANDIDATES,
    topP: 1,
    minP: 0,
    whole: true,
    massOfAll: true,
    key: key2,
    ends: none,
  };
}

const PROMPT = Int32Array.of(0, 7, 14);
const LAST = greedyRequest(PROMPT.length - 1);

/** A step over a prompt with several draws after its last token. */
async function step({ backend }: KernelModel, logits: LogitsRequest[]) {
  const { rows } = await backend.step({
    tokens: PROMPT,
    sequences: [{ start: 0, length: PROMPT.length, cached: 0, blockTable: shuffledBlocks(0, 2) }],
    logits,
  });
  return rows;
}

const RAW = { ...LAST, probe: Int32Array.from({ length: VOCABULARY }, (_, i) => i) };

/** The probabilities after the request's adjustments, from the raw logits. */
function expected(raw: Float32Array, changes: Partial<LogitsRequest>, temperature: number): number[] {
  const logits = Float64Array.from(raw);
  changes.penaltyTokens?.forEach((token, i) => {
    const count = changes.penaltyCounts![i];
    logits[token] = logits[token] > 0 ? logits[token] / 1.3 : logits[token] * 1.3;
    logits[token] -= 0.5 * count;
  });
  changes.biasTokens?.forEach((token, i) => logits[token] += changes.biasValues![i]);
  if (changes.mask) logits.forEach((_, t) => MASK[t >> 5] >>> (t & 31) & 1 || (logits[t] = -Infinity));
  const top = Math.max(...logits);
  const weights = Array.from(logits, (logit) => Math.exp((logit - top) / temperature));
  const total = weights.reduce((sum, weight) => sum + weight);
  return weights.map((weight) => weight / total);
}

/** Pearson's statistic over the tokens in groups of at least ten expected draws, and its degrees of freedom. */
function chiSquare(
  counts: number[],
  probabilities: number[],
  draws: number,
): { statistic: number; freedom: number } {
  let [statistic, groups, expected, seen] = [0, 0, 0, 0];
  for (const [token, p] of probabilities.entries()) {
    expected += p * draws;
    seen += counts[token];
    if (expected < 10) continue;
    statistic += (seen - expected) ** 2 / expected;
    [groups, expected, seen] = [groups + 1, 0, 0];
  }
  return { statistic, freedom: groups - 1 };
}

async function check(model: KernelModel): Promise<void> {
  const [{ probed: raw, deviation }] = await step(model, [RAW]);
  const mean = raw.reduce((sum, logit) => sum + logit) / VOCABULARY;
  const variance = raw.reduce((sum, logit) => sum + (logit - mean) ** 2, 0) / VOCABULARY;
  assertAlmostEquals(deviation, Math.sqrt(variance), 1e-3 * Math.sqrt(variance));
  for (const [what, changes] of Object.entries(adjustments)) {
    const counts: number[] = new Array(VOCABULARY).fill(0);
    for (let round = 0; round < ROUNDS; round++) {
      const logits = Array.from({ length: ROWS }, (_, i): LogitsRequest => {
        return { ...LAST, ...changes, draw: drawAt(1.5, round * ROWS + i) };
      });
      for (const { ids, drawn, logits: after, rawLogits } of await step(model, logits)) {
        counts[ids[drawn!]]++;
        assertAlmostEquals(rawLogits[drawn!], raw[ids[drawn!]], 0.05); // probes are computed more exactly
        assert(after[drawn!] > -1e30);
      }
    }
    const probabilities = expected(raw, changes, 1.5);
    const { statistic, freedom } = chiSquare(counts, probabilities, ROUNDS * ROWS);
    // Four standard deviations of the chi-square distribution.
    assert(statistic < freedom + 4 * Math.sqrt(2 * freedom), `${what}: ${statistic} of ${freedom}`);
    assert(counts.every((count, token) => count === 0 || probabilities[token] > 0), what);
    const top = [...probabilities.keys()].sort((a, b) => probabilities[b] - probabilities[a]).slice(0, 256);
    assert(
      ROUNDS * ROWS > top.reduce((sum, token) => sum + counts[token], 0),
      `${what}: never beyond 256 tokens`,
    );
  }
}

Deno.test("drawing from the whole vocabulary: the CPU draws with the softmax probabilities", async () => {
  const model = await KernelModel.load(bytes(), LIMITS);
  await check(model);
  model.backend.close();
});

Deno.test("drawing from the whole vocabulary: the same seed and position draw the same token, whatever the number of candidates", async () => {
  const model = await KernelModel.load(bytes(), LIMITS);
  const request = (candidates: number): LogitsRequest => {
    return { ...LAST, candidates, draw: drawAt(1, 77) };
  };
  const rows = await step(model, [request(1), request(20), request(256)]);
  assertEquals(new Set(rows.map(({ ids, drawn }) => ids[drawn!])).size, 1);
  model.backend.close();
});

gpuTest("drawing from the whole vocabulary: the GPU draws with the softmax probabilities", async () => {
  const model = await KernelModel.load(bytes(), LIMITS, await WebGpuBackend.open());
  await check(model);
  model.backend.close();
});
