/**
 * Compares patches of images with the patches of Hugging Face's processors (`deno task images:python`). Needs Python
 * with pip.
 */
import { join } from "@std/path";
import { decodeImage } from "../../engine/vision/decode.ts";
import { type ImageSizes, patchesOf } from "../../engine/vision/patches.ts";
import { scaled } from "../../engine/vision/scaling.ts";
import { campaignLine, say } from "../../testing/campaign.ts";
import { Random } from "../../testing/random.ts";
import { png } from "../models/vision/pictures.ts";

const { count, seed } = campaignLine({
  task: "images:python",
  does: "Compare the patches of random images with those of Hugging Face's processors.",
  options: { count: ["number of images", 200], seed: ["seed of their sizes and pixels", 1] },
});

/** Pillow 13 scales columns before rows if that takes less work; earlier versions and torchvision scale rows first. */
const PACKAGES = ["transformers==5.24.0", "pillow==12.0.0", "numpy==2.4.6"];
const HALF = [0.5, 0.5, 0.5];
const SIGLIP = { means: HALF, deviations: HALF };
/** Image sizes and scaling of each kind of tower, from a published model. */
const SIZES: Readonly<Record<string, ImageSizes>> = {
  qwen3vl: {
    ...SIGLIP,
    patch: 16,
    merged: 2,
    scaling: { to: "pixels", least: 256 * 256, most: 1024 * 32 * 32 },
  },
  gemma3: { ...SIGLIP, patch: 14, merged: 4, scaling: { to: "square", side: 896 } },
  gemma4: { ...SIGLIP, patch: 16, merged: 3, scaling: { to: "fill", most: 280 * 48 * 48 } },
  idefics3: { ...SIGLIP, patch: 16, merged: 4, scaling: { to: "tiles", side: 512, longest: 2048 } },
  pixtral: {
    means: [0.48145466, 0.4578275, 0.40821073],
    deviations: [0.26862954, 0.26130258, 0.27577711],
    patch: 14,
    merged: 2,
    scaling: { to: "longest", longest: 1540 },
  },
};

async function python(args: readonly string[]): Promise<string> {
  const { success, stdout } = await new Deno.Command("python3", { args: [...args], stderr: "inherit" })
    .output();
  if (!success) throw new Error(`python3 ${args.slice(0, 3).join(" ")} failed`);
  return new TextDecoder().decode(stdout);
}

/** Compares the patches of images with those that Python wrote. Grids have rows and columns of patches and of tiles. */
async function compared(paths: readonly string[], grids: readonly (readonly number[])[], sizes: ImageSizes) {
  const found = { equal: 0, withinOne: 0, farther: 0, otherGrid: 0, values: 0, differing: 0 };
  for (const [i, path] of paths.entries()) {
    const image = await decodeImage(await Deno.readFile(path));
    const pictures = scaled(image, sizes.scaling, sizes.patch * sizes.merged);
    const { rows, columns, tiles = { rows: 0, columns: 0 }, values } = patchesOf(pictures, sizes);
    const grid = [rows, columns, tiles.rows, tiles.columns].join(", ");
    if (grids[i].join(", ") !== grid) {
      found.otherGrid++;
      say(`${path}: rows and columns are ${grid}, in Python ${grids[i].join(", ")}`);
      continue;
    }
    const theirs = new Float32Array((await Deno.readFile(`${path}.patches`)).buffer);
    await Deno.remove(`${path}.patches`);
    // All pixels of a channel are adjacent in a patch.
    const level = sizes.deviations.map((deviation) => 1 / 255 / deviation);
    const levels = values.map((value, at) =>
      Math.round(Math.abs(value - theirs[at]) / level[Math.floor(at / sizes.patch ** 2) % 3])
    );
    const most = levels.reduce((a, b) => Math.max(a, b), 0);
    found[most === 0 ? "equal" : most === 1 ? "withinOne" : "farther"]++;
    found.values += levels.length;
    found.differing += levels.filter((level) => level > 0).length;
    if (most > 1) say(`${path}: ${most} levels`);
  }
  return found;
}

const folder = await Deno.makeTempDir({ prefix: "compy-images-" });
try {
  const packages = join(folder, "packages");
  const quiet = ["--quiet", "--disable-pip-version-check", "--root-user-action=ignore", "--target", packages];
  await python(["-m", "pip", "install", ...quiet, ...PACKAGES]);
  const random = new Random(seed);
  const paths: string[] = [];
  for (let i = 0; i < count; i++) {
    const [width, long] = [1 + random.below(700), 1 + random.below(i % 10 === 0 ? 2500 : 700)];
    const height = Math.min(long, 200 * width);
    const path = join(folder, `${i}.png`);
    await Deno.writeFile(path, await png(width, height, seed + i, { kind: ([2, 6, 0] as const)[i % 3] }));
    paths.push(path);
  }
  const script = new URL("../models/vision/processor_referee.py", import.meta.url).pathname;
  for (const [kind, sizes] of Object.entries(SIZES)) {
    const { patch, merged } = sizes;
    const args = [script, packages, kind, `${patch}`, `${merged}`, ...paths];
    const found = await compared(paths, JSON.parse(await python(args)), sizes);
    say(`${count} images for ${kind}: ${JSON.stringify(found)}`);
    if (found.farther + found.otherGrid > 0) Deno.exitCode = 1;
  }
} finally {
  await Deno.remove(folder, { recursive: true });
}
