import { assert, assertEquals } from "@std/assert";
import { blocksOfSequence } from "../cache/kv_blocks.ts";
import { groupKvLayers } from "./kv_groups.ts";
import type { PlanOp } from "./ops/registry.ts";
import { kvBlockBytes, kvBytesPerToken, type Plan } from "./plan.ts";

interface Layer {
  readonly heads: number;
  readonly headDim: number;
  /** Window of the layer in tokens; 0 means no window. */
  readonly window: number;
}

function plan(layers: readonly Layer[], more: readonly { layer: number; window: number }[] = []) {
  const readers = [...layers.map(({ window }, layer) => ({ layer, window })), ...more];
  const ops = readers.map(({ layer, window }): PlanOp => {
    const { heads: kvHeads, headDim } = layers[layer];
    const heads = { layer, heads: kvHeads, kvHeads, headDim, gated: false };
    return {
      op: "attention",
      q: 0,
      out: 0,
      heads,
      scale: 1,
      window,
      chunked: false,
      softcap: 0,
      causal: false,
    };
  });
  const kv = { type: "f16" as const, ...groupKvLayers(layers, ops) };
  // Share of a block that is allocated but unused.
  const waste = kvBlockBytes({ kv } as Plan) / 32 * kv.windows.length / kvBytesPerToken({ kv } as Plan) - 1;
  return { ...kv, waste };
}

const repeated = (count: number, of: (i: number) => Layer) => Array.from({ length: count }, (_, i) => of(i));

Deno.test("kv groups: layers without windows form one group and waste nothing", () => {
  const { windows, layers, waste } = plan([
    { heads: 2, headDim: 64, window: 0 },
    { heads: 8, headDim: 128, window: 0 },
    { heads: 1, headDim: 16, window: 0 },
  ]);
  assertEquals([windows, layers.map(({ group }) => group), waste], [[0], [0, 0, 0], 0]);
});

Deno.test("kv groups: a plan without attention has one group without layers", () => {
  const { windows, layers } = plan([]);
  assertEquals([windows, layers], [[0], []]);
});

Deno.test("kv groups: makes two groups when every second layer has a window", () => {
  const { windows, layers, waste } = plan(
    repeated(24, (i) => ({ heads: 8, headDim: 64, window: i % 2 === 0 ? 128 : 0 })),
  );
  assertEquals([windows, waste], [[0, 128], 0]);
  assertEquals(layers.slice(0, 3).map(({ group }) => group), [1, 0, 1]);
});

Deno.test("kv groups: five windowed layers per full layer make groups of similar sizes", () => {
  const five = (count: number) =>
    plan(repeated(count, (i) => ({ heads: 4, headDim: 256, window: i % 6 === 5 ? 0 : 512 })));
  assertEquals([five(30).windows, five(30).waste], [[0, 512, 512, 512, 512, 512], 0]);
  for (const count of [18, 26, 34, 48, 62]) {
    const { windows, waste } = five(count);
    assert(windows.length <= 14 && waste < 0.08, `${count} layers: ${windows.length} groups, ${waste}`);
  }
});

Deno.test("kv groups: 34 layers of Gemma 3's shape hold 32,768 tokens in a fifth of the memory without windows", () => {
  const layers = repeated(34, (i) => ({ heads: 4, headDim: 256, window: i % 6 === 5 ? 0 : 1024 }));
  const bytes = (of: readonly Layer[]) => {
    const kv = plan(of);
    const demand = { windows: kv.windows.slice(1), maxRows: 512 };
    return blocksOfSequence(demand, 32_768) * kvBlockBytes({ kv } as unknown as Plan);
  };
  assertEquals(bytes(layers.map((layer) => ({ ...layer, window: 0 }))), 34 * 32_768 * 4112);
  assertEquals(bytes(layers), (1024 + 6 * 49) * 32 * 5 * 4112);
});

Deno.test("kv groups: waste little for mixed windows and sizes, and keep one window per group", () => {
  const shapes = repeated(
    35,
    (i) =>
      i % 5 === 4
        ? { heads: 2, headDim: 512, window: 0 }
        : { heads: 8, headDim: 256, window: i % 5 === 0 ? 64 : 1024 },
  );
  const { windows, layers, waste } = plan(shapes);
  assert(waste < 0.12, `${waste}`);
  layers.forEach(({ group }, i) => assertEquals(windows[group], shapes[i].window));
});

Deno.test("kv groups: a cache that several layers read keeps the blocks of the largest window among them", () => {
  const layers = repeated(3, () => ({ heads: 2, headDim: 64, window: 100 }));
  assertEquals(plan(layers, [{ layer: 1, window: 0 }]).windows, [0, 100, 100]);
  assertEquals(plan(layers, [{ layer: 1, window: 0 }, { layer: 2, window: 300 }]).windows, [0, 300, 100]);
});

Deno.test("kv groups: if all layers have windows, layers with the largest window keep all blocks", () => {
  assertEquals(
    plan(repeated(4, (i) => ({ heads: 2, headDim: 64, window: i % 2 === 0 ? 100 : 50 }))).windows,
    [0, 50],
  );
  assertEquals(plan([{ heads: 2, headDim: 64, window: 100 }]).windows, [0]);
});
