/** Vision towers in files: `pull` downloads them, models find them by name, and `inspect` describes them. */
import { assertEquals, assertMatch, assertThrows } from "@std/assert";
import { join } from "@std/path";
import { GgufError } from "../../../engine/gguf/errors.ts";
import { openGguf } from "../../../engine/gguf/reader.ts";
import { POSITIONS, positionTensors, readTower } from "../../../engine/vision/shape.ts";
import { buildTower } from "../../../engine/vision/tower_plan.ts";
import { pull } from "../../../hub/mod.ts";
import { listModels, removeModel } from "../../../hub/store.ts";
import { TestHub } from "../../../hub/testing_hub.ts";
import { inspectModel } from "../../../lib/inspect.ts";
import { synthesizeVision, TOWERS } from "./files.ts";

const filesOf = (seed: number) => synthesizeVision({ tower: "qwen3vl", type: "Q8_0", seed });

async function withFolder(test: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await test(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("pull: downloads the vision tower with its model, named after the model, and removes both", async () => {
  const { model, tower } = filesOf(1);
  const repositories = { "me/V-GGUF": { "V-Q8_0.gguf": model, "mmproj-F16.gguf": tower } };
  await using hub = new TestHub({ repositories });
  await withFolder(async (folder) => {
    const run = () =>
      pull({ source: "hf:me/V-GGUF", as: "mine", models: folder, endpoint: hub.endpoint, freeMemory: 1e9 });
    const { name, bytes, receipt } = await run();
    assertEquals([name, bytes], ["mine", model.length + tower.length]);
    assertEquals(receipt.files.map(({ name }) => name), ["mine.gguf", "mmproj-mine.gguf"]);
    // Another model's tower of the same sizes comes first in the alphabet.
    await Deno.writeFile(join(folder, "a-mmproj.gguf"), filesOf(2).tower);
    const { tower: found } = await inspectModel({ model: join(folder, "mine.gguf") });
    assertEquals(found && "path" in found && found.path, join(folder, "mmproj-mine.gguf"));
    assertEquals((await run()).already, true);
    const { models } = await listModels(folder);
    assertEquals(models.map(({ name, bytes }) => [name, bytes]), [["mine", model.length + tower.length]]);
    await removeModel(folder, "mine");
    const left = Array.from(Deno.readDirSync(folder), ({ name }) => name);
    assertEquals(left.filter((name) => name.endsWith(".gguf")), ["a-mmproj.gguf"]);
  });
});

Deno.test("inspect: describes the tower beside a model, and a tower's own file", async () => {
  await withFolder(async (folder) => {
    const [model, tower] = [join(folder, "m.gguf"), join(folder, "mmproj-F16.gguf")];
    await Deno.writeFile(model, filesOf(1).model);
    assertEquals((await inspectModel({ model })).tower, undefined);
    await Deno.writeFile(tower, filesOf(1).tower);
    const beside = (await inspectModel({ model })).tower;
    if (!beside || "refusal" in beside) throw new Error("no tower");
    const { memory, ...facts } = beside;
    assertEquals(facts, {
      path: tower,
      projector: "qwen3vl_merger",
      layers: TOWERS.qwen3vl.layers,
      imageTokens: [64, 1024],
    });
    const { size } = await Deno.stat(tower);
    assertEquals(memory.weights > 0.8 * size && memory.weights < 1.2 * size && memory.activations > 0, true);
    const alone = await inspectModel({ model: tower });
    assertEquals(alone.tower, beside);
    assertMatch("refusal" in alone.plan ? alone.plan.refusal : "", /it is a vision tower/);
    // A tower of another model.
    const other = synthesizeVision({ tower: "qwen35", type: "Q8_0", seed: 1 });
    await Deno.writeFile(tower, other.tower);
    const { tower: wrong } = await inspectModel({ model });
    assertMatch(
      wrong && "refusal" in wrong ? wrong.refusal : "",
      /it has rows for 0 deep layers, but the model reads 2/,
    );
  });
});

Deno.test("inspect: describes a tower of Gemma 4, and refuses one with too few positions on an axis", async () => {
  await withFolder(async (folder) => {
    const path = join(folder, "mmproj-F16.gguf");
    await Deno.writeFile(path, synthesizeVision({ tower: "gemma4", type: "Q8_0", seed: 1 }).tower);
    const { tower } = await inspectModel({ model: path });
    assertEquals(tower && "path" in tower && [tower.projector, tower.imageTokens], ["gemma4v", [139, 280]]);
    const file = await openGguf(path);
    const shape = readTower(file);
    const info = file.tensors.get(POSITIONS)!;
    const tensors = new Map(file.tensors).set(POSITIONS, { ...info, shape: [shape.width, 700, 2] });
    // The same file may hold an audio tower.
    const audio = ["a.blk.0.attn_q.weight", "mm.a.input_projection.weight"];
    const both = new Map([...file.tensors, ...audio.map((name) => [name, info] as const)]);
    buildTower({ ...file, tensors: both }, shape);
    assertThrows(
      () => positionTensors({ ...file, tensors }, shape),
      GgufError,
      "at least 708 rows for each axis",
    );
  });
});
