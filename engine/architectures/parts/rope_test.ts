import { assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import { GgufError } from "../../gguf/errors.ts";
import type { Hparams, RopeScaling } from "../../gguf/hparams/hparams.ts";
import { type Plan, withContext } from "../../plan/plan.ts";
import { Rope } from "./rope.ts";

function hparams(ropeScaling: RopeScaling, ropeMagnitude = 1): Hparams {
  const rope = {
    ropeDimensionCount: 8,
    ropeFreqBase: 10_000,
    ropeOriginalContext: 64,
    ropeMagnitude,
    ropeScaling,
  };
  return rope as unknown as Hparams;
}

const NONE: RopeScaling = { type: "none", factor: 1 };
const PLAIN = [1, 0.1, 0.01, 0.001];
const YARN: RopeScaling = {
  type: "yarn",
  factor: 4,
  originalContext: 64,
  betaFast: 32,
  betaSlow: 1,
  logMultiplier: 0,
};

function assertFrequencies(rope: Rope, expected: readonly number[], options = {}): void {
  const { frequencies } = rope.angles(options);
  assertEquals(frequencies.length, expected.length);
  expected.forEach((value, i) => assertAlmostEquals(frequencies[i], value, 1e-12 * value));
}

Deno.test("rope: frequencies are powers of the base, divided by a linear factor and the file's factors", () => {
  assertFrequencies(new Rope(hparams(NONE)), PLAIN);
  assertFrequencies(new Rope(hparams({ type: "linear", factor: 4 })), PLAIN.map((f) => f / 4));
  const all = Float32Array.of(1, 2, 4, 8);
  assertFrequencies(new Rope(hparams(NONE), { all }), PLAIN.map((f, i) => f / all[i]));
  assertFrequencies(new Rope(hparams(NONE), { all }), PLAIN, { factors: false });
});

Deno.test("rope: a layer may have its own dimensions and base, and skip scaling", () => {
  const rope = new Rope(hparams({ type: "linear", factor: 4 }, 2));
  assertFrequencies(rope, [1, 0.01], { dimensions: 4, scaled: false });
  assertFrequencies(rope, [0.25, 0.025], { dimensions: 4, base: 100 });
  assertEquals([rope.angles().magnitude, rope.angles({ scaled: false }).magnitude], [2, 1]);
});

Deno.test("rope: YaRN keeps fast pairs, divides slow pairs, and blends the pairs in between", () => {
  // The first pair turns 64 / (2 pi) = 10.2 times, below betaFast = 32, so pair 0 is the last one kept. One
  // turn is reached at pair 1.008.
  assertFrequencies(new Rope(hparams(YARN)), [1, 0.1 * (0.5 / 4 + 0.5), 0.01 / 4, 0.001 / 4]);
});

Deno.test("rope: YaRN's magnitude grows with log(factor), and a log multiplier cancels it", () => {
  const magnitude = (change: Partial<typeof YARN>, own = 1) =>
    new Rope(hparams({ ...YARN, ...change } as RopeScaling, own)).angles().magnitude;
  const whole = 1 + 0.1 * Math.log(4);
  assertEquals(magnitude({}), whole);
  assertEquals(magnitude({ logMultiplier: 1 } as Partial<typeof YARN>), 1);
  assertEquals(magnitude({}, 2), 2 * whole);
});

Deno.test("rope: chooses LongRoPE's factors by the context length", () => {
  const [short, long] = [Float32Array.of(1, 1, 1, 2), Float32Array.of(1, 2, 4, 8)];
  for (const type of ["none", "longrope"] as const) {
    const angles = new Rope(hparams({ type, factor: 1 }, 1.25), { short, long }).angles();
    const used = (context: number) => withContext({ rope: [angles] } as unknown as Plan, context).rope[0];
    assertEquals([...used(64).frequencies].map((f, i) => Math.round(PLAIN[i] / f)), [...short]);
    assertEquals([...used(65).frequencies].map((f, i) => Math.round(PLAIN[i] / f)), [...long]);
    assertEquals([used(64).magnitude, used(65).magnitude], [1.25, 1.25]);
  }
});

Deno.test("rope: LongRoPE needs both tensors", () => {
  const factors = Float32Array.of(1, 1, 1, 1);
  const refusal = (scaling: RopeScaling, found: { long?: Float32Array; short?: Float32Array }) =>
    assertThrows(() => new Rope(hparams(scaling), found), GgufError).field;
  assertEquals(refusal({ type: "longrope", factor: 1 }, {}), 'tensor "rope_factors_long.weight"');
  assertEquals(refusal(NONE, { short: factors }), 'tensor "rope_factors_long.weight"');
  assertEquals(refusal(NONE, { long: factors }), 'tensor "rope_factors_short.weight"');
});
