/**
 * One model with windows, full attention, shared caches and recurrent states of two shapes. It must match float64, and be bit-identical in
 * every chunking and batch, also when other sequences reuse the blocks outside a window.
 */
import { assert, assertEquals } from "@std/assert";
import type { WindowTable } from "../../engine/backend/backend.ts";
import { firstSeen } from "../../engine/cache/kv_blocks.ts";
import { stateBytes } from "../../engine/plan/plan.ts";
import { KV_TYPES, type KvType } from "../../engine/mod.ts";
import { instructionSets, KernelModel, type Run, shuffledBlocks } from "../../testing/kernel_model.ts";
import {
  distance,
  exactLogits,
  HYBRID_LAYERS,
  mixedFile,
  mixedPlan,
  mixedPlanOf,
  prompt,
  VOCABULARY,
} from "../../testing/mixed_model.ts";
import { EXACT } from "../../testing/kv_rounding.ts";

const { bytes, values } = mixedFile(HYBRID_LAYERS);
const PLAN = await mixedPlanOf(HYBRID_LAYERS);
const GROUPS = PLAN.kv.windows.length;
const SIZE = { kvBlocks: 40, maxRows: 256, maxLogitRows: 16 };
const EVERY = Array.from({ length: VOCABULARY }, (_, i) => i);
const WANTED = [{ candidates: 1, probe: EVERY }];

const open = (kvType: KvType = "f16", isa?: string, threads = 2) =>
  KernelModel.loadAs(mixedPlan(HYBRID_LAYERS), bytes, SIZE, { isa, threads, kvType });

async function logits(model: KernelModel, run: Omit<Run, "wanted">): Promise<Float32Array> {
  const [[answer]] = await model.step([{ ...run, wanted: WANTED }]);
  return answer.probed;
}

Deno.test("windows among recurrent layers: layer groups and states match the layers", () => {
  assertEquals(PLAN.kv.windows, [0, 140, 5]);
  const f32s = (keyHeads: number, valueHeads: number, dim: number) =>
    3 * (2 * keyHeads + valueHeads) * dim + valueHeads * dim * dim;
  assertEquals(stateBytes(PLAN), 4 * (f32s(2, 4, 32) + f32s(1, 2, 64)));
});

Deno.test("windows among recurrent layers: logits match float64 on every instruction set", async () => {
  const cases = [1, 6, 40, 150].map((n) => prompt(n, `length ${n}`));
  const exact = cases.map((tokens) => exactLogits(values, tokens, HYBRID_LAYERS, EXACT).at(-1)!);
  for (const isa of instructionSets()) {
    using model = await open("f16", isa);
    for (const [i, tokens] of cases.entries()) {
      const error = distance(await logits(model, { tokens, blockTable: shuffledBlocks(0, 8) }), exact[i]);
      assert(error < 5e-4, `${isa}, ${tokens.length} tokens: ${error}`);
    }
  }
});

/** Block tables over a pool that frees blocks as soon as the next row cannot see them. */
class Tables {
  readonly #free: number[];
  readonly #blocks: number[][] = PLAN.kv.windows.map(() => []);
  readonly #first: number[] = PLAN.kv.windows.map(() => 0);

  constructor(first: number, count: number) {
    this.#free = [...shuffledBlocks(first, count)];
  }

  /** Tables for rows up to `end`. Frees the blocks that the row after `cached` cannot see. */
  step(cached: number, end: number): { blockTable: Int32Array; windowTables: WindowTable[] } {
    const tables = PLAN.kv.windows.map((window, group): WindowTable => {
      const [blocks, seen] = [this.#blocks[group], firstSeen(window, cached)];
      for (; this.#first[group] < seen; this.#first[group]++) this.#free.push(blocks[this.#first[group]]);
      while (blocks.length * 32 < end) blocks.push(this.#free.pop()!);
      return { first: seen, blocks: Int32Array.from(blocks.slice(seen)) };
    });
    return { blockTable: tables[0].blocks, windowTables: tables.slice(1) };
  }
}

for (const kvType of KV_TYPES) {
  Deno.test(`windows in ${kvType}: blocks outside the window may be overwritten, in every chunking`, async () => {
    const tokens = prompt(250, "cut");
    using model = await open(kvType);
    const whole = await logits(model, { tokens, blockTable: shuffledBlocks(0, 8) });
    const cuts = [[1], [31, 32, 33, 129], [128, 139, 140, 141], [5, 64, 249]];
    for (const threads of [1, 3]) {
      using other = await open(kvType, undefined, threads);
      for (const ends of [...cuts, Array.from({ length: 40 }, (_, i) => 6 * (i + 1))]) {
        // Freed blocks are reused at once, and a neighbour writes to its own blocks in every step.
        const [mine, company] = [new Tables(0, 24), new Tables(40, 40)];
        let cached = 0;
        for (const end of [...ends, tokens.length]) {
          const part = { tokens: tokens.slice(cached, end), cached, slot: 0, ...mine.step(cached, end) };
          const neighbour = {
            tokens: prompt(end - cached, "neighbour").slice(0, 6),
            slot: 1,
            ...company.step(0, Math.min(6, end - cached)),
          };
          const last = end === tokens.length;
          const answers = await other.step([neighbour, { ...part, wanted: last ? WANTED : [] }]);
          if (last) assertEquals(answers[1][0].probed, whole, `cut at ${ends}, ${threads} threads`);
          cached = end;
        }
      }
    }
  });
}

Deno.test("windows: sequences that share blocks get the answers that they get alone, inside and beyond the window", async () => {
  using model = await open();
  const common = prompt(160, "common");
  const shared = shuffledBlocks(0, 5);
  await model.step([{ tokens: common, blockTable: shared, saves: [{ after: 160, slot: 9 }] }]);
  const runs = [3, 9, 27].map((token, i): Run => ({
    tokens: [token],
    cached: common.length,
    blockTable: Int32Array.of(...shared, 10 + i),
    slot: 1 + i,
    source: 9,
    wanted: WANTED,
  }));
  const alone: Float32Array[] = [];
  for (const run of runs) alone.push(await logits(model, run));
  // A sequence beside them has lost its first blocks in every window.
  const far: Run = {
    ...runs[0],
    slot: 5,
    blockTable: Int32Array.of(...shared, 20).map((block) => block * GROUPS),
    windowTables: PLAN.kv.windows.slice(1).map((window, i) => {
      const first = firstSeen(window, common.length);
      const blocks = Int32Array.of(...shared, 20).map((block) => block * GROUPS + i + 1);
      return { first, blocks: blocks.slice(first) };
    }),
  };
  const together = await model.step([...runs, far]);
  assertEquals(together.map(([{ probed }]) => probed), [...alone, alone[0]]);
});
