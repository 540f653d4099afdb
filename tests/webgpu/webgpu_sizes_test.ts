/** Sizes beyond one binding of the GPU: KV caches divided by heads, and models beyond 4 GB in their file. */
import { assert, assertEquals } from "@std/assert";
import { buildPlan } from "../../engine/architectures/registry.ts";
import { greedyRequest } from "../../engine/backend/backend.ts";
import { type Gpu, openGpu } from "../../engine/backend/webgpu/device/gpu.ts";
import { kvParts } from "../../engine/backend/webgpu/step/step_buffers.ts";
import { WebGpuBackend } from "../../engine/backend/webgpu/webgpu.ts";
import type { ByteSource } from "../../engine/gguf/byte_source.ts";
import { openGguf, parseGguf } from "../../engine/gguf/reader.ts";
import type { GgufFile } from "../../engine/gguf/types.ts";
import { type Plan, withKvType } from "../../engine/plan/plan.ts";
import { gpuTest } from "../../testing/gpu.ts";
import { KernelModel, type Run, shuffledBlocks } from "../../testing/kernel_model.ts";
import { mixedFile, type MixedLayer, mixedPlan } from "../../testing/mixed_model.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import { fullTier } from "../../testing/tier.ts";

const VOCABULARY = 80;
const WANTED = [{ candidates: 3, probe: Array.from({ length: VOCABULARY }, (_, i) => i) }];
const text = (length: number) => Array.from({ length }, (_, i) => (i * 53 + 7) % VOCABULARY);

/** Returns a GPU with bindings of at most so many bytes, and the sizes of its KV cache's buffers. */
async function smallGpu(bindingBytes: number): Promise<{ gpu: Gpu; cache: number[] }> {
  const gpu = { ...await openGpu(), bindingBytes };
  const cache: number[] = [];
  const create = gpu.device.createBuffer;
  gpu.device.createBuffer = function (descriptor) {
    if (descriptor.label?.endsWith("KV cache")) cache.push(descriptor.size);
    return create.call(this, descriptor);
  };
  return { gpu, cache };
}

interface Split {
  readonly bytes: Uint8Array;
  readonly build: (file: GgufFile) => Plan;
  /** Most bytes of a binding, and how many buffers the cache then has. */
  readonly bindingBytes: number;
  readonly buffers: number;
  /** Lengths of the steps in tokens. */
  readonly steps: readonly number[];
}

/** Asserts that a cache in several buffers gives the same bits as a cache in one buffer. */
async function assertSameBits({ bytes, build, bindingBytes, buffers, steps }: Split): Promise<void> {
  const blocks = Math.ceil(steps.reduce((a, b) => a + b) / 32) + 1;
  const limits = { kvBlocks: blocks, maxRows: Math.max(...steps), maxLogitRows: 1 };
  const { gpu, cache } = await smallGpu(bindingBytes);
  using whole = await KernelModel.loadAs(build, bytes, limits, await WebGpuBackend.open());
  using cut = await KernelModel.loadAs(build, bytes, limits, new WebGpuBackend(gpu));
  assert(cache.every((size) => size <= bindingBytes), `${cache}`);
  assertEquals(cache.length, buffers);
  let cached = 0;
  for (const length of steps) {
    const tokens = text(cached + length).slice(cached);
    const run: Run = { tokens, cached, blockTable: shuffledBlocks(0, blocks), wanted: WANTED };
    assertEquals(await cut.step([run]), await whole.step([run]));
    cached += length;
  }
}

const WINDOWED: MixedLayer[] = [
  { heads: 16, kvHeads: 4, headDim: 16, rotated: 16, base: 1e4, interleaved: false, window: 5 },
  { heads: 16, kvHeads: 4, headDim: 16, rotated: 16, base: 1e6, interleaved: true, window: 0 },
];

/** Gives each head a sink; any vector of that length will do. */
function withSinks(plan: Plan): Plan {
  const norm = plan.ops.find((op) => op.op === "rope_append")!.qNorm;
  return { ...plan, ops: plan.ops.map((op) => op.op === "attention" ? { ...op, sinks: norm } : op) };
}

for (
  const [kv, bindingBytes, each] of [["f16", 20_000, 2], ["q8_0", 10_000, 4]] as const
) {
  gpuTest(
    `KV cache in ${kv}: windows and sinks give the same bits when split into ${each} buffers`,
    () =>
      assertSameBits({
        bytes: mixedFile(WINDOWED).bytes,
        build: (file) => withKvType(withSinks(mixedPlan(WINDOWED)(file)), kv),
        bindingBytes,
        buffers: 2 * each * WINDOWED.length,
        steps: [70, 1, 9],
      }),
  );
}

