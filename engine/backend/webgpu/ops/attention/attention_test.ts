import { assert, assertEquals } from "@std/assert";
import { Random, seedOf } from "../../../../../testing/random.ts";
import { KV_BLOCK_TOKENS } from "../../../backend.ts";
import type { Kernel } from "../../kernels/types.ts";
import { dispatch, openTestDevice, read, upload } from "../../kernels/testing.ts";
import { nmse } from "../../kernels/testing_products.ts";
import { fullTier } from "../../../../../testing/tier.ts";
import { mergeKernel } from "./attention_merge.ts";
import {
  type AttentionShape,
  contextParts,
  headsTogether,
  partialFloats,
  scoreLanes,
  sharesContext,
  spansOf,
} from "./attention_shape.ts";
import { singleKernel } from "./attention_single.ts";
import { tileKernel, tileRows } from "./attention_tile.ts";
import { kvHeadBytes } from "../kv_cache.ts";
import { ropeKernel } from "../rope_append.ts";

const gpu = await openTestDevice();
const test = (name: string, fn: () => Promise<void>) =>
  fullTier.test({ name, ignore: !gpu, sanitizeResources: false, sanitizeOps: false, fn });

const { STORAGE, COPY_SRC, UNIFORM } = GPUBufferUsage;
const SCALE = 0.25;

const halves = (count: number, seed: string, scale: number) => {
  const random = new Random(seedOf(seed));
  return Float16Array.from({ length: count }, () => random.normal() * scale);
};

/**
 * One sequence whose last rows are in the step: a cache with its blocks in reverse order, queries, and sinks.
 */
interface Setting {
  readonly shape: AttentionShape;
  /** Position of the step's first row, and the number of rows. */
  readonly first: number;
  readonly rows: number;
}

function setting({ shape: { kv, heads, kvHeads, headDim, gated }, first, rows }: Setting) {
  const tokens = first + rows;
  const blocks = Math.ceil(tokens / KV_BLOCK_TOKENS);
  const stride = heads * headDim * (gated ? 2 : 1);
  return {
    tokens,
    q: Float32Array.from(halves(rows * stride, "q", 2)),
    stride,
    keys: rounded(kv, halves(blocks * KV_BLOCK_TOKENS * kvHeads * headDim, "k", 1), headDim),
    values: rounded(kv, halves(blocks * KV_BLOCK_TOKENS * kvHeads * headDim, "v", 1), headDim),
    sinks: Float32Array.from(halves(heads, "sinks", 3)),
    blocks: Array.from({ length: blocks }, (_, i) => blocks - 1 - i),
  };
}

/**
 * Returns cache heads as kernels read them. An 8-bit cache is rounded repeatedly until appending changes
 * nothing.
 */
function rounded(kv: AttentionShape["kv"], heads: Float16Array<ArrayBuffer>, headDim: number) {
  if (kv === "f16") return heads;
  for (let head = 0; head < heads.length; head += headDim) {
    for (let d = 0; d < headDim; d += 32) {
      const values = heads.subarray(head + d, head + Math.min(d + 32, headDim));
      // Codes and a scale with few bits: appending rounds nothing.
      const scale = 2 ** -5 * (1 + head / headDim % 7 / 8);
      for (let i = 0; i < values.length; i++) {
        values[i] = scale * Math.max(-127, Math.min(127, Math.round(values[i] / scale)));
      }
      values[d % values.length] = 127 * scale;
    }
  }
  return heads;
}

/**
 * Returns the cache's keys and values: halves as they are, or appended to an 8-bit cache, one row per
 * position.
 */
async function cacheOf(of: Setting, made: ReturnType<typeof setting>): Promise<[GPUBuffer, GPUBuffer]> {
  const { device } = gpu!;
  const { shape } = of;
  const { heads, kvHeads, headDim, kv } = shape;
  const { keys, values, blocks } = made;
  if (kv === "f16") return [upload(device, keys, STORAGE), upload(device, values, STORAGE)];
  const tokens = blocks.length * KV_BLOCK_TOKENS;
  const [stride, k, v] = [(heads + 2 * kvHeads) * headDim, heads * headDim, (heads + kvHeads) * headDim];
  const rows = new Float32Array(tokens * stride);
  for (let position = 0; position < tokens; position++) {
    const block = blocks[Math.floor(position / KV_BLOCK_TOKENS)];
    for (let head = 0; head < kvHeads; head++) {
      const from = ((block * kvHeads + head) * KV_BLOCK_TOKENS + position % KV_BLOCK_TOKENS) * headDim;
      rows.set(keys.subarray(from, from + headDim), position * stride + k + head * headDim);
      rows.set(values.subarray(from, from + headDim), position * stride + v + head * headDim);
    }
  }
  const bytes = new Uint8Array(blocks.length * kvHeads * kvHeadBytes(shape));
  const made8 = [upload(device, bytes, STORAGE), upload(device, bytes, STORAGE)] as [GPUBuffer, GPUBuffer];
  const positions = Uint32Array.from({ length: 4 * tokens }, (_, i) => i % 4 === 1 ? i >> 2 : 0);
  const bindings = [
    upload(device, Uint32Array.of(stride, 0, k, v, 0, 0, 0, 0), UNIFORM),
    upload(device, rows, STORAGE),
    ...made8,
    upload(device, positions, STORAGE),
    upload(device, Uint32Array.from(blocks), STORAGE),
  ];
  const kernel = ropeKernel({ heads: shape, kv, rotated: 0, interleaved: false, norms: false });
  await dispatch(
    device,
    kernel,
    kernel.workgroups(1, tokens),
    bindings.map((buffer, i): [number, GPUBuffer] => [i, buffer]),
  );
  return made8;
}

