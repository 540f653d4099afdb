import { assert, assertEquals, assertRejects } from "@std/assert";
import { type Draw, greedyRequest, StepStopped } from "../../engine/backend/backend.ts";
import { Costs } from "../../engine/backend/webgpu/step/costs.ts";
import { openGpu } from "../../engine/backend/webgpu/device/gpu.ts";
import { SUBMIT_MS } from "../../engine/backend/webgpu/step/submits.ts";
import { WebGpuBackend } from "../../engine/backend/webgpu/webgpu.ts";
import { gpuTest } from "../../testing/gpu.ts";
import { KernelModel, shuffledBlocks } from "../../testing/kernel_model.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";

/* Steps in many submits. */

const VOCABULARY = 300;
const LIMITS = { kvBlocks: 2, maxRows: 64, maxLogitRows: 4 };

/** A cost model that expects every workgroup to take too long, never waits and ignores measurements. */
class Cut extends Costs {
  override of = () => Infinity;
  override sum = () => 0;
}

/** The model also ignores timestamps, so no submit is timed. */
class Slow extends Cut {
  override learn() {}
}

async function load(architecture: Architecture, layers: number, costs?: Costs): Promise<KernelModel> {
  const bytes = synthesize({ architecture, types: ["Q8_0"], layers, seed: 5, vocabulary: VOCABULARY });
  return await KernelModel.load(bytes, LIMITS, new WebGpuBackend(await openGpu(), {}, new Map(), costs));
}

const run = {
  tokens: Array.from({ length: 21 }, (_, i) => (i * 53 + 7) % VOCABULARY),
  blockTable: shuffledBlocks(0, 2),
  slot: 0,
  wanted: [{ candidates: 3, probe: Array.from({ length: VOCABULARY }, (_, i) => i) }],
};
const next = { ...run, tokens: [5], cached: 21 };

/** Returns the number of submits while `work` runs. */
async function submitsOf(work: () => Promise<unknown>): Promise<number> {
  const { submit } = GPUQueue.prototype;
  let count = 0;
  GPUQueue.prototype.submit = function (commands) {
    count++;
    submit.call(this, commands);
  };
  try {
    await work();
    return count;
  } finally {
    GPUQueue.prototype.submit = submit;
  }
}

for (const [architecture, layers] of [["qwen3", 1], ["qwen35", 2]] as const) {
  gpuTest(`${architecture}: one submit per workgroup gives the bits of a single submit`, async () => {
    using whole = await load(architecture, layers);
    using cut = await load(architecture, layers, new Slow());
    assertEquals(await cut.step([run]), await whole.step([run]));
    assertEquals(await cut.step([next]), await whole.step([next]));
    const submits = await submitsOf(() => cut.step([next]));
    assert(submits > 30, `${submits} submits`);
    assertEquals(await submitsOf(() => whole.step([next])), 1);
  });
}

gpuTest("submit times: each submit has one time, and a later step is correct", async () => {
  using whole = await load("qwen3", 1);
  using cut = await load("qwen3", 1, new Slow());
  const input = {
    tokens: Int32Array.from(run.tokens),
    sequences: [{ start: 0, length: run.tokens.length, cached: 0, blockTable: run.blockTable }],
    logits: [greedyRequest(run.tokens.length - 1)],
  };
  const times = await (cut.backend as WebGpuBackend).submitTimes(input);
  assertEquals(times.length, await submitsOf(() => cut.backend.step(input)));
  for (const { ms, kernels } of times) {
    assert(ms >= 0 && ms < 60_000 && kernels.length === 1, `${ms}, ${kernels}`);
  }
  await whole.step([run]);
  assertEquals(await cut.step([next]), await whole.step([next]));
});

gpuTest("stop: ends a step between submits, and the next step is correct", async () => {
  using whole = await load("qwen3", 1);
  using cut = await load("qwen3", 1, new Slow());
  const all = await submitsOf(() => cut.step([run]));
  const { submit } = GPUQueue.prototype;
  let left = 10;
  GPUQueue.prototype.submit = function (commands) {
    if (--left === 0) cut.backend.requestStop();
    submit.call(this, commands);
  };
  try {
    await assertRejects(() => cut.step([run]), StepStopped);
  } finally {
    GPUQueue.prototype.submit = submit;
  }
  assertEquals(left, 0);
  assert(all > 30, `${all} submits`);
  assertEquals(await cut.step([run]), await whole.step([run]));
});

