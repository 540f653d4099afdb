import { assert, assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import { memorySource } from "./byte_source.ts";
import { GgufError } from "./errors.ts";
import { readHparams } from "./hparams/hparams.ts";
import { openGguf, parseGguf } from "./reader.ts";
import { BuiltGguf, GgufBuilder, smallModel } from "./testing.ts";
import { byteLengthOf, layoutOf } from "./tensor_types.ts";
import { FORMATS } from "./formats.ts";
import type { TensorType } from "./types.ts";
import { readVocabulary } from "./vocabulary.ts";

async function withFile<T>(bytes: Uint8Array, use: (path: string) => Promise<T>): Promise<T> {
  const path = await Deno.makeTempFile({ suffix: ".gguf" });
  try {
    await Deno.writeFile(path, bytes);
    return await use(path);
  } finally {
    await Deno.remove(path);
  }
}

Deno.test("reader: reads a valid model's metadata, tensors, hyper-parameters and vocabulary", async () => {
  const built = smallModel().build();
  const file = await withFile(built.bytes, openGguf);
  assertEquals(file.version, 3);
  assertEquals(file.fileSize, built.bytes.length);
  assertEquals(file.tensors.get("blk.0.attn_k.weight"), {
    name: "blk.0.attn_k.weight",
    type: "Q8_0",
    shape: [32, 16],
    path: file.path,
    offset: built.at("blk.0.attn_k.weight/data"),
    byteLength: 16 * 34,
  });
  assertEquals(readHparams(file).headCountKv, 2);
  const { ids, merges, tokens } = readVocabulary(file.metadata);
  assertEquals([tokens.length, ids.get("é"), merges], [8, 5, ["t h", "th e"]]);
});

Deno.test("reader: a file on disk equals the same bytes in memory", async () => {
  const { bytes } = smallModel().build();
  const file = await withFile(bytes, openGguf);
  const memory = parseGguf(bytes, bytes.length, file.path);
  assertEquals([...file.metadata.entries], [...memory.metadata.entries]);
  assertEquals([...file.tensors], [...memory.tensors]);
});

Deno.test("reader: reads version 2 like version 3", () => {
  const builder = smallModel();
  builder.version = 2;
  const file = parseGguf(builder.build().bytes);
  assertEquals([file.version, file.tensors.size], [2, 11]);
});

Deno.test("reader: returns every type of value as it was written", () => {
  const { metadata } = parseGguf(
    new GgufBuilder()
      .set("u8", "UINT8", 255).set("i8", "INT8", -128).set("u16", "UINT16", 65_535).set(
        "i16",
        "INT16",
        -32_768,
      )
      .set("u32", "UINT32", 0xffffffff).set("i32", "INT32", -(2 ** 31)).set("f32", "FLOAT32", 1.5)
      .set("yes", "BOOL", true).set("no", "BOOL", false).set("text", "STRING", "\ufeffnaïve 🦙\0")
      .set("u64", "UINT64", 2n ** 64n - 1n).set("safe", "UINT64", 2 ** 53 - 1).set(
        "i64",
        "INT64",
        -(2n ** 63n),
      )
      .set("f64", "FLOAT64", Math.PI)
      .array("bytes", "UINT8", [1, 2]).array("shorts", "INT16", [-1, 2]).array("words", "UINT32", [
        1,
        0xffffffff,
      ])
      .array("floats", "FLOAT32", [0.5, -0.5]).array("doubles", "FLOAT64", [0.1]).array("flags", "BOOL", [
        true,
        false,
      ])
      .array("longs", "INT64", [-1n, 2n ** 62n]).array("strings", "STRING", ["", "a", "\ufeff"]).array(
        "none",
        "INT32",
        [],
      )
      .build().bytes,
  );
  assertEquals(Object.fromEntries(metadata.entries), {
    u8: 255,
    i8: -128,
    u16: 65_535,
    i16: -32_768,
    u32: 0xffffffff,
    i32: -(2 ** 31),
    f32: 1.5,
    yes: true,
    no: false,
    text: "\ufeffnaïve 🦙\0",
    u64: 2n ** 64n - 1n,
    safe: 2 ** 53 - 1,
    i64: -(2n ** 63n),
    f64: Math.PI,
    bytes: Uint8Array.of(1, 2),
    shorts: Int16Array.of(-1, 2),
    words: Uint32Array.of(1, 0xffffffff),
    floats: Float32Array.of(0.5, -0.5),
    doubles: Float64Array.of(0.1),
    flags: [true, false],
    longs: [-1n, 2n ** 62n],
    strings: ["", "a", "\ufeff"],
    none: new Int32Array(),
  });
});

for (const type of Object.keys(FORMATS) as TensorType[]) {
  Deno.test(`reader: reads ${type} tensors of whole blocks`, () => {
    const { elements, bytes } = layoutOf(type);
    const shape = [elements * 2, 3, 2];
    const tensor = parseGguf(new GgufBuilder().tensor("t", type, shape).build().bytes).tensors.get("t")!;
    assertEquals([tensor.type, tensor.shape, tensor.byteLength], [type, shape, bytes * 12]);
    assertEquals(byteLengthOf(type, elements * 12), bytes * 12);
  });
}

for (const alignment of [8, 32, 64, 4096]) {
  Deno.test(`reader: finds tensor data at alignment ${alignment}`, () => {
    const builder = smallModel().set("general.alignment", "UINT32", alignment);
    builder.alignment = alignment;
    const built = builder.build();
    for (const { name, offset } of parseGguf(built.bytes).tensors.values()) {
      assertEquals([offset, offset % alignment], [built.at(`${name}/data`), 0]);
    }
  });
}

Deno.test("reader: a file without tensors needs no data and no padding", () => {
  const built = new GgufBuilder().set("general.architecture", "STRING", "llama").build();
  assertEquals(parseGguf(built.cut("padding")).tensors.size, 0);
});

Deno.test("reader: accepts a file without keys and tensors", () => {
  assertEquals(parseGguf(new GgufBuilder().build().cut("tensors")).metadata.entries.size, 0);
});

Deno.test("reader: accepts an unpadded last tensor, and tensors out of order or with gaps", () => {
  const built = new GgufBuilder().tensor("a", "F32", [3]).tensor("b", "F32", [3]).build();
  assertEquals(parseGguf(built.cut("b/data", 12)).tensors.size, 2);
  const swapped = built.u64("a/offset", 32).u64("b/offset", 0);
  assertEquals(parseGguf(swapped.bytes).tensors.get("a")!.offset, built.at("data") + 32);
  const apart = new BuiltGguf(new Uint8Array([...built.bytes, ...new Uint8Array(96)]), built.marks);
  assertEquals(parseGguf(apart.u64("a/offset", 128).bytes).tensors.get("a")!.offset, built.at("data") + 128);
});

Deno.test("reader: reads headers larger than its window, with long strings and arrays", async () => {
  // Characters of one to four bytes; lengths around the limit of batch decoding; 3 MB in all.
  const alphabet = ["a", "é", "漢", "🦙"];
  const strings = Array.from({ length: 60_000 }, (_, i) => alphabet[i % 4].repeat(i % 23));
  strings.splice(30_000, 0, "é".repeat(40_000), "x".repeat(2 ** 21), "");
  const floats = Float32Array.from({ length: 400_000 }, (_, i) => i);
  const builder = new GgufBuilder().set("first", "UINT8", 7).array("strings", "STRING", strings);
  builder.array("floats", "FLOAT32", floats).set("last", "STRING", "漢字").tensor("t", "F32", [4]);
  const { metadata, tensors } = await withFile(builder.build().bytes, openGguf);
  assertEquals(metadata.getStrings("strings"), strings);
  assertEquals(metadata.getNumbers("floats"), floats);
  assertEquals([metadata.getString("last"), tensors.size], ["漢字", 1]);
});

Deno.test("reader: an invalid string among many is refused at its own byte", () => {
  const strings = Array.from({ length: 10_000 }, (_, i) => `token ${i}`);
  const built = new GgufBuilder().array("strings", "STRING", strings).build();
  built.bytes[built.at("tensors") - 1] = 0xff;
  const error = assertThrows(() => parseGguf(built.bytes), GgufError);
  assertEquals([error.code, error.byte], ["GGUF_STRING", built.at("tensors") - "token 9999".length]);
});

Deno.test("reader: reads 250,000 tokens and 250,000 merges in seconds", () => {
  const tokens = Array.from({ length: 250_000 }, (_, i) => `Ġ${i.toString(36)}`);
  const merges = tokens.map((token) => `${token[0]} ${token.slice(1)}`);
  const { bytes } = new GgufBuilder().array("tokens", "STRING", tokens).array("merges", "STRING", merges)
    .build();
  const start = performance.now();
  const { metadata } = parseGguf(bytes);
  assert(performance.now() - start < 5000); // 0.2 s on an idle machine
  assertEquals([metadata.getStrings("tokens")!.at(-1), metadata.getStrings("merges")!.length], [
    tokens.at(-1),
    250_000,
  ]);
});

Deno.test("reader: a missing file throws the system's error, a folder a GgufError", async () => {
  const missing = await assertRejects(() => openGguf("/nowhere/model.gguf"), Error);
  assertEquals((missing as Error & { code?: string }).code, "ENOENT");
  const folder = await Deno.makeTempDir();
  const error = await assertRejects(() => openGguf(folder), GgufError);
  assertEquals(error.code, "GGUF_MAGIC");
  await Deno.remove(folder);
});

Deno.test("reader: names the kind of a file that is not GGUF", async () => {
  const safetensors = `\x20\0\0\0\0\0\0\0{"lm_head.weight":{}}          `;
  const kinds: [text: string, words: string][] = [
    [`version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n`, "this is a Git LFS pointer"],
    ["<!doctype HTML>\n<html>", "this is an HTML page"],
    [`\ufeff\n<html lang="en">`, "this is an HTML page"],
    ["<!-- saved -->\n<html>", "this is an HTML page"],
    [`<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>`, "this is an XML text"],
    [`{"error":"Invalid credentials"}`, "this is a JSON text"],
    ["PK\x03\x04 archive/data.pkl", "this is a ZIP archive"],
    [safetensors, "this is a safetensors file"],
    ["words", "this is not a GGUF file"],
  ];
  for (const [text, words] of kinds) {
    const bytes = new TextEncoder().encode(text);
    const { code, message } = assertThrows(() => parseGguf(bytes), GgufError);
    assertEquals(code, "GGUF_MAGIC");
    assertStringIncludes(message, words);
    const open = () => Promise.resolve({ ...memorySource(bytes), readSync: undefined });
    const fetched = await assertRejects(() => openGguf("page", open), GgufError);
    assertEquals(fetched.message, message);
  }
});

Deno.test("reader: messages name code, byte, field, the limit and the value found", () => {
  const built = smallModel().build().u64("output_norm.weight/offset", 33);
  const byte = built.at("output_norm.weight/offset");
  const error = assertThrows(() => parseGguf(built.bytes), GgufError);
  const text = `GGUF_OFFSET at byte ${byte}, tensor "output_norm.weight": the offset must be ` +
    `a multiple of 32 (the alignment) below 2^53 (got 33)`;
  assertEquals(error.message, text);
});

Deno.test("reader: messages give exact lengths, and quote and shorten untrusted names", () => {
  const built = smallModel().build().u64("tensorCount", -1);
  assert(
    assertThrows(() => parseGguf(built.bytes), GgufError).message.includes("18446744073709551615"),
  );
  const name = "\u001b[2J\u009b\u202e" + "n".repeat(200);
  const spoilt = new GgufBuilder().set(name, "UINT8", 0).build();
  spoilt.u32(`${name}/type`, 99);
  const { field } = assertThrows(() => parseGguf(spoilt.bytes), GgufError);
  assertEquals(field, `key "\\u001b[2J\\u009b\\u202e${"n".repeat(71)}..."`);
});
