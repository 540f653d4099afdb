/** Tests requests with images that exceed the usual limit of a body. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { createApp } from "../../../routes/app.ts";
import { withModel } from "./answering.ts";
import { png } from "./pictures.ts";

const MB = 2 ** 20;

/** Returns the data URL of a PNG, padded to `bytes` bytes. Decoders ignore bytes after a PNG's end. */
async function large(bytes: number, seed: number): Promise<string> {
  const all = new Uint8Array(bytes);
  all.set(await png(96, 64, seed));
  return `data:image/png;base64,${all.toBase64()}`;
}

function chatOf(urls: readonly string[], text: string): string {
  const images = urls.map((url) => ({ type: "image_url", image_url: { url } }));
  const messages = [{ role: "user", content: [...images, { type: "text", text }] }];
  return JSON.stringify({ messages, max_tokens: 4, temperature: 0 });
}

Deno.test("large bodies: answers large photos, holds their bytes until the request ends, and refuses other large bodies with a 413", async () => {
  await withModel({ tower: "qwen3vl", type: "Q8_0", seed: 6 }, async (engine) => {
    const limits = { bodyBytes: MB, imageBodyBytes: 6 * MB, imageBodiesBytes: 12 * MB, bodyMs: 300 };
    const app = createApp(engine, { limits });
    const post = async (body: string, path = "/v1/chat/completions") => {
      const headers = { "content-type": "application/json", "content-length": `${body.length}` };
      const response = await app.request(path, { method: "POST", headers, body });
      return { response, answer: await response.json() };
    };
    const photos = await Promise.all([large(MB, 1), large(2 * MB, 2)]);
    const small = await Promise.all([large(20_000, 1), large(20_000, 2)]);
    const [many, few] = [await post(chatOf(photos, "?")), await post(chatOf(small, "?"))];
    assertEquals(many.response.status, 200, JSON.stringify(many.answer));
    assertEquals(many.answer.choices, few.answer.choices);
    assertEquals(many.answer.usage.prompt_tokens, few.answer.usage.prompt_tokens);
    const stored = await post(
      JSON.stringify({
        temperature: 0,
        max_output_tokens: 4,
        input: [{ role: "user", content: photos.map((image_url) => ({ type: "input_image", image_url })) }],
      }),
      "/v1/responses",
    );
    const next = { input: "And?", max_output_tokens: 4, previous_response_id: stored.answer.id };
    const continued = await post(JSON.stringify(next), "/v1/responses");
    assert(
      continued.answer.usage.input_tokens > stored.answer.usage.input_tokens,
      JSON.stringify(continued.answer),
    );

    const isRefused = async (body: string, words: string) => {
      const { response, answer: { error } } = await post(body);
      assertEquals([response.status, error.code], [413, "request_too_large"]);
      assertStringIncludes(error.message, words);
    };
    await isRefused(chatOf(small, "a word ".repeat(MB / 7) + "\\"), "besides its images");
    await isRefused(chatOf(small, `[${"1,".repeat(MB / 2)}1]`), "besides its images");
    await isRefused(chatOf([...photos, ...photos], "?"), `at most ${6 * MB} bytes`);
    const streamed = await app.request("/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json", "content-length": `${chatOf(photos, "?").length}` },
      body: chatOf(photos, "?").replace("{", '{"stream":true,'),
    });
    const late = await post(chatOf(photos, "?")); // the stream holds more than half of the sender's bytes
    assertEquals([late.response.status, late.answer.error.code], [429, "too_many_transfers"]);
    await streamed.text();
    assertEquals((await post(chatOf(photos, "?"))).response.status, 200);
  });
});

Deno.test("large bodies: a server with text-only models refuses them at once", async () => {
  await withModel({ tower: "qwen3vl", type: "Q8_0", seed: 6 }, async (engine) => {
    const model = { ...engine.model, images: false };
    const app = createApp(
      new Proxy(engine, { get: (of, name) => name === "model" ? model : Reflect.get(of, name) }),
      {
        limits: { bodyBytes: MB },
      },
    );
    const body = chatOf([await large(MB, 1)], "?");
    const headers = { "content-type": "application/json", "content-length": `${body.length}` };
    const response = await app.request("/v1/chat/completions", { method: "POST", headers, body });
    assertEquals(response.status, 413);
    await response.body?.cancel();
  });
});
