import { assert, assertEquals } from "@std/assert";
import { loadEngine } from "../../engine/load/load.ts";
import type { Engine } from "../../engine/mod.ts";
import { gpuTest } from "../../testing/gpu.ts";
import {
  bytesOfContext,
  KERNEL_MODELS,
  onKernels,
  onMixedKernels,
  onStandIn,
  STAND_INS,
} from "./preemption_scenario.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { everyNth, fullTier, isFullTier } from "../../testing/tier.ts";

/* `deno task preemption` runs thousands of requests. */

for (const standIn of everyNth(4, STAND_INS)) {
  Deno.test(`preemption: ${standIn.name} gives each request the answer that it gets alone, although KV memory keeps running out`, async () => {
    const requests = isFullTier ? 220 : 80;
    const preemptions = await onStandIn(standIn, { requests, company: 24, seed: 1 });
    assert(preemptions > requests / (standIn.kvWindows ? 8.8 : 5.5), `only ${preemptions} preemptions`);
  });
}

for (const architecture of KERNEL_MODELS) {
  fullTier.test(`preemption: ${architecture} with the kernels gives each request the bits that it gets alone`, async () => {
    const preemptions = await onKernels(architecture, "f16", { requests: 60, company: 24, seed: 1 });
    assert(preemptions > 10, `only ${preemptions} preemptions`);
  });
}

gpuTest(
  "a small KV cache in 8 bits on the GPU: requests of every kind get the bits that they get alone",
  async () => {
    await onKernels("llama", "q8_0", { requests: 8, company: 8, seed: 3 }, { backend: "webgpu", layers: 1 });
  },
);

for (const [kvType, maxRows] of [["f16", 40], ["q8_0", 12]] as const) {
  fullTier.test(`preemption: a model with windows, shared caches and two kinds of states in ${kvType} answers as alone with ${maxRows} rows per step`, async () => {
    const preemptions = await onMixedKernels(kvType, maxRows, { requests: 60, company: 24, seed: 1 });
    assert(preemptions > 10, `only ${preemptions} preemptions`);
  });
}

/** Length of an answer that exceeds a quarter of a pool of 192 tokens. */
async function answer(engine: Engine, i: number): Promise<number[]> {
  const prompt = Array.from({ length: 10 }, (_, k) => i * 31 + k * k);
  const sampling = i % 2 === 0 ? { temperature: 0 } : { seed: i };
  const tokens: number[] = [];
  for await (const event of engine.submit({ prompt, maxTokens: 120, ignoreEos: true, sampling })) {
    if (event.type === "token") tokens.push(event.token);
  }
  return tokens;
}

gpuTest("preemption: concurrent GPU steps give the same texts as alone when KV memory runs out", async () => {
  const model = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
  try {
    await Deno.writeFile(model, synthesize({ architecture: "llama", seed: 3, types: ["Q8_0"], layers: 1 }));
    const kvBytes = await bytesOfContext(model, "f16", 192);
    const options = { model, backend: "webgpu", contextLength: 192, parallel: 4, kvBytes } as const;
    const { engine } = await loadEngine(options);
    const each = [0, 1, 2, 3];
    const wanted: number[][] = [];
    for (const i of each) wanted.push(await answer(engine, i));
    assertEquals(await Promise.all(each.map((i) => answer(engine, i))), wanted);
    const { preemptions, submits, steps } = engine.stats();
    assert(
      preemptions > 0 && submits < steps,
      `${preemptions} preemptions, ${submits} submits of ${steps} steps`,
    );
    await engine.close();
  } finally {
    await Deno.remove(model);
  }
});
