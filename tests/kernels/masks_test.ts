import { assert, assertEquals, assertRejects } from "@std/assert";
import { delay } from "@std/async/delay.js";
import {
  type Candidates,
  DeviceLost,
  greedyRequest,
  type LogitsRequest,
  StepStopped,
} from "../../engine/backend/backend.ts";
import { openGpu } from "../../engine/backend/webgpu/device/gpu.ts";
import { WebGpuBackend } from "../../engine/backend/webgpu/webgpu.ts";
import { gpuTest } from "../../testing/gpu.ts";
import { kernelBackend, KernelModel } from "../../testing/kernel_model.ts";
import { synthesize } from "../../testing/synth/synth.ts";

/* Masks that arrive during a step, with the kernels and on the GPU. */

const VOCABULARY = 500;
const WORDS = Math.ceil(VOCABULARY / 32);
const LIMITS = { kvBlocks: 8, maxRows: 16, maxLogitRows: 8 };
type Type = "F32" | "Q8_0";

const model = (type: Type) =>
  synthesize({ architecture: "llama", seed: 9, types: [type], vocabulary: VOCABULARY });

function maskOf(tokens: Iterable<number>): Uint32Array {
  const mask = new Uint32Array(WORDS);
  for (const token of tokens) mask[token >> 5] |= 1 << (token & 31);
  return mask;
}

/** The results of one row per request; all rows are equal. */
async function answers(
  { backend }: Pick<KernelModel, "backend">,
  requests: readonly Partial<LogitsRequest>[],
): Promise<Candidates[]> {
  const sequences = requests.map((_, start) => (
    { start, length: 1, cached: 0, blockTable: Int32Array.of(start), windowTables: [] }
  ));
  const tokens = new Int32Array(requests.length).fill(7);
  const logits = requests.map((request, row) => ({ ...greedyRequest(row), ...request }));
  return (await backend.step({ tokens, sequences, logits })).rows;
}

for (const type of ["F32", "Q8_0"] as const) {
  Deno.test(`masks: candidates in ${type} are the best allowed tokens`, async () => {
    using kernels = await KernelModel.load(model(type), LIMITS);
    const allowed = Array.from({ length: VOCABULARY }, (_, i) => i).filter((i) => i * i % 7 === 2);
    const mask = Promise.resolve(maskOf(allowed));
    const few = Promise.resolve(maskOf([499, 3, 77]));
    const [all, some, three, best] = await answers(kernels, [
      { candidates: 256, probe: Int32Array.from(allowed) },
      { candidates: 256, mask },
      { candidates: 256, mask: few },
      { mask: few, biasTokens: Int32Array.of(3, 4), biasValues: Float32Array.of(50, 90) },
    ]);
    const logitOf = new Map(allowed.map((token, i) => [token, all.probed[i]]));
    assertEquals(some.ids.toSorted(), Int32Array.from(allowed));
    assert(some.logits.every((logit, i) => i === 0 || logit <= some.logits[i - 1]));
    assertEquals(three.ids.toSorted(), Int32Array.of(3, 77, 499));
    assertEquals([...best.ids], [3]);
    for (const row of [some, three, best]) assert(Math.abs(row.logSumExp - all.logSumExp) < 0.01);
    if (type === "Q8_0") return;
    // Without 8-bit activations every logit is exact.
    assertEquals([...some.ids.keys()].map((i) => some.logits[i]), [...some.ids].map((id) => logitOf.get(id)));
    assertEquals(some.logSumExp, all.logSumExp);
  });
}

Deno.test("masks: a step waits for its masks in any order and ends when all have arrived", async () => {
  using kernels = await KernelModel.load(model("Q8_0"), LIMITS, await kernelBackend({ threads: 2 }));
  const masks = Array.from({ length: 6 }, () => Promise.withResolvers<Uint32Array>());
  let done = false;
  const step = answers(kernels, [{}, ...masks.map(({ promise }) => ({ mask: promise }))]).finally(() =>
    done = true
  );
  for (const i of [5, 0, 3, 1, 4, 2]) {
    await delay(5);
    assert(!done);
    masks[i].resolve(maskOf([10 + i]));
  }
  const rows = await step;
  assertEquals(rows.slice(1).map(({ ids }) => [...ids]), [[10], [11], [12], [13], [14], [15]]);
});