/** Returns the outputs of all variants: single rows and tiles, whole and split contexts. */
async function allWays(of: Setting): Promise<Map<string, Float32Array>> {
  const { device } = gpu!;
  const { shape, first, rows } = of;
  const made = setting(of);
  const { tokens, q, stride, sinks, blocks } = made;
  const parts = contextParts(tokens);
  const width = shape.heads * shape.headDim;
  const tiles = spansOf([{ start: 0, length: Math.max(rows, 8) }], Math.min(rows, tileRows(shape))).tiles
    .map(([start, length]) => [start, Math.min(length, rows - start)]).filter(([, length]) => length > 0);
  // Single rows, tiles, bases of the second group, and the table.
  const [listed, bases] = [rows, 3 * rows];
  const table = 4 * rows;
  const tables = new Uint32Array(table + blocks.length);
  tables.set(Array.from({ length: rows }, (_, i) => i));
  tables.set(tiles.flat(), listed);
  tables.fill(table, bases, bases + rows);
  tables.set(blocks, table);
  const ofRows = Array.from({ length: rows }, (_, i) => [0, first + i, shape.group === 0 ? table : 0, 0]);
  const op = (list: number) => {
    const words = new Uint32Array([stride, 0, width, 0, 0, parts.count, list, bases]);
    new Float32Array(words.buffer)[4] = SCALE;
    return upload(device, words, UNIFORM);
  };
  const y = upload(device, new Float32Array(rows * width), STORAGE | COPY_SRC);
  const partials = upload(device, new Float32Array(partialFloats(shape.headDim, parts)).fill(NaN), STORAGE);
  const input = (data: ArrayBufferView<ArrayBuffer>) => upload(device, data, STORAGE);
  const [rowBuffer, query] = [input(Uint32Array.from(ofRows.flat())), input(q)];
  const weighed = shape.sinks ? [input(sinks)] : [];
  const cache = [...await cacheOf(of, made), rowBuffer, input(tables)];
  const [single, tiled] = [op(0), op(listed)];
  const found = new Map<string, Float32Array>();
  const run = async (kernel: Kernel, n: number, buffers: GPUBuffer[]) => {
    const bindings = buffers.map((buffer, i): [number, GPUBuffer] => [i, buffer]);
    await dispatch(device, kernel, kernel.workgroups(1, n, tokens), bindings);
  };
  for (
    const [name, make, uniforms, n] of [
      ["single", singleKernel, single, rows],
      ["tiles", tileKernel, tiled, tiles.length],
    ] as const
  ) {
    device.queue.writeBuffer(y, 0, new Float32Array(rows * width));
    await run(make(shape, parts), n, [uniforms, query, y, ...cache, ...weighed]);
    found.set(name, await read(device, y));
    device.queue.writeBuffer(y, 0, new Float32Array(rows * width));
    await run(make(shape, parts, true), n, [uniforms, query, partials, ...cache]);
    const merged = [uniforms, y, partials, rowBuffer, ...shape.gated ? [query] : [], ...weighed];
    await run(mergeKernel(shape, parts), rows, merged);
    found.set(`${name} shared`, await read(device, y));
  }
  for (const buffer of [single, tiled, query, y, partials, ...cache, ...weighed]) buffer.destroy();
  return found;
}

