import { assert, assertEquals } from "@std/assert";
import { Random } from "./random.ts";
import { candidatesOf, deviationOf, softmax, withSampling } from "../../testing/sampling.ts";
import { keepsAll, truncate } from "./truncation.ts";
import type { SamplingParams } from "../api/sampling.ts";

const LOGITS = [3, 2.5, 2, 1, 0.5, 0, -1, -2]; // probabilities 0.43 0.26 0.16 0.06 0.04 …

function kept(logits: number[], changes: Partial<SamplingParams>, total?: number): number[] {
  return [...truncate(candidatesOf(logits), withSampling(changes), new Random(1), total)];
}

const count = (changes: Partial<SamplingParams>) => kept(LOGITS, changes).length;

/** Returns seeded logits in descending order. */
function someLogits(seed: number): number[] {
  const random = new Random(seed);
  const n = 2 + Math.floor(random.next() * 200);
  const spread = 0.1 + 10 * random.next();
  return Array.from({ length: n }, () => spread * (random.next() + random.next())).sort((a, b) => b - a);
}

Deno.test("truncate: top-k, top-p and min-p keep the most probable tokens", () => {
  assertEquals(count({}), 8);
  assertEquals(count({ topK: 3 }), 3);
  assertEquals(count({ topK: 100 }), 8);
  assertEquals(count({ topP: 0.43 }), 1);
  assertEquals(count({ topP: 0.5 }), 2);
  assertEquals(count({ topP: 0 }), 1);
  assertEquals(count({ minP: 0.3 }), 3); // e^-1 = 0.37, e^-2 = 0.14
  assertEquals(count({ minP: 1 }), 1);
  assertEquals(count({ topK: 2, topP: 0.6 }), 1); // 0.43 is 62 % of 0.43 + 0.26
});

Deno.test("truncate: top-p counts the probability of tokens beyond the candidates if that probability is known", () => {
  const total = 8; // the four candidates have half of the probability
  assertEquals(kept([0, 0, 0, 0], { topP: 0.25 }, total).length, 2);
  assertEquals(kept([0, 0, 0, 0], { topP: 0.9 }, total).length, 4);
  assertEquals(kept([0, 0, 0, 0], { topP: 0.25 }).length, 1);
  assertEquals(kept([0, 0, 0, 0], { topP: 0.25, topK: 4 }, total).length, 1); // of the four candidates alone
});

Deno.test("truncate: top-n-sigma keeps the logits within n standard deviations of the best", () => {
  for (let seed = 0; seed < 50; seed++) {
    const logits = someLogits(seed);
    for (const n of [0.3, 1, 2]) {
      const least = logits[0] - n * deviationOf(logits);
      const expected = logits.flatMap((logit, i) => Math.fround(logit) >= least ? [i] : []);
      assertEquals(kept(logits, { topNSigma: n }), expected, `seed ${seed}, n ${n}`);
    }
  }
});

Deno.test("truncate: typical-p keeps the tokens whose surprise is nearest to the entropy", () => {
  for (let seed = 0; seed < 50; seed++) {
    const logits = someLogits(seed).map(Math.fround);
    const p = softmax(logits);
    const entropy = -p.reduce((sum, p) => sum + p * Math.log(p), 0);
    const order = [...p.keys()].sort((a, b) =>
      Math.abs(-Math.log(p[a]) - entropy) - Math.abs(-Math.log(p[b]) - entropy) || a - b
    );
    for (const typicalP of [0.2, 0.5, 0.9]) {
      let sum = 0;
      const expected = order.filter((i) => {
        const wanted = sum < typicalP;
        sum += p[i];
        return wanted;
      });
      const got = kept(logits, { typicalP });
      assertEquals(got, expected.sort((a, b) => a - b), `seed ${seed}, typical-p ${typicalP}`);
    }
  }
});

Deno.test("truncate: typical-p may remove the most probable token", () => {
  const logits = [Math.log(0.4), ...new Array(60).fill(Math.log(0.01))];
  const got = kept(logits, { typicalP: 0.495 });
  assert(!got.includes(0) && got.length === 50, got.join());
});

Deno.test("truncate: XTC removes all tokens above the threshold except the least probable one", () => {
  const always = { xtcProbability: 1 };
  assertEquals(kept(LOGITS, { ...always, xtcThreshold: 0.1 }), [2, 3, 4, 5, 6, 7]);
  assertEquals(kept(LOGITS, { ...always, xtcThreshold: 0.3 }), [0, 1, 2, 3, 4, 5, 6, 7]); // only one is above it
  assertEquals(kept(LOGITS, { ...always, xtcThreshold: 0 }), [7]);
  assertEquals(kept(LOGITS, { ...always, xtcThreshold: 0.3, topK: 2 }), [1]); // 0.62 and 0.38
});

Deno.test("truncate: XTC applies with its probability", () => {
  const random = new Random(5);
  const sampling = withSampling({ xtcProbability: 0.3 });
  let excluded = 0;
  for (let i = 0; i < 10_000; i++) {
    excluded += Number(truncate(candidatesOf(LOGITS), sampling, random)[0] > 0);
  }
  assert(Math.abs(excluded - 3000) < 3 * Math.sqrt(10_000 * 0.3 * 0.7), `${excluded} of 10000`);
});

Deno.test("truncate: min-p and XTC apply to the tokens that typical-p keeps", () => {
  const logits = [Math.log(0.4), ...new Array(60).fill(Math.log(0.01))];
  assertEquals(kept(logits, { typicalP: 0.495, minP: 0.9 }).length, 50); // the best remaining token is one of the 0.01
});

Deno.test("truncate: always keeps a token", () => {
  for (let seed = 0; seed < 300; seed++) {
    const random = new Random(1000 + seed);
    const changes = {
      topNSigma: random.next() < 0.5 ? 0 : random.next() / 10,
      topK: random.next() < 0.5 ? 0 : 1,
      typicalP: random.next(),
      topP: random.next() / 10,
      minP: random.next(),
      xtcProbability: 1,
      xtcThreshold: random.next() / 5,
    };
    const got = kept(someLogits(seed), changes);
    assert(got.length > 0 && got.every((i) => i >= 0), JSON.stringify(changes));
  }
  assertEquals(kept([0], { typicalP: 0, topP: 0, minP: 1, xtcProbability: 1, xtcThreshold: 0 }), [0]);
});

Deno.test("keepsAll: is true only if no setting truncates", () => {
  assert(keepsAll(withSampling({ temperature: 2, repetitionPenalty: 2, xtcThreshold: 0.5 })));
  const cuts: Partial<SamplingParams>[] = [
    { topK: 1 },
    { topP: 0.9 },
    { minP: 0.1 },
    { typicalP: 0.9 },
    { topNSigma: 1 },
    { xtcProbability: 0.1 },
  ];
  for (const changes of cuts) assert(!keepsAll(withSampling(changes)), JSON.stringify(changes));
});
