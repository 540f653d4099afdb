import { assert, assertEquals, assertRejects } from "@std/assert";
import { fromFileUrl } from "@std/path";
import {
  type Arithmetic,
  type Backend,
  type Candidates,
  DeviceLost,
  greedyRequest,
  type LogitsRequest,
} from "../../engine/backend/backend.ts";
import { prepareBackend } from "../../engine/backend/choose.ts";
import { openGpu } from "../../engine/backend/webgpu/device/gpu.ts";
import { GpuError } from "../../engine/backend/webgpu/errors.ts";
import { GPU_TYPES } from "../../engine/backend/webgpu/kernels/formats/registry.ts";
import type { Tuning } from "../../engine/backend/webgpu/kernels/types.ts";
import { WebGpuBackend } from "../../engine/backend/webgpu/webgpu.ts";
import { buildPlan, readPlan } from "../../engine/architectures/registry.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import type { GgufFile, TensorType } from "../../engine/gguf/types.ts";
import { withKvType } from "../../engine/plan/plan.ts";
import { gpuTest } from "../../testing/gpu.ts";
import { withLiveServer } from "../../testing/live_server.ts";
import { KernelModel, type Run, shuffledBlocks } from "../../testing/kernel_model.ts";
import { type Architecture, synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";

/* Whole models on the GPU, compared with the CPU. Models are tiny, since a software driver may compute
   them. */

const VOCABULARY = 300;
const BLOCKS = 2;
const LIMITS = { kvBlocks: 8 * BLOCKS, maxRows: 64, maxLogitRows: 32 };
const PROMPT = 40;
const ALL = Array.from({ length: VOCABULARY }, (_, token) => token);

const model = (architecture: Architecture, types: readonly TensorType[], layers = 1) =>
  synthesize({ architecture, types, layers, seed: 3, vocabulary: VOCABULARY });

const text = (length: number, seed = 0) =>
  Array.from({ length }, (_, i) => (i * 53 + seed * 91 + 7) % VOCABULARY);

/**
 * Returns log-probabilities after a prompt (by default longer than a KV block) and after two single tokens.
 */
async function logprobs(model: KernelModel, prompt = PROMPT): Promise<Float64Array[]> {
  const tokens = text(prompt + 2);
  const blockTable = shuffledBlocks(0, BLOCKS);
  const out: Float64Array[] = [];
  for (const [from, to] of [[0, prompt], [prompt, prompt + 1], [prompt + 1, prompt + 2]]) {
    const wanted = Array.from({ length: Math.min(8, to - from) }, () => ({ probe: ALL }));
    const run: Run = { tokens: tokens.slice(from, to), cached: from, blockTable, wanted };
    const [answers] = await model.step([run]);
    for (const { probed, logSumExp } of answers) out.push(Float64Array.from(probed, (x) => x - logSumExp));
  }
  return out;
}

/** Returns the mean Kullback-Leibler divergence of b from a. */
function divergence(a: readonly Float64Array[], b: readonly Float64Array[]): number {
  const rows = a.map((row, i) => row.reduce((sum, p, t) => sum + Math.exp(p) * (p - b[i][t]), 0));
  return rows.reduce((x, y) => x + y, 0) / rows.length;
}

const load = async (bytes: Uint8Array, arithmetic: Arithmetic = "f32") =>
  await KernelModel.load(bytes, LIMITS, await WebGpuBackend.open({ arithmetic }));

/** Maximum mean divergence from the CPU, with 8-bit activations and in floats. */
const ROUNDED = 2e-3;
const FLOATS = 2e-6;
/** Maximum mean divergence of f16 from f32. */
const HALF = 2e-4;

// Every fourth layer of smollm3 has no rotation, nanbeige's layers run several times, and layers of deci lack
// parts.
for (
  const [architecture, layers] of [
    ["llama", 2],
    ["qwen2", 2],
    ["qwen3", 2],
    ["seed_oss", 2],
    ["smollm3", 4],
    ["nanbeige", 2],
    ["deci", 6],
  ] as const
) {
  gpuTest(`${architecture} in F16: gives the CPU's answers`, async () => {
    const bytes = model(architecture, ["F16"], layers);
    using cpu = await KernelModel.load(bytes, LIMITS);
    using gpu = await load(bytes);
    const found = divergence(await logprobs(cpu), await logprobs(gpu));
    assert(found < FLOATS, `mean KL ${found}`);
  });
}

gpuTest("KV cache in q8_0: gives the CPU's answers, which differ from those in f16", async () => {
  const bytes = model("qwen3", ["F16"], 2);
  using cpu = await KernelModel.load(bytes, LIMITS, { kvType: "q8_0" });
  const build = (file: GgufFile) => withKvType(buildPlan(file), "q8_0");
  using gpu = await KernelModel.loadAs(build, bytes, LIMITS, await WebGpuBackend.open());
  using halves = await load(bytes);
  const [a, b, c] = [await logprobs(cpu), await logprobs(gpu), await logprobs(halves)];
  const [found, apart] = [divergence(a, b), divergence(c, b)];
  assert(found < ROUNDED, `mean KL ${found}`);
  assert(apart > 0 && apart < ROUNDED, `mean KL ${apart} from f16`);
});

gpuTest("formats: a model with every format gives the CPU's answers", async () => {
  // Three layers have 21 matrices, so every format is used.
  const bytes = model("llama", GPU_TYPES, 3);
  using cpu = await KernelModel.load(bytes, LIMITS);
  using gpu = await load(bytes);
  const [a, b] = await Promise.all([cpu, gpu].map((on) => logprobs(on, 8)));
  const found = divergence(a, b);
  assert(found < ROUNDED, `mean KL ${found} from the CPU`);
});

gpuTest("f16 arithmetic: answers as f32 does", async () => {
  const bytes = model("qwen3", ["Q4_0"]);
  using f32 = await load(bytes);
  const exact = await logprobs(f32, 8);
  using rounded = await load(bytes, "f16");
  const found = divergence(exact, await logprobs(rounded, 8));
  assert(found > 0 && found < HALF, `mean KL ${found} from f32`);
});

gpuTest("batch: each of eight sequences has the bits that it has alone", async () => {
  const bytes = model("qwen3", ["Q4_0"]);
  using gpu = await load(bytes);
  const run = (i: number): Run => ({
    tokens: text(2, i),
    blockTable: shuffledBlocks(i * BLOCKS, BLOCKS),
    wanted: [{ candidates: 3, probe: ALL }],
  });
  const alone: Candidates[][] = [];
  for (let i = 0; i < 8; i++) alone.push(...await gpu.step([run(i)]));
  assertEquals(await gpu.step(Array.from({ length: 8 }, (_, i) => run(i))), alone);
});

gpuTest(
  "batch: each of sixteen sequences with shared KV blocks has the bits that it has alone",
  async () => {
    const [bytes, limits] = [model("llama", ["Q8_0"]), { kvBlocks: 24, maxRows: 32, maxLogitRows: 16 }];
    using gpu = await KernelModel.load(bytes, limits, await WebGpuBackend.open());
    const shared = shuffledBlocks(0, 8);
    const tokens = text(8 * 32);
    for (let at = 0; at < tokens.length; at += 32) {
      await gpu.step([{ tokens: tokens.slice(at, at + 32), cached: at, blockTable: shared }]);
    }
    const run = (i: number): Run => ({
      tokens: [i],
      cached: tokens.length,
      blockTable: Int32Array.of(...shared, 8 + i),
      wanted: [{ candidates: 3, probe: ALL }],
    });
    const alone: Candidates[][] = [];
    for (let i = 0; i < 16; i++) alone.push(...await gpu.step([run(i)]));
    assertEquals(await gpu.step(Array.from({ length: 16 }, (_, i) => run(i))), alone);
  },
);

gpuTest("weights: weights in many bindings give the bits of weights in one binding", async () => {
  const bytes = model("llama", ["Q8_0"]);
  using whole = await load(bytes);
  const gpu = { ...await openGpu(), bindingBytes: 24_000 };
  using sharded = await KernelModel.load(bytes, LIMITS, new WebGpuBackend(gpu));
  assertEquals(await logprobs(sharded), await logprobs(whole));
});

gpuTest("tuning: every tuning gives the same bits, and an impossible one is refused", async () => {
  const bytes = model("llama", ["Q8_0"]);
  const tuned = async (tuning: Tuning) =>
    await KernelModel.load(
      bytes,
      LIMITS,
      new WebGpuBackend(await openGpu(), {}, new Map([["Q8_0 f32", tuning]])),
    );
  using plain = await load(bytes);
  using other = await tuned({ rows: 2, lanes: 64 });
  assertEquals(await logprobs(other, 8), await logprobs(plain, 8));
  await assertRejects(() => tuned({ rows: 1, lanes: 0 }), GpuError, "refused");
});

/** Sets all attention values to 0, since the GPU rounds them to f16 and the CPU to integers. */
function withoutValues(bytes: Uint8Array<ArrayBuffer>): Uint8Array {
  for (const { name, offset, byteLength } of parseGguf(bytes).tensors.values()) {
    if (name.endsWith(".attn_v.weight")) bytes.fill(0, offset, offset + byteLength);
  }
  return bytes;
}

/** Runs the same requests for logits on GPU and CPU. */
async function bothAnswer(requests: readonly Partial<LogitsRequest>[], check: typeof assertSame) {
  const bytes = withoutValues(model("llama", ["F32"]));
  using cpu = await KernelModel.load(bytes, LIMITS);
  using gpu = await load(bytes);
  const tokens = Int32Array.from(text(requests.length));
  const sequences = [{ start: 0, length: tokens.length, cached: 0, blockTable: shuffledBlocks(0, BLOCKS) }];
  const logits = requests.map((request, row): LogitsRequest => ({ ...greedyRequest(row), ...request }));

  const answers = await Promise.all([cpu, gpu].map((m) => m.backend.step({ tokens, sequences, logits })));
  for (const [i, row] of answers[0].rows.entries()) check(row, answers[1].rows[i], i);
}

function assertSame(cpu: Candidates, gpu: Candidates, row: number): void {
  assertEquals(gpu.ids, cpu.ids, `row ${row}`);
  for (const key of ["logits", "rawLogits", "probed"] as const) {
    for (const [i, x] of cpu[key].entries()) {
      assert(Math.abs(gpu[key][i] - x) < 2e-4, `row ${row}: ${key} ${gpu[key][i]}, on the CPU ${x}`);
    }
  }
  assert(Math.abs(gpu.logSumExp - cpu.logSumExp) < 1e-4);
}

gpuTest("candidates: match the CPU's, also with penalties, bias and mask", async () => {
  const mask = new Uint32Array(Math.ceil(VOCABULARY / 32));
  mask.set([0xf0f0f0f0, 0x0000ffff, 1]);
  const penaltyTokens = Int32Array.of(5, 9, 200);
  const penaltyCounts = Int32Array.of(0, 2, 1);
  const bias = { biasTokens: Int32Array.of(9, 17, 40), biasValues: Float32Array.of(3, -2.5, 1.25) };
  const penalties = { repetitionPenalty: 1.3, presencePenalty: 0.5, frequencyPenalty: 0.25 };
  await bothAnswer([
    { candidates: 1, probe: Int32Array.of(0, 299) },
    { candidates: 2 },
    { candidates: 20, probe: Int32Array.of(7) },
    { candidates: 256 },
    { candidates: 20, ...bias },
    { candidates: 20, ...penalties, penaltyTokens, penaltyCounts },
    { candidates: 1, ...penalties, penaltyTokens, penaltyCounts, ...bias, probe: Int32Array.of(9) },
    { candidates: 10, mask: Promise.resolve(mask) },
    { candidates: 1, mask: Promise.resolve(mask), ...bias },
  ], assertSame);
});

gpuTest("answers: alternating large requests and large answers allocate no new buffers", async () => {
  using gpu = await load(model("llama", ["F32"]));
  const rows = Array.from({ length: LIMITS.maxLogitRows }, (_, row) => row);
  const every = Int32Array.from(ALL);
  const penalties = { repetitionPenalty: 1.3, penaltyTokens: every, penaltyCounts: every };
  const tokens = Int32Array.from(text(rows.length));
  const sequences = [{ start: 0, length: tokens.length, cached: 0, blockTable: shuffledBlocks(0, BLOCKS) }];
  const step = (wanted: Partial<LogitsRequest>) =>
    gpu.backend.step({
      tokens,
      sequences,
      logits: rows.map((row) => ({ ...greedyRequest(row), ...wanted })),
    });
  const { createBuffer } = GPUDevice.prototype;
  let made: (string | undefined)[] = [];
  GPUDevice.prototype.createBuffer = function (descriptor) {
    // The first step that is split into several submits creates further buffers.
    if (["the requests for logits", "the candidates"].includes(descriptor.label!)) {
      made.push(descriptor.label);
    }
    return createBuffer.call(this, descriptor);
  };
  try {
    for (let round = 0; round < 3; round++) {
      if (round === 1) made = []; // the buffers grow until then
      await step(penalties);
      await step({ candidates: 256, probe: every });
    }
  } finally {
    GPUDevice.prototype.createBuffer = createBuffer;
  }
  assertEquals(made, []);
});

gpuTest("device loss: every step afterwards throws DeviceLost", async () => {
  const gpu = await openGpu();
  using lost = await KernelModel.load(model("llama", ["F16"]), LIMITS, new WebGpuBackend(gpu));
  const run: Run = { tokens: [1, 2, 3], blockTable: shuffledBlocks(0, BLOCKS), wanted: [{}] };
  await lost.step([run]);
  gpu.device.destroy();
  for (let i = 0; i < 2; i++) {
    await assertRejects(() => lost.step([run]), DeviceLost, "The GPU was lost");
  }
});

gpuTest("KV cache: refuses a size beyond the device, with advice", async () => {
  const limits = { ...LIMITS, kvBlocks: 10_000_000 };
  const backend = await WebGpuBackend.open();
  try {
    await assertRejects(
      () => KernelModel.load(model("llama", ["F16"]), limits, backend),
      GpuError,
      "ask for less with ctx or parallel",
    );
  } finally {
    backend.close();
  }
});

/** Prepares a small model, and returns why the backend was chosen. */
async function prepare(backend: "auto" | "webgpu"): Promise<{ backend: Backend; choice: string }> {
  const { openGguf } = await import("../../engine/gguf/reader.ts");
  const path = await Deno.makeTempFile({ prefix: "compy-test-", suffix: ".gguf" });
  try {
    await Deno.writeFile(path, model("llama", ["Q4_0"], 6));
    const file = await openGguf(path);
    return await prepareBackend(file, await readPlan(file), LIMITS, { backend });
  } finally {
    await Deno.remove(path);
  }
}

async function withoutAdapter(test: () => Promise<void>): Promise<void> {
  const gpu = Object.getOwnPropertyDescriptor(Navigator.prototype, "gpu")!;
  Object.defineProperty(navigator, "gpu", { value: undefined, configurable: true });
  try {
    await test();
  } finally {
    delete (navigator as { gpu?: unknown }).gpu;
    assertEquals(Object.getOwnPropertyDescriptor(Navigator.prototype, "gpu"), gpu);
  }
}

fullTier.test("auto: takes the CPU and says why when there is no adapter, and webgpu is refused", () =>
  withoutAdapter(async () => {
    const { backend, choice } = await prepare("auto");
    assertEquals(backend.info.name, "cpu");
    assert(choice.includes("found no adapter"), choice);
    backend.close();
    await assertRejects(() => prepare("webgpu"), GpuError, "found no adapter");
  }));

gpuTest("auto: measures both backends and takes the faster", async () => {
  const { backend, choice } = await prepare("auto");
  const [, cpu, gpu] = /take ([\d.]+) ms .*on the CPU.*, ([\d.]+) ms on /.exec(choice)!.map(Number);
  assertEquals(backend.info.name, gpu < cpu ? "webgpu" : "cpu", choice);
  backend.close();
});

gpuTest(
  "server: answers eight requests at once",
  () =>
    withLiveServer(["--backend", "webgpu", "--parallel", "8"], async ({ client }) => {
      const ask = (n: number) =>
        client.completions.create({
          model: "demo",
          prompt: `${n} little compys`,
          max_tokens: 3,
          temperature: 0,
        });
      const answers = await Promise.all(Array.from({ length: 8 }, (_, n) => ask(n)));
      for (const { usage } of answers) assertEquals(usage!.completion_tokens, 3);
    }),
);

gpuTest("batch run: answers all lines", async () => {
  const folder = await Deno.makeTempDir({ prefix: "compy-test-" });
  try {
    const line = (n: number) =>
      JSON.stringify({
        custom_id: `q${n}`,
        method: "POST",
        url: "/v1/completions",
        body: { model: "demo", prompt: `Story ${n}`, max_tokens: 3, temperature: n % 2 },
      });
    await Deno.writeTextFile(`${folder}/in.jsonl`, [0, 1, 2, 3].map(line).join("\n"));
    const files = [`${folder}/in.jsonl`, "--out", `${folder}/out.jsonl`];
    const args = ["run", "-q", "-P=batch", "main.ts", "batch", "run", ...files, "--backend", "webgpu"];
    const cwd = fromFileUrl(new URL("../..", import.meta.url));
    const { code } = await new Deno.Command(Deno.execPath(), { args, cwd, stdout: "null", stderr: "null" })
      .output();
    assertEquals(code, 0);
    const answers = (await Deno.readTextFile(`${folder}/out.jsonl`)).trim().split("\n");
    assertEquals(answers.map((answer) => JSON.parse(answer).response.status_code), [200, 200, 200, 200]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