gpuTest(
  "masks, penalties and draws: a step that is cut into timed submits gives the answers of an uncut step",
  async () => {
    const costs = new Cut();
    using whole = await load("qwen3", 1);
    using cut = await load("qwen3", 1, costs);
    const words = Math.ceil(VOCABULARY / 32);
    const maskOf = (word: number) =>
      new Promise<Uint32Array>((resolve) =>
        setTimeout(() => resolve(new Uint32Array(words).fill(word)), word & 15)
      );
    const penalties = {
      repetitionPenalty: 1.3,
      penaltyTokens: Int32Array.of(5, 9),
      penaltyCounts: Int32Array.of(1, 2),
    };
    const draw: Draw = {
      temperature: 1,
      topK: 20,
      topP: 0.9,
      minP: 0,
      whole: false,
      massOfAll: false,
      key: [1, 2],
      ends: new Int32Array(0),
    };
    const step = ({ backend }: KernelModel, at: number) =>
      backend.step({
        tokens: Int32Array.of(7, 8, 9, 10),
        sequences: [{ start: 0, length: 4, cached: 4 * at, blockTable: run.blockTable }],
        logits: [
          { ...greedyRequest(0), candidates: 5, mask: maskOf(0x0f0f0f0f) },
          { ...greedyRequest(1), candidates: 5, ...penalties },
          { ...greedyRequest(2), draw },
          { ...greedyRequest(3), candidates: 2, mask: maskOf(0x00ff00ff) },
        ],
      });
    for (let at = 0; at < 3; at++) assertEquals(await step(cut, at), await step(whole, at));
    assert(costs.timed, "kernels were timed");
    const stopped = cut.backend.step({
      tokens: Int32Array.of(1),
      sequences: [{ start: 0, length: 1, cached: 12, blockTable: run.blockTable }],
      logits: [{ ...greedyRequest(0), mask: new Promise<Uint32Array>(() => {}) }],
    });
    await new Promise((resolve) => setTimeout(resolve, 50));
    cut.backend.requestStop();
    await assertRejects(() => stopped, StepStopped);
    assertEquals(await step(cut, 3), await step(whole, 3));
  },
);

/* Two models at the same time, each with its own backend on the one adapter. */

const other = { ...run, tokens: run.tokens.toReversed(), blockTable: shuffledBlocks(1, 2) };

gpuTest(
  "two models: steps that are cut and timed at the same time give the answers of each model alone",
  async () => {
    using whole = await load("qwen3", 1);
    const right = [await whole.step([run]), await whole.step([next])];
    using hybrid = await load("qwen35", 2);
    const ofHybrid = [await hybrid.step([other]), await hybrid.step([{ ...other, tokens: [5], cached: 21 }])];

    const [mine, theirs] = [new Cut(), new Cut()];
    using first = await load("qwen3", 1, mine);
    using second = await load("qwen35", 2, theirs);
    assertEquals(await Promise.all([first.step([run]), second.step([other])]), [right[0], ofHybrid[0]]);
    const steps = () =>
      Promise.all([first.step([next]), second.step([{ ...other, tokens: [5], cached: 21 }])]);
    assertEquals(await steps(), [right[1], ofHybrid[1]]);
    for (const costs of [mine, theirs]) assert(costs.timed, "kernels were timed beside the other model");
  },
);

gpuTest("two models: both learn costs that keep their submits short", async () => {
  const [mine, theirs] = [new Costs(), new Costs()];
  using first = await load("qwen3", 1, mine);
  using second = await load("qwen3", 1, theirs);
  const input = {
    tokens: Int32Array.from(run.tokens),
    sequences: [{ start: 0, length: run.tokens.length, cached: 0, blockTable: run.blockTable }],
    logits: [greedyRequest(run.tokens.length - 1)],
  };
  const timesOf = ({ backend }: KernelModel) => (backend as WebGpuBackend).submitTimes(input);
  for (let round = 0; round < 3; round++) await Promise.all([timesOf(first), timesOf(second)]);
  for (const times of await Promise.all([timesOf(first), timesOf(second)])) {
    for (const { expected, kernels } of times) {
      assert(Number.isFinite(expected) && (expected <= SUBMIT_MS || kernels.length === 1), `${expected} ms`);
    }
  }
});

gpuTest("two models: closing one between the other's submits leaves the other intact", async () => {
  using whole = await load("qwen3", 1);
  const right = [await whole.step([run]), await whole.step([next])];
  using stays = await load("qwen3", 1, new Slow());
  using goes = await load("qwen35", 2, new Slow());
  await goes.step([other]);
  const { submit } = GPUQueue.prototype;
  let left = 10;
  GPUQueue.prototype.submit = function (commands) {
    submit.call(this, commands);
    if (--left === 0) goes.backend.close();
  };
  try {
    assertEquals(await stays.step([run]), right[0]);
  } finally {
    GPUQueue.prototype.submit = submit;
  }
  assert(left <= 0, `${left} submits more were to come before the other was closed`);
  assertEquals((goes.backend as WebGpuBackend).bytes, 0);
  using again = await load("qwen3", 1);
  assertEquals([await again.step([run]), await stays.step([next])], [right[0], right[1]]);
});
