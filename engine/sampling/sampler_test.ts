import { assert, assertAlmostEquals, assertEquals, assertNotEquals } from "@std/assert";
import { type Candidates, MAX_CANDIDATES } from "../backend/backend.ts";
import { Random } from "./random.ts";
import { alternatives, candidatesWanted, drawOf, sample, TokenCounts } from "./sampler.ts";
import { candidatesOf, chiSquare, softmax, withSampling } from "../../testing/sampling.ts";
import type { SamplingParams } from "../api/sampling.ts";

function frequencies(candidates: Candidates, sampling: SamplingParams, draws: number): number[] {
  const random = new Random(7);
  const counts = new Array(candidates.ids.length).fill(0);
  for (let i = 0; i < draws; i++) counts[sample(candidates, sampling, random)]++;
  return counts;
}

const LOGITS = [3, 2.5, 2, 1, 0.5, 0, -1, -2];

Deno.test("Random: numbers are uniform and independent of the previous one", () => {
  const random = new Random(1);
  const pairs = new Array(256).fill(0);
  let last = 0;
  for (let i = 0; i < 100_000; i++) {
    const now = Math.floor(random.next() * 16);
    pairs[last * 16 + now]++;
    last = now;
  }
  const statistic = chiSquare(pairs, new Array(256).fill(1 / 256));
  assert(statistic > 180 && statistic < 340, `chi-square ${statistic} of 255`);
});

Deno.test("Random: equal seeds give equal numbers, different seeds different ones", () => {
  const seeds = [0, 1, -1, 2 ** 32, 2 ** 32 + 1, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER];
  const firsts = seeds.map((seed) => new Random(seed).next());
  assertEquals(new Set(firsts).size, seeds.length);
  assertEquals(seeds.map((seed) => new Random(seed).next()), firsts);
  assertNotEquals(Random.unpredictable().next(), Random.unpredictable().next());
});

Deno.test("sample: temperature 0 takes the best candidate without a random number", () => {
  const random = new Random(3);
  assertEquals(sample(candidatesOf(LOGITS), withSampling({ temperature: 0 }), random), 0);
  assertEquals(random.next(), new Random(3).next());
});

Deno.test("sample: draws tokens with the softmax probabilities", () => {
  for (const temperature of [0.5, 1, 2]) {
    const counts = frequencies(candidatesOf(LOGITS), withSampling({ temperature }), 50_000);
    const statistic = chiSquare(counts, softmax(LOGITS, temperature));
    assert(statistic < 24.3, `chi-square ${statistic} of 7 at temperature ${temperature}`); // exceeded by 1 in 1,000
  }
});

Deno.test("sample: very low and very high temperatures do not overflow", () => {
  assertEquals(frequencies(candidatesOf([1000, 999]), withSampling({ temperature: 1e-9 }), 100), [100, 0]);
  const [first, second] = frequencies(
    candidatesOf([1000, -1000]),
    withSampling({ temperature: 1e9 }),
    10_000,
  );
  assert(Math.abs(first - second) < 400);
});

Deno.test("sample: the temperature does not change which tokens top-p keeps", () => {
  for (const temperature of [0.1, 1, 10]) {
    const counts = frequencies(candidatesOf(LOGITS), withSampling({ temperature, topP: 0.5 }), 1000);
    assertEquals(counts.slice(2), [0, 0, 0, 0, 0, 0]);
  }
});

Deno.test("candidatesWanted: asks for no more candidates than needed", () => {
  assertEquals(candidatesWanted(withSampling({ temperature: 0 }), 0), 1);
  assertEquals(candidatesWanted(withSampling({ temperature: 0 }), 5), 5);
  assertEquals(candidatesWanted(withSampling({ temperature: 0, repetitionPenalty: 1.1 }), 0), 1);
  assertEquals(candidatesWanted(withSampling({ temperature: 0, repetitionPenalty: 1.1 }), 5), MAX_CANDIDATES);
  assertEquals(candidatesWanted(withSampling({ topK: 40 }), 0), 40);
  assertEquals(candidatesWanted(withSampling({ topK: 5 }), 20), 20);
  assertEquals(candidatesWanted(withSampling({ topK: 1000 }), 0), MAX_CANDIDATES);
  assertEquals(candidatesWanted(withSampling({}), 0), MAX_CANDIDATES);
  assertEquals(candidatesWanted(withSampling({}), 0, true), 1);
  assertEquals(candidatesWanted(withSampling({}), 5, true), 5);
  assertEquals(candidatesWanted(withSampling({ repetitionPenalty: 1.1 }), 5, true), MAX_CANDIDATES);
});

