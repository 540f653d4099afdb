import { assert, assertEquals } from "@std/assert";
import { planOf, SHAPES } from "./gpu_shapes.ts";
import { type CountedStep, countStep } from "./gpu_traffic.ts";

/** One layer of Qwen3-4B, and a short vocabulary. */
const SHAPE = { ...SHAPES.find(({ type }) => type === "Q4_0")!, layers: 1, vocabulary: 4096 };

/** Bytes that dispatches of a kind move, over the least that they must: at most so many times, and hardly fewer. */
const CEILINGS: readonly [string, CountedStep, Readonly<Record<string, number>>][] = [
  ["a token", { sequences: 1, rows: 1, cached: 4095 }, { attention: 1.07, matmul: 1.18 }],
  ["sixteen tokens", { sequences: 16, rows: 1, cached: 1023 }, { attention: 1.07, matmul: 2.7 }],
  ["a prompt", { sequences: 1, rows: 512, cached: 3584 }, { attention: 8.2, matmul: 11.5 }],
];

for (const [name, step, ceilings] of CEILINGS) {
  Deno.test(`${name} at 4B's shape: kernels load no more than they did`, async () => {
    const only = Object.keys(ceilings);
    const rows = await countStep(planOf(SHAPE), step, { f16: true }, "f32", { only, samples: 1 });
    assertEquals(rows.map(({ op }) => op).sort(), [...only, "all"].sort());
    for (const [op, most] of Object.entries(ceilings)) {
      const { loaded, stored, floor } = rows.find((row) => row.op === op)!;
      const times = (loaded + stored) / floor!;
      assert(times <= most, `${op}: ${times.toFixed(3)} times the floor; at most ${most}`);
      assert(times > 0.9 * most, `${op}: ${times.toFixed(3)} times the floor: lower the ceiling of ${most}`);
    }
  });
}
