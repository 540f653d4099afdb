/**
 * Compares patches of images with the patches of Hugging Face's processor (`deno task images:python`). Needs Python
 * with pip.
 */
import { join } from "@std/path";
import { readImage } from "../../engine/vision/read_image.ts";
import { campaignLine, say } from "../../testing/campaign.ts";
import { Random } from "../../testing/random.ts";
import { png } from "../models/vision/pictures.ts";

const { count, seed } = campaignLine({
  task: "images:python",
  does: "Compare the patches of random images with those of Hugging Face's processor.",
  options: { count: ["number of images", 200], seed: ["seed of their sizes and pixels", 1] },
});

/** Pillow 13 scales columns before rows if that takes less work; earlier versions and torchvision scale rows first. */
const PACKAGES = ["transformers==5.24.0", "pillow==12.0.0", "numpy==2.4.6"];
const HALF = [0.5, 0.5, 0.5];
const SIZES = {
  patch: 16,
  merged: 2,
  means: HALF,
  deviations: HALF,
  leastPixels: 256 * 256,
  mostPixels: 1024 * 32 * 32,
};
/** Size of one of 255 levels after values are scaled to -1 … 1. */
const LEVEL = 2 / 255;

async function python(args: readonly string[]): Promise<string> {
  const { success, stdout } = await new Deno.Command("python3", { args: [...args], stderr: "inherit" })
    .output();
  if (!success) throw new Error(`python3 ${args.slice(0, 3).join(" ")} failed`);
  return new TextDecoder().decode(stdout);
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
  const grids: [number, number][] = JSON.parse(await python([script, packages, ...paths]));
  const found = { equal: 0, withinOne: 0, farther: 0, otherGrid: 0, values: 0, differing: 0 };
  for (const [i, path] of paths.entries()) {
    const { patches: { rows, columns, values } } = await readImage({
      bytes: await Deno.readFile(path),
      sizes: SIZES,
    });
    if (grids[i].join() !== [rows, columns].join()) {
      found.otherGrid++;
      say(`${path}: ${rows} x ${columns} patches, Python has ${grids[i].join(" x ")}`);
      continue;
    }
    const theirs = new Float32Array((await Deno.readFile(`${path}.patches`)).buffer);
    const levels = values.map((value, at) => Math.round(Math.abs(value - theirs[at]) / LEVEL));
    const most = levels.reduce((a, b) => Math.max(a, b), 0);
    found[most === 0 ? "equal" : most === 1 ? "withinOne" : "farther"]++;
    found.values += levels.length;
    found.differing += levels.filter((level) => level > 0).length;
    if (most > 1) say(`${path}: ${most} levels`);
  }
  say(`${count} images: ${JSON.stringify(found)}`);
  if (found.farther + found.otherGrid > 0) Deno.exitCode = 1;
} finally {
  await Deno.remove(folder, { recursive: true });
}
