/** Compares the rows of a seeded tower with float64. */
import { assert, assertEquals } from "@std/assert";
import type { PromptImage } from "../../../engine/api/request.ts";
import { describeModel } from "../../../engine/load/describe.ts";
import { measureTower } from "../../../engine/load/load_tower.ts";
import { exactTower, Tensors } from "./exact.ts";
import { DEEP, type Files, picture, prepared, withFiles } from "./files.ts";

/** Returns the rows that the native tower computes, in parts of the decoder's width. */
async function towerRows(image: PromptImage, { model, tower }: Files): Promise<Float32Array> {
  const measured = await measureTower(await describeModel({ model }), {
    mmproj: tower,
    backend: "cpu",
    threads: 2,
  });
  const loaded = await measured!.load();
  try {
    return await loaded.rowsOf(image);
  } finally {
    loaded.close();
  }
}

/** Returns the largest error, as a share of the largest exact value. */
function errorOf(rows: Float32Array, exact: readonly Float64Array[][]): number {
  const whole = exact[0].flatMap((_, token) => exact.flatMap((part) => [...part[token]]));
  assertEquals(rows.length, whole.length);
  const most = Math.max(...whole.map(Math.abs));
  return Math.max(...whole.map((value, i) => Math.abs(value - rows[i]))) / most;
}

for (const [type, most] of [["F32", 1e-5], ["F16", 1e-5], ["BF16", 1e-5], ["Q8_0", 0.02]] as const) {
  for (const architecture of ["qwen3vl", "qwen35"] as const) {
    if (architecture === "qwen35" && type !== "F32") continue;
    Deno.test(`vision: ${architecture}'s tower in ${type} is near float64`, async () => {
      await withFiles({ architecture, type, seed: 3 }, async (files) => {
        const image = picture("tower", 96, 64);
        const rows = await towerRows(await prepared(image, files), files);
        const exact = exactTower(await Tensors.open(files.tower), image, DEEP[architecture]);
        const error = errorOf(rows, exact);
        assert(error < most, `error ${error}`);
      });
    });
  }
}
