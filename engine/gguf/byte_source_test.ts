import { assert, assertEquals, assertRejects } from "@std/assert";
import {
  blobSource,
  type ByteSource,
  memorySource,
  openFile,
  type OpenSource,
  readBytes,
  SourceEnded,
} from "./byte_source.ts";
import { openGguf, parseGguf } from "./reader.ts";
import { GgufBuilder } from "./testing.ts";

const BYTES = Uint8Array.from({ length: 1000 }, (_, i) => i % 251);

/** Runs `check` on the same bytes from every kind of source. */
async function withSources(check: (source: ByteSource, kind: string) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempFile();
  try {
    await Deno.writeFile(path, BYTES);
    await using file = await openFile(path);
    await check(file, "file");
  } finally {
    await Deno.remove(path);
  }
  await check(blobSource(new Blob([BYTES])), "blob");
  await check(memorySource(BYTES), "memory");
}

Deno.test("source: returns bytes at any offset, and fewer only at the end", async () => {
  await withSources(async (source, kind) => {
    assertEquals(source.size, 1000, kind);
    assertEquals(await readBytes(source, 10, 5), BYTES.slice(10, 15), kind);
    const into = new Uint8Array(10);
    assertEquals(await source.read(995, into), 5, kind);
    assertEquals([...into.subarray(0, 5)], [...BYTES.subarray(995)], kind);
    assertEquals(await source.read(2000, into), 0, kind);
    assertEquals(source.readSync?.(1, into) ?? 10, 10, kind);
    const ended = await assertRejects(() => readBytes(source, 990, 20), SourceEnded, "", kind);
    assertEquals(ended.message, "there are 1000 bytes; 1010 are needed");
  });
});

Deno.test("source: does not open missing files and folders", async () => {
  await assertRejects(() => openFile("/nowhere/model.gguf"), Error, "ENOENT");
  await assertRejects(() => openFile("."), TypeError, ". is not a regular file");
});

/** Returns an asynchronous source, and a function that returns the last byte read from it. */
function slow(bytes: Uint8Array<ArrayBuffer>, name = "model.gguf"): { open: OpenSource; most: () => number } {
  let most = 0;
  const blob = blobSource(new Blob([bytes]));
  const read: ByteSource["read"] = (offset, into) => {
    most = Math.max(most, offset + into.length);
    return blob.read(offset, into);
  };
  const open = (path: string) => {
    assertEquals(path, name);
    return Promise.resolve({ ...blob, read });
  };
  return { open, most: () => most };
}

/** Returns a file with a header of about 3 MiB before 8 MiB of data. */
function longHeader(): Uint8Array<ArrayBuffer> {
  const builder = new GgufBuilder().set("general.architecture", "STRING", "llama");
  builder.array("tokenizer.ggml.tokens", "STRING", Array.from({ length: 150_000 }, (_, i) => `token ${i}`));
  return builder.tensor("t", "F32", [1024, 2048]).build().bytes;
}

Deno.test("openGguf: reads only the header from an asynchronous source", async () => {
  const bytes = longHeader();
  const { open, most } = slow(bytes);
  const file = await openGguf("model.gguf", open);
  const { metadata, tensors } = parseGguf(bytes);
  assertEquals([...file.metadata.entries.keys()], [...metadata.entries.keys()]);
  assertEquals(file.metadata.getStrings("tokenizer.ggml.tokens")!.at(-1), "token 149999");
  assertEquals(file.tensors.get("t")!.offset, tensors.get("t")!.offset);
  assertEquals(file.fileSize, bytes.length);
  assert(most() <= 8 * 2 ** 20, `${most()} of ${bytes.length} bytes were read`);
  await using again = await file.open(file.path);
  assertEquals(again.size, bytes.length);
});

Deno.test("openGguf: reads a short file whole, and refuses a broken one like parseGguf", async () => {
  const bytes = new GgufBuilder().tensor("t", "F32", [4]).build().bytes;
  assertEquals((await openGguf("model.gguf", slow(bytes).open)).tensors.size, 1);
  const cut = slow(bytes.slice(0, 30));
  const error = await assertRejects(() => openGguf("model.gguf", cut.open));
  let expected = "";
  try {
    parseGguf(bytes.slice(0, 30));
  } catch (error) {
    expected = String(error);
  }
  assertEquals(String(error), expected);
});
