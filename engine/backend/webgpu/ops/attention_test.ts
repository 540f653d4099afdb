import { assert, assertEquals } from "@std/assert";
import { Random, seedOf } from "../../../../tests/random.ts";
import { KV_BLOCK_TOKENS } from "../../backend.ts";
import type { Kernel } from "../kernels/types.ts";
import { dispatch, openTestDevice, read, upload } from "../kernels/testing.ts";
import { nmse } from "../kernels/testing_products.ts";
import { attentionKernel, contextParts, mergeKernel, partialFloats, sharesContext } from "./attention.ts";

const gpu = await openTestDevice();
const test = (name: string, fn: () => Promise<void>) =>
  Deno.test({ name, ignore: !gpu, sanitizeResources: false, sanitizeOps: false, fn });

const { STORAGE, COPY_SRC, UNIFORM } = GPUBufferUsage;
const SCALE = 0.25;

interface Heads {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly gated: boolean;
}

const uniform = (count: number, seed: string, scale: number) => {
  const random = new Random(seedOf(seed));
  return Float16Array.from({ length: count }, () => random.normal() * scale);
};

/** A cache of `tokens` in blocks that lie in reverse, and queries at some positions. */
function setting({ heads, kvHeads, headDim, gated }: Heads, tokens: number, positions: readonly number[]) {
  const blocks = Math.ceil(tokens / KV_BLOCK_TOKENS);
  const stride = heads * headDim * (gated ? 2 : 1);
  return {
    q: Float32Array.from(uniform(positions.length * stride, "q", 2)),
    stride,
    keys: uniform(blocks * KV_BLOCK_TOKENS * kvHeads * headDim, "k", 1),
    values: uniform(blocks * KV_BLOCK_TOKENS * kvHeads * headDim, "v", 1),
    tables: Uint32Array.from({ length: blocks }, (_, i) => blocks - 1 - i),
    rows: Uint32Array.from(positions.flatMap((position) => [0, position, 0, 0])),
  };
}

/** The outputs, with each row's context done by one workgroup, and shared out. */
async function both(shape: Heads, tokens: number, positions: readonly number[]) {
  const { device } = gpu!;
  const parts = contextParts(tokens);
  const { q, stride, keys, values, tables, rows } = setting(shape, tokens, positions);
  const width = shape.heads * shape.headDim;
  const op = new Uint32Array([stride, 0, width, 0, 0, parts.count, 0, 0]);
  new Float32Array(op.buffer)[4] = SCALE;
  const y = upload(device, new Float32Array(positions.length * width), STORAGE | COPY_SRC);
  const partials = upload(device, new Float32Array(partialFloats(shape.headDim, parts)).fill(NaN), STORAGE);
  const [uniforms, rowBuffer] = [upload(device, op, UNIFORM), upload(device, rows, STORAGE)];
  const inputs = [keys, values].map((data) => upload(device, data, STORAGE));
  const cache = [...inputs, rowBuffer, upload(device, tables, STORAGE)];
  const query = upload(device, q, STORAGE);
  const run = async (kernel: Kernel, more: GPUBuffer[]) => {
    const bindings = [uniforms, ...more].map((buffer, i): [number, GPUBuffer] => [i, buffer]);
    await dispatch(device, kernel, kernel.workgroups(1, positions.length, tokens), bindings);
  };
  await run(attentionKernel(shape, parts), [query, y, ...cache]);
  const alone = await read(device, y);
  device.queue.writeBuffer(y, 0, new Float32Array(alone.length));
  await run(attentionKernel(shape, parts, true), [query, partials, ...cache]);
  await run(mergeKernel(shape, parts), [y, partials, rowBuffer, ...shape.gated ? [query] : []]);
  const shared = await read(device, y);
  for (const buffer of [uniforms, query, y, partials, ...cache]) buffer.destroy();
  return { alone, shared };
}

/** softmax(scale q K) V in float64. */
function exact(shape: Heads, tokens: number, positions: readonly number[]): Float64Array {
  const { heads, kvHeads, headDim, gated } = shape;
  const { q, stride, keys, values, tables } = setting(shape, tokens, positions);
  const out = new Float64Array(positions.length * heads * headDim);
  const slot = (position: number, head: number) =>
    ((tables[Math.floor(position / KV_BLOCK_TOKENS)] * kvHeads + head) * KV_BLOCK_TOKENS +
      position % KV_BLOCK_TOKENS) * headDim;
  for (const [row, last] of positions.entries()) {
    for (let head = 0; head < heads; head++) {
      const kv = Math.floor(head / (heads / kvHeads));
      const at = row * stride + head * headDim * (gated ? 2 : 1);
      const weights = Array.from({ length: last + 1 }, (_, position) => {
        let score = 0;
        for (let d = 0; d < headDim; d++) score += q[at + d] * keys[slot(position, kv) + d];
        return Math.exp(SCALE * score);
      });
      const total = weights.reduce((a, b) => a + b, 0);
      for (let d = 0; d < headDim; d++) {
        const sum = weights.reduce((sum, w, position) => sum + w * values[slot(position, kv) + d], 0);
        const gate = gated ? 1 + Math.exp(-q[at + headDim + d]) : 1;
        out[(row * heads + head) * headDim + d] = sum / total / gate;
      }
    }
  }
  return out;
}

for (
  const [name, shape, tokens] of [
    ["plain", { heads: 4, kvHeads: 2, headDim: 32, gated: false }, 1700],
    ["gated", { heads: 2, kvHeads: 1, headDim: 256, gated: true }, 1300],
  ] as const
) {
  test(`${name}: a context that workgroups share gives the bits of one that is done by one`, async () => {
    const positions = [tokens - 1, 0, 511, 512, 1023, 1024];
    const { alone, shared } = await both(shape, tokens, positions);
    assertEquals(shared, alone);
    const right = exact(shape, tokens, positions);
    const error = nmse(alone, right);
    assert(error < 1e-11, `NMSE ${error}`);
  });
}

Deno.test("only long contexts of few rows are shared", () => {
  const heads = { heads: 32, kvHeads: 8, headDim: 128, gated: false };
  const parts = contextParts(32_768);
  assertEquals(parts, { length: 512, count: 64 });
  assertEquals(contextParts(131_072), { length: 2048, count: 64 });
  assertEquals(contextParts(40), { length: 512, count: 1 });
  assertEquals([1, 7, 8].map((rows) => sharesContext(heads, parts, rows, 4096)), [true, true, false]);
  assertEquals([1024, 1025].map((context) => sharesContext(heads, parts, 1, context)), [false, true]);
});