Deno.test("alternatives: returns the best by raw logits, as log-probabilities", () => {
  const candidates = { ...candidatesOf([2, 1, 0]), rawLogits: Float32Array.of(-3, 1, 0) };
  const [first, second] = alternatives(candidates, 2);
  assertEquals([first.token, second.token], [101, 102]);
  assertAlmostEquals(first.logprob, 1 - candidates.logSumExp);
  assertEquals(alternatives(candidates, 0), []);
});

Deno.test("TokenCounts: lists prompt tokens with 0 and counts generated ones", () => {
  const counts = new TokenCounts();
  for (let token = 0; token < 200; token++) counts.addPrompt(token % 100);
  counts.addGenerated(5);
  counts.addGenerated(5);
  counts.addGenerated(1000);
  assertEquals(counts.tokens.length, 101);
  assertEquals(counts.counts.length, 101);
  assertEquals(counts.counts[counts.tokens.indexOf(5)], 2);
  assertEquals(counts.counts[counts.tokens.indexOf(1000)], 1);
  assertEquals(counts.counts[counts.tokens.indexOf(6)], 0);
});

Deno.test("TokenCounts: counts every token while its arrays grow", () => {
  const counts = new TokenCounts();
  const tokens = Int32Array.from({ length: 300 }, (_, i) => 7 * i);
  for (const [i, token] of tokens.entries()) {
    assertEquals(counts.with(tokens.subarray(i)).counts, new Int32Array(300).fill(1));
    counts.addGenerated(token);
  }
  assertEquals(counts.tokens, tokens);
  assertEquals(counts.counts, new Int32Array(300).fill(1));
});

Deno.test("drawOf: every backend draws from the whole vocabulary if nothing is truncated", () => {
  const draw = (changes: Partial<SamplingParams>, severalSteps: boolean, masked = false) =>
    drawOf(withSampling(changes), new Random(1), new Int32Array(0), { severalSteps, masked });
  for (const severalSteps of [false, true]) {
    assertEquals(draw({}, severalSteps)?.whole, true);
    assertEquals(draw({ repetitionPenalty: 1.2, logitBias: new Map([[1, 2]]) }, severalSteps)?.whole, true);
    assertEquals(draw({}, severalSteps, true)?.whole, true);
    assertEquals(draw({ typicalP: 0.9 }, severalSteps), undefined);
    assertEquals(draw({ topK: 5, dryMultiplier: 1 }, severalSteps), undefined);
  }
  assertEquals(draw({ topP: 0.9 }, false), undefined);
  assertEquals(draw({ topP: 0.9 }, true)?.massOfAll, true);
  assertEquals(draw({ topP: 0.9 }, true, true)?.massOfAll, false);
  assertEquals(draw({ temperature: 0 }, true)?.whole, false);
  assertEquals(draw({ temperature: 0 }, false), undefined);
});

Deno.test("TokenCounts: with() returns the counts after a draft and changes nothing", () => {
  const counts = new TokenCounts();
  for (const token of [5, 6]) counts.addPrompt(token);
  for (const token of [6, 7]) counts.addGenerated(token);
  const drafted = counts.with(Int32Array.of(7, 8, 5, 8, 9));
  assertEquals([...drafted.tokens], [5, 6, 7, 8, 9]);
  assertEquals([...drafted.counts], [1, 1, 2, 2, 1]);
  assertEquals([[...counts.tokens], [...counts.counts]], [[5, 6, 7], [0, 1, 1]]);
});