// With four threads, the threads share the two rows.
for (const [late, threads] of [[true, 2], [false, 2], [true, 4], [false, 4]] as const) {
  const when = late ? "late" : "never";
  Deno.test(`masks: a step of ${threads} threads can be stopped when its mask comes ${when}`, async () => {
    using kernels = await KernelModel.load(model("Q8_0"), LIMITS, await kernelBackend({ threads }));
    const mask = Promise.withResolvers<Uint32Array>();
    const step = answers(kernels, [{ mask: mask.promise }, {}]);
    await delay(20);
    kernels.backend.requestStop();
    await assertRejects(() => step, StepStopped);
    const next = answers(kernels, [{ mask: delay(10).then(() => maskOf([20])) }]);
    if (late) mask.resolve(maskOf([30]));
    assertEquals([...(await next)[0].ids], [20]);
  });
}

Deno.test("masks: the kernels refuse a mask of another vocabulary, and the step ends", async () => {
  using kernels = await KernelModel.load(model("Q8_0"), LIMITS);
  const step = answers(kernels, [{ mask: Promise.resolve(new Uint32Array(WORDS + 1)) }]);
  await assertRejects(() => step);
  assertEquals((await answers(kernels, [{ candidates: 3 }]))[0].ids.length, 3);
});

gpuTest("masks: a GPU step waits for its masks and can be stopped meanwhile", async () => {
  using gpu = await KernelModel.load(model("F32"), LIMITS, await WebGpuBackend.open());
  using cpu = await KernelModel.load(model("F32"), LIMITS);
  const requests = () => [
    { candidates: 4 },
    { candidates: 4, mask: delay(20).then(() => maskOf([9, 8, 70])) },
    { candidates: 2, mask: Promise.resolve(maskOf(Array(300).keys())) },
  ];
  const [expected, given] = [await answers(cpu, requests()), await answers(gpu, requests())];
  assertEquals(given.map(({ ids }) => ids), expected.map(({ ids }) => ids));
  const never = answers(gpu, [{ mask: new Promise<Uint32Array>(() => {}) }]);
  await delay(20);
  gpu.backend.requestStop();
  await assertRejects(() => never, StepStopped);
  assertEquals((await answers(gpu, [{ mask: Promise.resolve(maskOf([5])) }]))[0].ids, Int32Array.of(5));
});

gpuTest("masks: a waiting GPU step fails when its device is lost", async () => {
  const gpu = await openGpu();
  using lost = await KernelModel.load(model("F32"), LIMITS, new WebGpuBackend(gpu));
  const never = answers(lost, [{ mask: new Promise<Uint32Array>(() => {}) }]);
  const ended = assertRejects(() => never, DeviceLost, "The GPU was lost").then(() => true);
  await delay(20);
  gpu.device.destroy();
  assert(await Promise.race([ended, delay(5000)]), "it waits for the mask after 5 s");
});

gpuTest("masks: the GPU refuses a mask of another vocabulary, and the next step is correct", async () => {
  using gpu = await KernelModel.load(model("F32"), LIMITS, await WebGpuBackend.open());
  const right = await answers(gpu, [{ candidates: 3 }, { candidates: 3 }]);
  for (const words of [WORDS + 1, WORDS - 1]) {
    const mask = Promise.resolve(new Uint32Array(words).fill(0xffffffff));
    await assertRejects(() => answers(gpu, [{ mask }, { candidates: 3 }]), RangeError, `${WORDS} words`);
  }
  assertEquals(await answers(gpu, [{ candidates: 3 }, { candidates: 3 }]), right);
});
