/** Tests `bench --image`: the speed of towers, and the speed limit with which it is compared. */
import { assert, assertEquals } from "@std/assert";
import { opFloor } from "../../../bench/floors.ts";
import { benchTower } from "../../../bench/tower.ts";
import { openGguf } from "../../../engine/gguf/reader.ts";
import { readTower } from "../../../engine/vision/shape.ts";
import { buildTower } from "../../../engine/vision/tower_plan.ts";
import { fullTier } from "../../../testing/tier.ts";
import { TOWERS, withFiles } from "./files.ts";

Deno.test("speed limits: a tower's limit counts products of patches and of merged rows, and attention", async () => {
  await withFiles({ tower: "qwen3vl", type: "F32", seed: 1 }, async ({ tower }) => {
    const file = await openGguf(tower);
    const shape = readTower(file);
    const plan = buildTower(file, shape);
    const limits = { readGbps: Infinity, int8Gops: 1, f32Gflops: 1 };
    const step = { sequences: 1, rows: 24, cached: 0, logitRows: 0, pooledRows: 6 };
    const seconds = plan.ops.reduce((sum, op) => sum + opFloor(plan, op, () => 0, step, limits), 0);
    const { width, feedForward, layers, deep } = TOWERS.qwen3vl;
    const layer = 24 * width * (4 * width + 2 * feedForward) + 2 * 24 * 24 * width;
    const merger = 6 * 4 * width * (4 * width + shape.projection);
    const patches = 24 * 2 * 3 * 16 * 16 * width;
    const products = patches + layers * layer + (1 + deep.length) * merger;
    assertEquals(Math.round(1e9 * seconds), 2 * products);
  });
});

fullTier.test("bench: measures a tower on an image, with a profile", async () => {
  await withFiles({ tower: "idefics3", type: "Q8_0", seed: 1 }, async ({ tower }) => {
    const options = { model: tower, threads: 1, sequences: [], profile: true };
    const { rows: [row], profile } = await benchTower(options, { width: 128, height: 64 });
    assertEquals([row.work, row.sequences, row.context], ["image", 3, 16]); // two tiles and the whole image
    assert(row.tokensPerSecond > 0 && row.shareOfLimit > 0, JSON.stringify(row));
    assert(profile.some(({ op, ms }) => op === "text_attention" && ms > 0), JSON.stringify(profile));
  });
});
