import { assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { fingerprintModel, type ModelFingerprint } from "./fingerprint.ts";
import { openGguf } from "../gguf/reader.ts";
import { type GgufBuilder, smallModel } from "../gguf/testing.ts";

/** Returns a model with a matrix of 128 KiB, which is read only in part. */
function model(): GgufBuilder {
  return smallModel().set("tokenizer.chat_template", "STRING", "{{ messages }}")
    .tensor("large", "F32", [32, 1024]);
}

async function inFile<T>(
  work: (of: (bytes: Uint8Array) => Promise<ModelFingerprint>) => Promise<T>,
): Promise<T> {
  const path = await Deno.makeTempFile({ suffix: ".gguf" });
  try {
    return await work(async (bytes) => {
      await Deno.writeFile(path, bytes);
      return await fingerprintModel(await openGguf(path));
    });
  } finally {
    await Deno.remove(path);
  }
}

Deno.test("fingerprintModel: equal content has equal fingerprints", async () => {
  await inFile(async (of) => {
    const first = await of(model().build().bytes);
    assertEquals(await of(model().build().bytes), first);
    for (const hash of [first.weights, first.chatTemplate]) assertMatch(hash, /^[0-9a-f]{64}$/);
  });
});

Deno.test("fingerprintModel: shows whether a tensor, metadata or the template changed", async () => {
  await inFile(async (of) => {
    const before = await of(model().build().bytes);
    const built = model().build();
    for (const name of ["token_embd.weight", "blk.0.attn_norm.weight", "blk.0.ffn_down.weight", "large"]) {
      const bytes = built.bytes.slice();
      bytes[built.at(`${name}/data`)] ^= 1;
      const { weights, chatTemplate } = await of(bytes);
      assertNotEquals(weights, before.weights, name);
      assertEquals(chatTemplate, before.chatTemplate);
    }
    const lastByte = built.bytes.slice();
    lastByte[built.at("large/data") + 4 * 32 * 1024 - 1] ^= 1;
    assertNotEquals((await of(lastByte)).weights, before.weights);
    const base = await of(model().set("llama.rope.freq_base", "FLOAT32", 20_000).build().bytes);
    assertNotEquals(base.weights, before.weights);
    const template = await of(model().set("tokenizer.chat_template", "STRING", "{{ 1 }}").build().bytes);
    assertEquals(template.weights, before.weights);
    assertNotEquals(template.chatTemplate, before.chatTemplate);
  });
});