/** Returns softmax(scale q K) V in float64, of the positions that each row sees. */
function exact(of: Setting): Float64Array {
  const { shape: { heads, kvHeads, headDim, gated, window, sinks: sunk }, first, rows } = of;
  const { q, stride, keys, values, sinks, blocks } = setting(of);
  const out = new Float64Array(rows * heads * headDim);
  const slot = (position: number, head: number) =>
    ((blocks[Math.floor(position / KV_BLOCK_TOKENS)] * kvHeads + head) * KV_BLOCK_TOKENS +
      position % KV_BLOCK_TOKENS) * headDim;
  for (let row = 0; row < rows; row++) {
    const last = first + row;
    const seen = window === 0 ? 0 : Math.max(0, last + 1 - window);
    for (let head = 0; head < heads; head++) {
      const kv = Math.floor(head / (heads / kvHeads));
      const at = row * stride + head * headDim * (gated ? 2 : 1);
      const weights = Array.from({ length: last + 1 - seen }, (_, i) => {
        let score = 0;
        for (let d = 0; d < headDim; d++) score += q[at + d] * keys[slot(seen + i, kv) + d];
        return Math.exp(SCALE * score);
      });
      const total = weights.reduce((a, b) => a + b, sunk ? Math.exp(sinks[head]) : 0);
      for (let d = 0; d < headDim; d++) {
        const sum = weights.reduce((sum, w, i) => sum + w * values[slot(seen + i, kv) + d], 0);
        const gate = gated ? 1 + Math.exp(-q[at + headDim + d]) : 1;
        out[(row * heads + head) * headDim + d] = sum / total / gate;
      }
    }
  }
  return out;
}

const PLAIN: AttentionShape = {
  kv: "f16",
  heads: 4,
  kvHeads: 2,
  headDim: 64,
  gated: false,
  window: 0,
  sinks: false,
  group: 0,
};

for (
  const [name, shape, first, rows] of [
    ["heads of 64", PLAIN, 505, 20],
    ["gated heads of 256", { ...PLAIN, heads: 6, kvHeads: 1, headDim: 256, gated: true }, 253, 9],
    ["a window of 40 and sinks", { ...PLAIN, headDim: 32, window: 40, sinks: true, group: 1 }, 270, 30],
    ["a window beyond the context, heads of 80", { ...PLAIN, headDim: 80, window: 900 }, 0, 37],
    ["a cache in 8 bits, heads of 128", { ...PLAIN, kv: "q8_0", headDim: 128 }, 505, 20],
    [
      "a cache in 8 bits, heads of 80, a window and sinks",
      {
        ...PLAIN,
        kv: "q8_0",
        headDim: 80,
        window: 40,
        sinks: true,
      },
      60,
      12,
    ],
    ["nine heads over one, of 128", { ...PLAIN, heads: 9, kvHeads: 1, headDim: 128, sinks: true }, 260, 9],
  ] as const
) {
  test(`attention, ${name}: single rows, tiles and split contexts give the same, correct bits`, async () => {
    const of: Setting = { shape, first, rows };
    const found = await allWays(of);
    const right = exact(of);
    for (const [way, y] of found) {
      const error = nmse(y, right);
      assert(error < 1e-11, `${way}: NMSE ${error}`);
      assertEquals(y, found.get("single"), way);
    }
  });
}

Deno.test("attention spans: few rows of a sequence are single, more form tiles", () => {
  const sequences = [{ start: 0, length: 1 }, { start: 1, length: 70 }, { start: 71, length: 3 }];
  assertEquals(spansOf(sequences, 32), { singles: [0, 71, 72, 73], tiles: [[1, 32], [33, 32], [65, 6]] });
});

Deno.test("attention tiles: hold 128 queries of heads up to 128 dimensions", () => {
  const shape = (heads: number, kvHeads: number, headDim: number) => ({
    heads,
    kvHeads,
    headDim,
    gated: false,
  });
  assertEquals(tileRows(shape(32, 8, 128)), 32);
  assertEquals(tileRows(shape(14, 2, 64)), 18);
  assertEquals(tileRows(shape(24, 4, 256)), 10);
  assertEquals([16, 32, 64, 80, 128, 256].map((d) => scoreLanes(shape(1, 1, d))), [2, 2, 2, 4, 4, 8]);
  assertEquals(headsTogether(shape(20, 1, 128), 8), { together: 7, splits: 3 });
});

Deno.test("attention: splits contexts only when they are long and rows are few", () => {
  const heads = { heads: 32, kvHeads: 8, headDim: 128, gated: false };
  const parts = contextParts(16_384);
  assertEquals(parts, { length: 256, count: 64 });
  assertEquals(contextParts(131_072), { length: 2048, count: 64 });
  assertEquals(contextParts(40), { length: 256, count: 1 });
  const shares = (singles: number, tiles: number, step: number, context = 4096) =>
    sharesContext(heads, parts, { singles, tiles, step, context });
  assertEquals([1, 31, 32].map((rows) => shares(rows, 0, rows)), [true, true, false]);
  assertEquals([32, 33].map((rows) => shares(0, 2, rows)), [true, false]);
  assertEquals([512, 513].map((context) => shares(1, 0, 1, context)), [false, true]);
});
