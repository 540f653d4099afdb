import { assertEquals } from "@std/assert";
import { CPU, EXACT, judge, passes, summarize } from "./accuracy_report.ts";
import type { Distance } from "./teacher_forced.ts";

const distance = (rest: Partial<Distance>): Distance => ({
  of: "f16",
  from: "f32",
  tokens: 1000,
  meanKl: 1e-6,
  worstKl: 1e-5,
  same: 999,
  worstFlip: 1e-3,
  perplexity: 1e-5,
  ...rest,
});

Deno.test("accuracy report: each gate passes up to its limit, and a value beyond it fails only that gate", () => {
  const edges: Partial<Distance>[] = [{ meanKl: 2e-4 }, { same: 995 }, { perplexity: -1e-3 }];
  for (const edge of edges) assertEquals(passes(judge("m", distance(edge))), true);
  const beyond: Partial<Distance>[] = [{ meanKl: 2.1e-4 }, { same: 994 }, { perplexity: -1.1e-3 }];
  for (const [i, worse] of beyond.entries()) {
    const { gates } = judge("m", distance({ ...worse, from: EXACT }));
    assertEquals([gates!.meanKl, gates!.top1, gates!.perplexity], [0, 1, 2].map((gate) => gate !== i));
  }
});

Deno.test("accuracy report: 8-bit activations have no gate", () => {
  assertEquals(passes(judge("m", distance({ from: CPU, meanKl: 1 }))), undefined);
  assertEquals(passes(judge("m", distance({ of: CPU, from: EXACT, meanKl: 1 }))), undefined);
});

Deno.test("accuracy report: the summary has the worst value of each gate and the models that fail", () => {
  const all = [
    judge("a", distance({ meanKl: 3e-4, perplexity: -2e-4 })),
    judge("b", distance({ same: 990, worstFlip: 2e-3 })),
    judge("b", distance({ of: "f32", from: CPU })),
  ];
  const [f16, cpu] = summarize(all);
  assertEquals(f16, {
    of: "f16",
    from: "f32",
    models: 2,
    tokens: 2000,
    meanKl: 3e-4,
    worstKl: 1e-5,
    top1: 1989 / 2000,
    leastTop1: 0.99,
    worstFlip: 2e-3,
    perplexity: 2e-4,
    failed: { meanKl: ["a"], top1: ["b"], perplexity: [] },
  });
  assertEquals([cpu.models, cpu.failed], [1, undefined]);
});
