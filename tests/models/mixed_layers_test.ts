/** Layers of different shapes on the kernels: against float64, and bit-identical in every chunking and batch. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { lower } from "../../engine/backend/webgpu/lowering.ts";
import type { RopeAppendOp } from "../../engine/backend/webgpu/ops/rope_append.ts";
import { planCost } from "../../engine/plan/cost.ts";
import { firstLayers } from "../../engine/plan/layers.ts";
import { kvBytesPerToken } from "../../engine/plan/plan.ts";
import { printPlan } from "../../engine/plan/print.ts";
import { instructionSets, KernelModel, type Run, shuffledBlocks } from "../../testing/kernel_model.ts";
import {
  distance,
  exactLogits,
  LAYERS,
  mixedFile,
  type MixedLayer,
  mixedPlan,
  mixedPlanOf,
  prompt,
  VOCABULARY,
} from "../../testing/mixed_model.ts";
import { EXACT } from "../../testing/kv_rounding.ts";
import { fullTier } from "../../testing/tier.ts";

const { bytes, values } = mixedFile();
const SIZE = { kvBlocks: 40, maxRows: 256, maxLogitRows: 16 };
const EVERY = Array.from({ length: VOCABULARY }, (_, i) => i);
const WANTED = [{ candidates: 1, probe: EVERY }];

const open = (isa?: string, threads = 2) => KernelModel.loadAs(mixedPlan(), bytes, SIZE, { isa, threads });

/** The logits after the last token. */
async function logits(model: KernelModel, run: Omit<Run, "wanted">): Promise<Float32Array> {
  const [[answer]] = await model.step([{ ...run, wanted: WANTED }]);
  return answer.probed;
}

// One token; inside the small window; at its edge; beyond a block; beyond the large window and two chunks.
const CASES = [1, 5, 6, 40, 150, 256].map((n) => prompt(n, `length ${n}`));

// One code with another rounding changes all codes of the next layer, so only single layers can be compared.
Deno.test("mixed layers: logits match float64 on every instruction set", async () => {
  const exact = CASES.map((tokens) => exactLogits(values, tokens, LAYERS, EXACT).at(-1)!);
  for (const isa of instructionSets()) {
    using model = await open(isa);
    for (const [i, tokens] of CASES.entries()) {
      const found = await logits(model, { tokens, blockTable: shuffledBlocks(0, 8) });
      const error = distance(found, exact[i]);
      assert(error < 5e-4, `${isa}, ${tokens.length} tokens: ${error}`);
    }
  }
});

for (const i of [0, 1, 2]) {
  Deno.test(`mixed layers: layer ${i} alone differs from float64 only by attention's rounding, on every instruction set`, async () => {
    const layers = [LAYERS[i]];
    const { bytes, values } = mixedFile(layers);
    const exact = CASES.map((tokens) => exactLogits(values, tokens, layers).at(-1)!);
    for (const isa of instructionSets()) {
      using model = await KernelModel.loadAs(mixedPlan(layers), bytes, SIZE, { isa, threads: 2 });
      for (const [i, tokens] of CASES.entries()) {
        const found = await logits(model, { tokens, blockTable: shuffledBlocks(0, 8) });
        const error = distance(found, exact[i]);
        assert(error < 1e-4, `${isa}, ${tokens.length} tokens: ${error}`);
      }
    }
  });
}

type Change = (layer: MixedLayer) => Partial<MixedLayer>;
const layersWith = (change: Change) => LAYERS.map((layer) => ({ ...layer, ...change(layer) }));

/** The distance from float64 with changed layers. */
async function changed(change: Change): Promise<number> {
  const tokens = prompt(150, "length 150");
  using model = await open();
  const found = await logits(model, { tokens, blockTable: shuffledBlocks(0, 8) });
  return distance(found, exactLogits(values, tokens, layersWith(change)).at(-1)!);
}

/** The distance from float64 with the first two layers changed. */
async function distanceOf(change: Change): Promise<number> {
  const tokens = prompt(60, "changed");
  const layers = layersWith(change).slice(0, 2);
  const { bytes, values } = mixedFile(layers);
  using model = await KernelModel.loadAs(mixedPlan(layers), bytes, SIZE, { threads: 2 });
  const found = await logits(model, { tokens, blockTable: shuffledBlocks(0, 8) });
  return distance(found, exactLogits(values, tokens, layers).at(-1)!);
}

