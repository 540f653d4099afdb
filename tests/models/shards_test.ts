import { assert, assertEquals, assertRejects } from "@std/assert";
import { fingerprintModel } from "../../engine/load/fingerprint.ts";
import { GgufError } from "../../engine/gguf/errors.ts";
import { openGguf } from "../../engine/gguf/reader.ts";
import { inspectModel } from "../../engine/load/inspect.ts";
import { fileVersion, loadEngine } from "../../engine/load/load.ts";
import { modelName, modelsInFolder } from "../../engine/models/folder.ts";
import { generate } from "../../testing/engine.ts";
import { splitGguf, writeShards } from "../../testing/split_gguf.ts";

const WHOLE = new URL("../../models/demo.gguf", import.meta.url).pathname;

/** The demo model in `count` files, in a folder of its own. */
async function withShards(
  count: number,
  use: (paths: string[], folder: string) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "shards-" });
  try {
    await use(await writeShards(folder, "demo", splitGguf(await Deno.readFile(WHOLE), count)), folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function tokens(model: string): Promise<number[]> {
  const { engine } = await loadEngine({ model, threads: 1, contextLength: 128, parallel: 1 });
  try {
    const prompt = engine.encodePrompt("One file or several");
    const request = { prompt, maxTokens: 8, sampling: { temperature: 0 }, ignoreEos: true };
    return (await generate(engine, request)).tokens;
  } finally {
    await engine.close();
  }
}

Deno.test("shards: any file opens the whole model", async () => {
  await withShards(3, async (paths) => {
    const whole = await openGguf(WHOLE);
    for (const path of paths) {
      const file = await openGguf(path);
      assertEquals([...file.tensors.keys()], [...whole.tensors.keys()]);
      assertEquals(
        file.metadata.getString("general.architecture"),
        whole.metadata.getString("general.architecture"),
      );
      assertEquals([file.path, file.paths], [path, paths]);
      assertEquals(file.fileSize, paths.reduce((sum, path) => sum + Deno.statSync(path).size, 0));
      assertEquals(new Set([...file.tensors.values()].map(({ path }) => path)), new Set(paths));
    }
  });
});

Deno.test("shards: tokens, fingerprint and report equal those of the single file", async () => {
  await withShards(3, async (paths) => {
    assertEquals(await tokens(paths[1]), await tokens(WHOLE));
    const roundabout = paths[1].replace("/demo-", "/./demo-");
    for (const path of [paths[0], roundabout]) {
      assertEquals(
        await fingerprintModel(await openGguf(path)),
        await fingerprintModel(await openGguf(WHOLE)),
      );
    }
    const report = await inspectModel({ model: paths[2] });
    assert(!("refusal" in report.plan), JSON.stringify(report.plan));
    assertEquals(report.files, 3);
    assertEquals(report.formats, (await inspectModel({ model: WHOLE })).formats);
  });
});

Deno.test("shards: a change of any file changes the model", async () => {
  await withShards(2, async ([first, second]) => {
    const before = fileVersion(first);
    assertEquals(fileVersion(second), before);
    await Deno.writeTextFile(second, "x", { append: true });
    assert(fileVersion(first) !== before);
    await Deno.remove(second);
    assert(fileVersion(first) !== before);
  });
});

Deno.test("shards: a folder lists a split model once, under the model's name, even without the first file", async () => {
  await withShards(3, async (paths, folder) => {
    await Deno.copyFile(paths[0], `${folder}/other.gguf`);
    const offered = () => modelsInFolder(folder).map(({ id, path }) => [id, path]);
    assertEquals(offered(), [["demo", paths[0]], ["other", `${folder}/other.gguf`]]);
    assertEquals(modelName(paths[2]), "demo");
    await Deno.remove(paths[0]);
    assertEquals(offered()[0], ["demo", paths[1]]);
    await assertRejects(() => openGguf(paths[1]), GgufError, "demo-00001-of-00003.gguf");
  });
});

/** Cases: a corruption of the files, the file to open, and the expected message. */
const BROKEN: [what: string, spoil: (paths: string[], shards: Uint8Array[]) => void, says: string[]][] = [
  ["missing", ([, second]) => Deno.removeSync(second), ["GGUF_SPLIT", "demo-00002-of-00003.gguf", "missing"]],
  ["cut short", ([, , third], [, , bytes]) => Deno.writeFileSync(third, bytes.subarray(0, -40)), [
    "GGUF_TRUNCATED",
    "demo-00003-of-00003.gguf",
  ]],
  ["no GGUF file", ([, second]) => Deno.writeTextFileSync(second, "nonsense"), [
    "GGUF_MAGIC",
    "demo-00002-of-00003.gguf",
  ]],
  ["a copy of another", ([, second, third]) => Deno.copyFileSync(third, second), [
    "GGUF_SPLIT",
    "split.no",
    "demo-00002-of-00003.gguf",
    "got 2",
  ]],
  ["of a model with other tensors", ([, second], shards) => {
    // The third tensor has another tensor's name, and the count is correct.
    const view = new Uint8Array(shards[1]);
    const at = new TextDecoder("latin1").decode(view).indexOf("split.tensors.count") +
      "split.tensors.count".length + 4;
    view[at]++;
    Deno.writeFileSync(second, view);
  }, ["GGUF_SPLIT", "split.tensors.count", "another model"]],
  ["the whole model", ([, second]) => Deno.copyFileSync(WHOLE, second), [
    "GGUF_SPLIT",
    "split.no",
    "got nothing",
  ]],
];

for (const [what, spoil, says] of BROKEN) {
  Deno.test(`shards: a model with one file ${what} is refused, and the message names that file`, async () => {
    await withShards(3, async (paths) => {
      spoil(paths, paths.map((path) => Deno.readFileSync(path)));
      const error = await assertRejects(() => openGguf(paths[0]), GgufError);
      for (const words of says) assert(error.message.includes(words), error.message);
    });
  });
}

Deno.test("shards: a file without its number in the name is refused", async () => {
  await withShards(2, async ([first], folder) => {
    for (const name of ["model.gguf", "demo-00002-of-00002.gguf", "demo-00001-of-00003.gguf"]) {
      await Deno.rename(first, `${folder}/${name}`);
      await assertRejects(() => openGguf(`${folder}/${name}`), GgufError, '"-00001-of-00002.gguf"');
      await Deno.rename(`${folder}/${name}`, first);
    }
  });
});

Deno.test("shards: a tensor in two files is refused with both names", async () => {
  await withShards(2, async ([first, second]) => {
    const tensors = [...(await openGguf(first)).tensors.values()];
    const { name } = tensors.find(({ path }) => path === second)!;
    const other = tensors.find((tensor) => tensor.path === first && tensor.name.length === name.length)!.name;
    const bytes = Deno.readFileSync(second);
    const at = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("").indexOf(name);
    bytes.set(new TextEncoder().encode(other), at);
    Deno.writeFileSync(second, bytes);
    const error = await assertRejects(() => openGguf(first), GgufError, `tensor "${other}"`);
    for (const path of ["00001-of-00002", "00002-of-00002"]) {
      assert(error.message.includes(path), error.message);
    }
  });
});
