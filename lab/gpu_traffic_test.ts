import { assert, assertEquals } from "@std/assert";
import type { KvType } from "../engine/backend/backend.ts";
import { GPU_TYPES } from "../engine/backend/webgpu/kernels/formats/registry.ts";
import { withKvType } from "../engine/plan/plan.ts";
import { fullTier } from "../testing/tier.ts";
import { inType, planOf, SHAPES } from "./gpu_shapes.ts";
import { type CountedStep, countStep } from "./gpu_traffic.ts";

/** One layer of Qwen3-4B, and a short vocabulary. */
const SHAPE = { ...inType("Q4_0"), layers: 1, vocabulary: 4096 };

interface Ceilings {
  readonly name: string;
  readonly step: CountedStep;
  readonly kv?: KvType;
  /** Bytes that dispatches of a kind move, over the least that they must: at most so many times, and hardly fewer. */
  readonly most: Readonly<Record<string, number>>;
}

const TOKEN: CountedStep = { sequences: 1, rows: 1, cached: 4095 };
const CEILINGS: readonly Ceilings[] = [
  { name: "a token", step: TOKEN, most: { attention: 1.07, matmul: 1.18 } },
  { name: "a token after a cache in q8_0", step: TOKEN, kv: "q8_0", most: { attention: 1.16 } },
  {
    name: "sixteen tokens",
    step: { sequences: 16, rows: 1, cached: 1023 },
    most: { attention: 1.07, matmul: 2.7 },
  },
  {
    name: "a prompt",
    step: { sequences: 1, rows: 512, cached: 3584 },
    most: { attention: 8.2, matmul: 11.5 },
  },
];

for (const { name, step, kv = "f16", most } of CEILINGS) {
  fullTier.test(`${name} at 4B's shape: kernels load no more than they did`, async () => {
    const only = Object.keys(most);
    const plan = withKvType(planOf(SHAPE), kv);
    const rows = await countStep(plan, step, { f16: true, dot4: true }, "f32", { only, samples: 1 });
    assertEquals(rows.map(({ op }) => op).sort(), [...only, "all"].sort());
    for (const [op, ceiling] of Object.entries(most)) {
      const { loaded, stored, floor } = rows.find((row) => row.op === op)!;
      const times = (loaded + stored) / floor!;
      assert(times <= ceiling, `${op}: ${times.toFixed(3)} times the floor; at most ${ceiling}`);
      assert(
        times > 0.9 * ceiling,
        `${op}: ${times.toFixed(3)} times the floor: lower the ceiling of ${ceiling}`,
      );
    }
  });
}

/** The whole models, and the larger in all other formats. */
const WHOLE = [
  ...SHAPES,
  ...GPU_TYPES.filter((type) => SHAPES.every((shape) => shape.type !== type)).map(inType),
];
for (const shape of WHOLE) {
  fullTier.test(`a token of the whole ${shape.name} in ${shape.type} moves at most 1.15 times what it must`, async () => {
    const rows = await countStep(planOf(shape), TOKEN, { f16: true, dot4: true }, "f32", { samples: 1 });
    const { loaded, stored, floor } = rows.at(-1)!;
    const times = (loaded + stored) / floor!;
    assert(times <= 1.15, `${times.toFixed(3)} times the floor`);
  });
}