fullTier.test("mixed layers: logits change if a window is wrong by one token or a layer has another rotary table", async () => {
  const off = [
    await changed(({ window }) => ({ window: window && window + 1 })),
    await changed(({ window }) => ({ window: window === 140 ? 139 : window })),
    await changed(() => ({ window: 0 })),
    await changed(() => ({ base: 1e4 })),
    await changed(() => ({ interleaved: false })),
  ];
  for (const error of off) assert(error > 1e-3, `${off}`);
});

Deno.test("mixed layers: supports layers without positions, and rotary tables with a magnitude", async () => {
  assert(
    await distanceOf(({ rotated }) => ({ rotated: rotated === LAYERS[0].rotated ? 0 : rotated })) < 1e-4,
  );
  assert(await distanceOf(() => ({ rotated: 0 })) < 1e-4);
  assert(await distanceOf(() => ({ magnitude: 1.3 })) < 1e-4);
});

Deno.test("mixed layers: bit-identical for every chunking and number of threads", async () => {
  const tokens = prompt(200, "cut");
  const blockTable = shuffledBlocks(2, 7);
  const whole: Float32Array[] = [];
  for (const threads of [1, 3]) {
    using model = await open(undefined, threads);
    whole.push(await logits(model, { tokens, blockTable }));
    for (const cuts of [[1], [5, 64], [31, 32, 33, 129], [140, 199]]) {
      let cached = 0;
      for (const end of cuts) {
        await model.step([{ tokens: tokens.slice(cached, end), cached, blockTable }]);
        cached = end;
      }
      assertEquals(await logits(model, { tokens: tokens.slice(cached), cached, blockTable }), whole[0]);
    }
  }
  assertEquals(whole[1], whole[0]);
});

Deno.test("mixed layers: sequences over shared blocks get the same answers as alone", async () => {
  using model = await open();
  // The common prefix is longer than a chunk of attention, so that decoding sequences share the attention over its
  // blocks.
  const common = prompt(160, "common");
  const shared = shuffledBlocks(0, 5);
  await model.step([{ tokens: common, blockTable: shared }]);
  const runs = [3, 9, 27].map((token, i): Run => ({
    tokens: [token],
    cached: common.length,
    blockTable: Int32Array.of(...shared, 10 + i),
    wanted: WANTED,
  }));
  const alone: Float32Array[] = [];
  for (const run of runs) alone.push(await logits(model, run));
  const other: Run = { tokens: prompt(70, "other"), blockTable: shuffledBlocks(20, 3), wanted: WANTED };
  const together = await model.step([runs[0], other, ...runs.slice(1)]);
  assertEquals([together[0], ...together.slice(2)].map(([{ probed }]) => probed), alone);
});

Deno.test("mixed layers: only layers with their own keys take cache memory", async () => {
  const plan = await mixedPlanOf();
  assertEquals(kvBytesPerToken(plan), 2 * (2 * (2 * 32 + 2) + 1 * (2 * 64 + 2) + 3 * (2 * 16 + 2)));
  // In a long context only the two full-attention layers read everything, both from one cache.
  assertEquals(planCost(plan, () => 0).kvBytesPerToken, 2 * (2 * (2 * 64 + 2)));
  assertEquals(firstLayers(plan, 1).kv, {
    type: "f16",
    layers: [{ heads: 2, headDim: 32, group: 0 }],
    windows: [0],
  });
  const text = printPlan(plan);
  assert(
    text.includes("kv 1 x 2 x 32 + 1 x 1 x 64 + 1 x 3 x 16 in f16 in 3 groups, 16 + 24 + 8 frequencies"),
    text,
  );
  assert(/attention\([^)]*; layer 0, scale [^,]*, window 5\)/.test(text), text);
});

Deno.test("mixed layers: the GPU refuses layers without kernels", async () => {
  const shared = await mixedPlanOf(LAYERS);
  assertThrows(
    () => lower(shared),
    Error,
    `Cannot run this model on the GPU: some of its layers read another layer's KV cache; use backend: "cpu"`,
  );
  const plan = await mixedPlanOf(LAYERS.slice(0, 3));
  const ropes = lower(plan).ops.filter((op): op is RopeAppendOp => op.op === "rope_append");
  assertEquals(ropes.map(({ table }) => table), [0, 1, 2]);
});
