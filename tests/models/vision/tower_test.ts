/** Compares the rows of seeded towers with float64. */
import { assert, assertEquals } from "@std/assert";
import type { PromptImage } from "../../../engine/api/request.ts";
import { describeModel } from "../../../engine/load/describe.ts";
import { measureTower } from "../../../engine/load/load_tower.ts";
import { firstTier, fullTier } from "../../../testing/tier.ts";
import { Tensors } from "./exact.ts";
import { exactRows } from "./exact_tower.ts";
import { type Files, picture, prepared, type TowerName, TOWERS, withFiles } from "./files.ts";

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

/** A picture for each kind of tower. Only the last is scaled and split into tiles. */
const PICTURES: { readonly [Name in TowerName]: readonly [width: number, height: number] } = {
  qwen3vl: [96, 64],
  qwen35: [96, 64],
  gemma3: [112, 112],
  gemma4: [72, 48],
  gemma4_31b: [48, 80],
  pixtral: [96, 64],
  idefics3: [120, 60],
};

for (const [type, most] of [["F32", 1e-5], ["F16", 1e-5], ["BF16", 1e-5], ["Q8_0", 0.02]] as const) {
  for (const tower of Object.keys(TOWERS) as TowerName[]) {
    const isFirst = type === "F32" ? tower !== "gemma4_31b" : type === "Q8_0" && tower === "gemma4";
    (isFirst ? firstTier : fullTier).test(`vision: ${tower}'s tower in ${type} is near float64`, async () => {
      await withFiles({ tower, type, seed: 3 }, async (files) => {
        const image = picture("tower", ...PICTURES[tower]);
        const rows = await towerRows(await prepared(image, files), files);
        const error = errorOf(rows, exactRows(await Tensors.open(files.tower), tower, image));
        assert(error < most, `error ${error}`);
      });
    });
  }
}
