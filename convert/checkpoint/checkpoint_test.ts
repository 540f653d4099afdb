import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { ConvertError } from "../errors.ts";
import { BF16, CheckpointFolder } from "../testing.ts";

const INDEX = "model.safetensors.index.json";
const POINTER = `version https://git-lfs.github.com/spec/v1\noid sha256:${"0".repeat(64)}\nsize 4999802720\n`;
const PAGE = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n";

async function refusal(folder: CheckpointFolder): Promise<string> {
  const { message } = await assertRejects(() => folder.convert(), ConvertError);
  assertEquals(folder.leftBehind(), []);
  return message;
}

for (const name of ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"]) {
  Deno.test(`checkpoint: names a Git LFS pointer and an HTML page in place of ${name}`, async () => {
    await using folder = await CheckpointFolder.make(BF16);
    const path = folder.file(name);
    for (const [text, words] of [[POINTER, "a Git LFS pointer"], [PAGE, "an HTML page"]]) {
      await Deno.writeTextFile(path, text);
      assertStringIncludes(await refusal(folder), `Cannot convert ${path}: this is ${words}`);
    }
  });
}

Deno.test("checkpoint: names a Git LFS pointer as index or shard, and a GGUF file as shard", async () => {
  await using folder = await CheckpointFolder.make({ ...BF16, shards: 2 });
  const shard = folder.file("model-00002-of-00002.safetensors");
  await Deno.writeTextFile(shard, POINTER);
  assertStringIncludes(await refusal(folder), `${shard}: this is a Git LFS pointer`);
  await Deno.writeTextFile(shard, "GGUF\x03\0\0\0\0\0\0\0");
  assertStringIncludes(await refusal(folder), `${shard}: this is a GGUF file`);
  await Deno.writeTextFile(folder.file(INDEX), POINTER);
  assertStringIncludes(await refusal(folder), `${folder.file(INDEX)}: this is a Git LFS pointer`);
});

Deno.test("checkpoint: rejects an index that names missing files beside complete weights", async () => {
  await using folder = await CheckpointFolder.make(BF16);
  const index = { weight_map: { "lm_head.weight": "model-00001-of-00002.safetensors" } };
  await Deno.writeTextFile(folder.file(INDEX), JSON.stringify(index));
  const stale = `${
    folder.file(INDEX)
  }: the index is stale: it names "model-00001-of-00002.safetensors", which is`;
  const message = await refusal(folder);
  assertStringIncludes(message, stale);
  assertStringIncludes(message, `complete weights "model.safetensors"; remove the index`);
  await Deno.remove(folder.file(INDEX));
  await folder.convert();
});

Deno.test("checkpoint: reports a missing shard when other shards are incomplete, too", async () => {
  await using folder = await CheckpointFolder.make({ ...BF16, shards: 2 });
  const missing = folder.file("model-00002-of-00002.safetensors");
  await Deno.rename(missing, folder.file("model-00002-of-00003.safetensors"));
  assertStringIncludes(await refusal(folder), `Cannot find ${missing}`);
});

Deno.test("checkpoint: calls an index stale when a tensor is in another shard", async () => {
  await using folder = await CheckpointFolder.make({ ...BF16, shards: 2 });
  const path = folder.file(INDEX);
  const index = JSON.parse(await Deno.readTextFile(path));
  index.weight_map["model.no_such.weight"] = "model-00001-of-00002.safetensors";
  await Deno.writeTextFile(path, JSON.stringify(index));
  assertStringIncludes(await refusal(folder), "(found in no file): the index is stale");
});