gpuTest(
  "KV cache in several buffers: split contexts and gates give the same bits",
  () =>
    assertSameBits({
      bytes: synthesize({
        architecture: "qwen35",
        types: ["Q8_0"],
        layers: 4,
        seed: 3,
        vocabulary: 300,
      }),
      build: (file) => buildPlan(file),
      bindingBytes: 100_000,
      buffers: 4,
      steps: [256, 256, 20, 1],
    }),
);

for (const [architecture, layers] of [["qwen3", 1], ["qwen35", 4]] as const) {
  gpuTest(
    `${architecture}: a device with the smallest limits gives the same bits`,
    async () => {
      const bytes = synthesize({ architecture, types: ["Q4_0"], layers, seed: 5, vocabulary: 300 });
      const limits = { kvBlocks: 2, maxRows: 64, maxLogitRows: 1 };
      using all = await KernelModel.load(bytes, limits, await WebGpuBackend.open());
      const { requestDevice } = GPUAdapter.prototype;
      GPUAdapter.prototype.requestDevice = function (descriptor) {
        return requestDevice.call(this, { ...descriptor, requiredLimits: {} });
      };
      const small = await WebGpuBackend.open().finally(() =>
        GPUAdapter.prototype.requestDevice = requestDevice
      );
      using least = await KernelModel.load(bytes, limits, small);
      const blockTable = shuffledBlocks(0, 2);
      for (const [tokens, cached] of [[text(40), 0], [[3], 40]] as const) {
        const run: Run = { tokens, cached, blockTable, slot: 0, wanted: WANTED };
        assertEquals(await least.step([run]), await all.step([run]));
      }
    },
  );
}

fullTier.test("KV cache: uses the fewest buffers with equal numbers of heads", () => {
  assertEquals(kvParts(8, 100, 800), 1);
  assertEquals(kvParts(8, 100, 799), 2);
  assertEquals(kvParts(8, 100, 100), 8);
  assertEquals(kvParts(6, 100, 250), 3);
  assertEquals(kvParts(6, 100, 99), 6);
});

/** Inserts so many zero bytes between the file's tensors, and returns where the later tensors are. */
function spread(
  bytes: Uint8Array<ArrayBuffer>,
  hole: number,
): { from: number; header: Uint8Array<ArrayBuffer> } {
  const tensors = [...parseGguf(bytes).tensors.values()].sort((a, b) => a.offset - b.offset);
  const moved = tensors.slice(tensors.length >> 1);
  const header = bytes.slice(0, tensors[0].offset);
  const view = new DataView(header.buffer);
  for (const { name, shape } of moved) {
    const entry = new Uint8Array(8 + name.length);
    new DataView(entry.buffer).setBigUint64(0, BigInt(name.length), true);
    entry.set(new TextEncoder().encode(name), 8);
    let at = 0;
    while (!entry.every((byte, i) => header[at + i] === byte)) at++;
    at += entry.length + 4 + 8 * shape.length + 4;
    view.setBigUint64(at, view.getBigUint64(at, true) + BigInt(hole), true);
  }
  return { from: moved[0].offset, header };
}

gpuTest("weights: tensors beyond 4 GB in the file are read correctly", async () => {
  const bytes = synthesize({
    architecture: "qwen3",
    types: ["Q4_0", "F16"],
    layers: 1,
    seed: 3,
    vocabulary: 300,
  });
  const hole = 5 * 2 ** 30;
  const { from, header } = spread(bytes, hole);
  const source: ByteSource = {
    size: bytes.length + hole,
    // Such a large file is never written: reads return its parts.
    read(offset, into) {
      const count = Math.max(0, Math.min(into.length, this.size - offset));
      for (let i = 0; i < count; i++) {
        const at = offset + i;
        into[i] = at < from ? header[at] ?? bytes[at] : bytes[at - hole] ?? 0;
      }
      return Promise.resolve(count);
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const file = await openGguf("large.gguf", () => Promise.resolve(source));
  const limits = { kvBlocks: 1, maxRows: 16, maxLogitRows: 1 };
  const plan = buildPlan(file);
  assert(Math.max(...plan.tensors.map(({ info }) => info.offset)) > 2 ** 32);
  const input = {
    tokens: Int32Array.from(text(9)),
    sequences: [{ start: 0, length: 9, cached: 0, blockTable: Int32Array.of(0) }],
    logits: [{ ...greedyRequest(8), probe: Int32Array.from(WANTED[0].probe) }],
  };
  using small = await KernelModel.load(bytes, limits, await WebGpuBackend.open());
  const large = await WebGpuBackend.open();
  try {
    await large.loadWeights(file, plan);
    await large.compile(plan, limits);
    assertEquals(await large.step(input), await small.backend.step(input));
  } finally {
    large.close();
  }
});
