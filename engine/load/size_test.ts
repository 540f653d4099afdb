import { assert, assertAlmostEquals, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { buildPlan } from "../architectures/registry.ts";
import { freeMemory } from "./free_memory.ts";
import { MemoryError } from "./memory_error.ts";
import { groupKvLayers } from "../plan/kv_groups.ts";
import type { Plan } from "../plan/plan.ts";
import { smallModel } from "../plan/testing.ts";
import { longestSequence } from "../cache/kv_blocks.ts";
import { type EngineSize, engineSize, identityContext, type SizeOptions, usualContext } from "./size.ts";
import type { MemoryBounds } from "./memory_error.ts";

/** Model with 528 bytes of KV per token: eight keys and values of 32 dimensions in 16 bits, with one scale each. */
const dense = { ...buildPlan(smallModel({ architecture: "llama", type: "Q8_0" })), contextLength: 8192 };
const hybrid = { ...buildPlan(smallModel({ architecture: "qwen35", type: "Q8_0" })), contextLength: 8192 };
const BLOCK = 32 * 528;
/** Model with the two layers of `dense`, one with a window of 64 tokens: half of those bytes each. */
const windowed = withWindow(dense, 64);

function withWindow(plan: Plan, window: number): Plan {
  const ops = plan.ops.map((op) => op.op === "attention" && op.heads.layer === 0 ? { ...op, window } : op);
  return { ...plan, ops, kv: { ...plan.kv, ...groupKvLayers(plan.kv.layers, ops) } };
}
const bounds: MemoryBounds = { free: 1000e6, weights: 200e6 };

function refusal(options: SizeOptions, within = bounds, plan = dense): string {
  return assertThrows(() => engineSize(plan, options, within), MemoryError).message;
}

Deno.test("engineSize: takes memory for all sequences if that much is free or free memory is unknown", () => {
  const size = engineSize(dense, { contextLength: 4096, parallel: 8 }, bounds);
  assertEquals([size.limits.kvBlocks, size.memory.kv], [1024, 1024 * BLOCK]);
  assertEquals(engineSize(dense, { contextLength: 4096, parallel: 1024 }).limits.kvBlocks, 131_072);
  assertEquals(engineSize(dense, { parallel: 4, kvShare: 1 }).limits.kvBlocks, 512);
});

Deno.test("engineSize: refuses more than the free memory, and the message states the sums", () => {
  const message = refusal({ contextLength: 8192, parallel: 1024 });
  const lines = message.split("\n");
  assertMatch(
    lines[0],
    /^The model needs 4,6\d\d\.\d MB of memory with these settings, and 1,000\.0 MB are free for it:$/,
  );
  assertMatch(lines[1], /^ {2}weights {9,}200\.0 MB$/);
  assertMatch(lines[2], /^ {2}activations +\d+\.\d MB$/);
  assertMatch(lines[3], /^ {2}KV cache +4,429\.2 MB {2}\(1024 sequences of 8192 tokens, in 16 bits\)$/);
  assertMatch(lines[4], /^ {2}What fits: parallel: \d+, or ctx: \d+, or kvBytes: \d+000000$/);
  const terms = lines.slice(0, 4).map((line) => Number(/([\d,]+\.\d) MB/.exec(line)![1].replaceAll(",", "")));
  assert(Math.abs(terms[0] - terms[1] - terms[2] - terms[3]) < 0.2, message);
});

const OPTIONS: Record<string, (n: number) => SizeOptions> = {
  parallel: (n) => ({ parallel: n }),
  ctx: (n) => ({ contextLength: n }),
  kvBytes: (n) => ({ kvBytes: n }),
};
const STEP: Record<string, number> = { parallel: 1, ctx: 32, kvBytes: 1e6 };

Deno.test("engineSize: each setting that the error suggests fits, and the next larger value does not", () => {
  let offers = 0;
  let combinations = 0;
  for (const plan of [dense, hybrid, windowed]) {
    for (const free of [210e6, 215e6, 260e6, 400e6, 1000e6, 3000e6]) {
      const all: SizeOptions[] = [
        { parallel: 1024 },
        { parallel: 1024, contextLength: 8192 },
        { parallel: 100, contextLength: 8192, kvBytes: 2000e6 },
        { parallel: 4, contextLength: 8192, kvBytes: 5000e6 },
        { parallel: 64, contextLength: 8192, kvShare: 1 },
      ];
      for (const options of all) {
        const within = { free, weights: 200e6 };
        let message = "";
        try {
          engineSize(plan, options, within);
        } catch (error) {
          if (!(error instanceof MemoryError)) throw error;
          message = error.message.split("\n").at(-1)!;
        }
        for (const offer of message.split(", or ")) {
          const given = [...offer.matchAll(/(\w+): (\d+)/g)].map(([, name, n]) => [name, Number(n)] as const);
          const changed = given.map(([name, n]) => OPTIONS[name](n));
          if (changed.length > 0) engineSize(plan, Object.assign({}, options, ...changed), within);
          if (changed.length > 1) combinations++;
          if (changed.length !== 1) continue;
          const [[name, n]] = given;
          refusal({ ...options, ...OPTIONS[name](n + STEP[name]) }, within, plan);
          offers++;
        }
      }
    }
  }
  assert(offers > 30 && combinations > 0, `${offers} and ${combinations}`);
});

Deno.test("engineSize: a default shrinks to the free memory, down to one sequence", () => {
  const size = (free: number, kvShare = 1) =>
    engineSize(dense, { parallel: 64, contextLength: 8192, kvShare }, { free, weights: 200e6 }).limits
      .kvBlocks;
  assertEquals(size(1000e6), 64 * 256);
  const some = size(400e6);
  assert(some > 256 && some < 64 * 256 && some * BLOCK < 200e6, `${some}`);
  assert(Math.abs(size(400e6, 0.5) - some / 2) <= 1);
  assertEquals(size(400e6, 0.001), 256);
  assertMatch(
    refusal({ parallel: 64, contextLength: 8192, kvShare: 1 }, { free: 203e6, weights: 200e6 }),
    /the least/,
  );
});

Deno.test("engineSize: a given KV size is used completely, or refused", () => {
  const size = (kvBytes: number) => engineSize(dense, { parallel: 2, contextLength: 1024, kvBytes }, bounds);
  assertEquals(size(700e6).limits.kvBlocks, Math.floor(700e6 / BLOCK));
  assertEquals(size(32 * BLOCK).limits.kvBlocks, 32);
  assertEquals(
    refusal({ parallel: 2, contextLength: 1024, kvBytes: 31 * BLOCK }),
    "A KV cache of 0.5 MB holds 992 tokens, and one sequence may have 1024 (ctx). What fits: kvBytes: 1000000, or ctx: 992",
  );
  assertMatch(
    refusal({ kvBytes: 900e6 }),
    /KV cache +900\.\d MB {2}\(kvBytes, in 16 bits\)\n {2}What fits: kvBytes: 79\d000000$/,
  );
});

Deno.test("engineSize: a memory share of 0 allows one sequence, and sets no limit if free memory is unknown", () => {
  const blocks = (kvShare: number, within?: MemoryBounds) =>
    engineSize(dense, { parallel: 4, contextLength: 1024, kvShare }, within).limits.kvBlocks;
  assertEquals([blocks(0, bounds), blocks(0), blocks(1)], [32, 128, 128]);
});

Deno.test("engineSize: window layers take blocks for the window and a step's rows, whatever the context", () => {
  // 63 tokens before 512 rows take at most 19 blocks, wherever these begin.
  const size = engineSize(windowed, { parallel: 2, contextLength: 4096 }, bounds);
  assertEquals([size.limits.kvBlocks, size.limits.kvWindows], [2 * (128 + 19), [64]]);
  assertEquals(size.memory.kv, 2 * (128 + 19) * BLOCK / 2);
  assertEquals(
    engineSize(windowed, { parallel: 2, contextLength: 512 }, bounds).limits.kvBlocks,
    2 * (16 + 16),
  );
  assertEquals(
    refusal({ contextLength: 4096, kvBytes: (100 + 19) * BLOCK / 2 }, bounds, windowed),
    "A KV cache of 1.0 MB holds 3200 tokens, and one sequence may have 4096 (ctx). What fits: kvBytes: 2000000, or ctx: 3200",
  );
  engineSize(windowed, { contextLength: 3200, kvBytes: (100 + 19) * BLOCK / 2 }, bounds);
});

Deno.test("engineSize: refuses weights that do not fit with any setting", () => {
  const message = refusal({}, { free: 1e9, weights: 2e9 });
  assertMatch(
    message,
    /\n {2}No setting fits: free some memory, or use a smaller model or one in fewer bits$/,
  );
});

Deno.test("engineSize: recurrent states count towards the memory", () => {
  const message = refusal({ parallel: 1024 }, { free: 300e6, weights: 200e6 }, hybrid);
  assertMatch(message, /\n {2}recurrent states +[\d,.]+ MB\n {2}KV cache /);
});

Deno.test("freeMemory: returns the free memory of the machine or control group, minus a reserve", () => {
  const GB = 2 ** 30;
  const of = (available: number, limit: number, resident: number) =>
    freeMemory({ available, limit, resident })! / GB;
  assertEquals(of(24 * GB, 2 ** 63, GB / 8), 23); // no limit: the reserve is 1 GB
  assertEquals(of(5 * GB, 2 ** 63, GB), 4.5); // the reserve is a tenth of the memory
  assertAlmostEquals(of(24 * GB, 2 * GB, GB), 0.9, 1e-6);
  assertEquals(of(24 * GB, GB, 2 * GB), 0);
  assertEquals(of(24 * GB, 0, GB / 8), 23); // sandbox without /sys: the limit is unreadable
});

Deno.test("engineSize: a model without KV layers gets blocks for its sequences, whatever the KV size", () => {
  const none = { ...hybrid, kv: { ...hybrid.kv, layers: [], windows: [0] } };
  const options: SizeOptions[] = [{}, { kvBytes: 1e9 }, { kvShare: 0.25 }];
  for (const more of options) {
    const size = engineSize(none, { contextLength: 64, parallel: 2, ...more }, bounds);
    assertEquals([size.limits.kvBlocks, size.memory.kv], [4, 0]);
  }
});

const long = { ...dense, contextLength: 131_072 };
const LONG_BLOCKS = 131_072 / 32;
/** Returns the memory for this many blocks, the weights, and the activations of `long`. */
function roomFor(blocks: number): MemoryBounds {
  const { activations } = engineSize(long, {}).memory;
  return { free: 200e6 + activations + blocks * BLOCK, weights: 200e6 };
}

Deno.test("default context: is the model's own if one sequence of it fits into the free memory", () => {
  const size = engineSize(long, {}, roomFor(LONG_BLOCKS));
  assertEquals([size.contextLength, size.limits.kvBlocks, size.cut], [131_072, LONG_BLOCKS, undefined]);
  assertEquals(engineSize(dense, {}, roomFor(LONG_BLOCKS)).contextLength, 8192);
});

Deno.test("default context: is as long as memory allows, and `cut` reports what the model's own context would need", () => {
  const size = engineSize(long, {}, roomFor(1000));
  assertEquals([size.contextLength, size.limits.kvBlocks], [32_000, 1000]);
  assertEquals(size.cut, { own: 131_072, ownBytes: LONG_BLOCKS * BLOCK, available: 1000 * BLOCK });
});

Deno.test("default context: is the capacity of the default KV cache if free memory is unknown or must not be used", () => {
  const chosen = ({ contextLength, limits }: EngineSize) => [contextLength, limits.kvBlocks, limits.kvCached];
  const usual = [4 * 4096, 4 * 128, undefined];
  assertEquals(chosen(engineSize(long, {})), usual);
  assertEquals(chosen(engineSize(long, { spareBytes: 0 }, roomFor(LONG_BLOCKS))), usual);
  assertEquals(chosen(engineSize(long, {}, { free: Infinity, weights: 1 })), usual);
  assertEquals(chosen(engineSize(long, { spareBytes: 10 * BLOCK }, roomFor(9000))), [
    522 * 32,
    522,
    undefined,
  ]);
  assertEquals(chosen(engineSize(long, { parallel: 1 })), [4096, 128, undefined]);
});

Deno.test("default context: several long sequences may share a quarter of the free memory, one sequence may have all", () => {
  const limits = (blocks: number) => engineSize(long, {}, roomFor(blocks)).limits;
  assertEquals(limits(40 * LONG_BLOCKS).kvBlocks, 4 * LONG_BLOCKS);
  assertEquals(limits(8 * LONG_BLOCKS).kvBlocks, 2 * LONG_BLOCKS);
  assertEquals(limits(8 * LONG_BLOCKS).kvCached, undefined);
  assertEquals([limits(4000).kvBlocks, limits(4000).kvCached], [4000, 1000]);
  assertEquals([limits(600).kvBlocks, limits(600).kvCached], [600, 512]);
});

Deno.test("default context: does not exceed a given KV size, and one sequence may use all of that size", () => {
  const size = (kvBytes: number) => engineSize(long, { kvBytes }, roomFor(9000));
  assertEquals([size(700 * BLOCK).contextLength, size(700 * BLOCK).limits.kvBlocks], [22_400, 700]);
  assertEquals(size(8000 * BLOCK).contextLength, 131_072);
});

Deno.test("default context: takes only free memory, and refuses a model only if 4,096 tokens per sequence do not fit", () => {
  const outcome = (plan: Plan, options: SizeOptions, within: MemoryBounds) => {
    try {
      return engineSize(plan, options, within);
    } catch (error) {
      if (error instanceof MemoryError) return error.message;
      throw error;
    }
  };
  let [refused, longer] = [0, 0];
  for (const model of [dense, hybrid, windowed]) {
    for (const contextLength of [2048, 8192, 131_072, 16_777_216]) {
      const plan = { ...model, contextLength };
      for (const free of [201e6, 203e6, 206e6, 215e6, 260e6, 1000e6, 30e9]) {
        for (
          const more of [{}, { parallel: 1 }, { parallel: 64 }, { kvShare: 0.25, parallel: 64 }, {
            kvBytes: 9e6,
          }]
        ) {
          const within = { free, weights: 200e6 };
          const [now, usual] = [
            outcome(plan, more, within),
            outcome(plan, { ...more, contextLength: 4096 }, within),
          ];
          if (typeof now === "string" || typeof usual === "string") {
            assertEquals(now, usual);
            refused++;
            continue;
          }
          const { limits, memory, contextLength: chosen } = now;
          const { kvBlocks, kvWindows: windows = [], maxRows, kvCached = kvBlocks } = limits;
          assert(within.weights + memory.activations + memory.states + memory.kv <= free);
          assert(kvBlocks >= usual.limits.kvBlocks && kvCached >= usual.limits.kvBlocks);
          assert(chosen >= usual.contextLength && chosen <= contextLength);
          assert(longestSequence({ windows, maxRows }, kvBlocks) >= chosen, "one sequence always fits");
          assertEquals(now.cut === undefined, chosen === contextLength);
          if (chosen > usual.contextLength) longer++;
        }
      }
    }
  }
  assert(refused > 20 && longer > 100, `${refused} refused, ${longer} longer`);
});

Deno.test("default context: is the model's own for a model without KV layers", () => {
  const none = { ...hybrid, contextLength: 1_048_576, kv: { ...hybrid.kv, layers: [], windows: [0] } };
  const size = engineSize(none, {}, bounds);
  assertEquals([size.contextLength, size.memory.kv, size.cut], [1_048_576, 0, undefined]);
});

Deno.test("identity: a default context counts as 4,096 tokens, unless the context decides LongRoPE's factors", () => {
  const angles = { frequencies: new Float64Array(1), magnitude: 1 };
  const roped = (beyond: number) => ({
    ...long,
    rope: [{ ...angles, long: { beyond, frequencies: angles.frequencies } }],
  });
  assertEquals([identityContext(long), identityContext(long, 9000), identityContext(dense, 9000)], [
    4096,
    9000,
    8192,
  ]);
  assertEquals([identityContext(roped(4096)), identityContext(roped(4096), 4096)], [131_072, 4096]);
  assertEquals(identityContext(roped(131_072)), 4096);
  assertEquals([usualContext({ ...long, contextLength: 512 }), usualContext(long)], [512, 4096]);
});
