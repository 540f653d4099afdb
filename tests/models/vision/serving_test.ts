/** Images in chat requests and in `generate`, by a seeded model. */
import { assert, assertEquals } from "@std/assert";
import OpenAI from "openai";
import { loadEngine } from "../../../engine/load/load.ts";
import { createApp } from "../../../routes/app.ts";
import { withFiles } from "./files.ts";
import { png } from "./pictures.ts";

const text = { type: "text" as const, text: "What is this?" };
const urlOf = (bytes: Uint8Array, type = "image/png") => `data:${type};base64,${bytes.toBase64()}`;
const image = (url: string) => ({ type: "image_url" as const, image_url: { url } });

/** Runs `test` with a client of a server for the model, with or without its tower. */
async function withClient(tower: boolean, test: (client: OpenAI) => Promise<void>): Promise<void> {
  await withFiles({ tower: "qwen3vl", type: "Q8_0", seed: 6 }, async ({ model, tower: file }) => {
    if (!tower) await Deno.remove(file);
    const { engine } = await loadEngine({ model, backend: "cpu", threads: 2, contextLength: 512 });
    const app = createApp(engine);
    const client = new OpenAI({
      baseURL: "http://127.0.0.1/v1",
      apiKey: "none",
      maxRetries: 0,
      fetch: async (url, init) => await app.request(url as string, init as RequestInit),
    });
    try {
      await test(client);
    } finally {
      await engine.close();
    }
  });
}

type Content = OpenAI.ChatCompletionUserMessageParam["content"];

async function ask(client: OpenAI, content: Content) {
  const messages = [{ role: "user" as const, content }];
  const asked = { model: "model", messages, max_tokens: 4, temperature: 0, logprobs: true };
  const { choices: [{ logprobs }], usage } = await client.chat.completions.create(asked);
  return { logprobs: logprobs!.content!, usage: usage! };
}

/** Returns status, code and field of a refusal. */
async function refusal(client: OpenAI, content: Content) {
  try {
    await ask(client, content);
  } catch (error) {
    if (error instanceof OpenAI.APIError) return [error.status, error.code, error.param];
    throw error;
  }
  throw new Error("not refused");
}

Deno.test("images: chat completions answer about an image, count its tokens, and share the prefix of equal images", async () => {
  await withClient(true, async (client) => {
    const [one, two] = [await png(320, 256, 1), await png(320, 256, 2)];
    const plain = await ask(client, [text]);
    const first = await ask(client, [text, image(urlOf(one))]);
    const again = await ask(client, [text, image(urlOf(one, "image/jpeg"))]); // the bytes decide the type, not the URL
    const other = await ask(client, [text, image(urlOf(two))]);
    assertEquals(first.usage.prompt_tokens - plain.usage.prompt_tokens, 320 / 32 * 256 / 32 + 2);
    assertEquals(first.logprobs, again.logprobs);
    assert(JSON.stringify(first.logprobs) !== JSON.stringify(other.logprobs));
    const cached = [first, again, other].map(({ usage }) => usage.prompt_tokens_details!.cached_tokens! > 0);
    assertEquals(cached, [false, true, false]);
  });
});

Deno.test("images: chat completions refuse data that is not an image, and remote URLs", async () => {
  await withClient(true, async (client) => {
    const field = "messages[0].content[1].image_url";
    const cases: [string, unknown[]][] = [
      ["https://example.com/a.png", [400, "unsupported_image_url", field]],
      ["file:///etc/passwd", [400, "unsupported_image_url", field]],
      ["", [400, "missing_required_parameter", field]],
      ["data:image/png;base64,!", [400, "invalid_image", field]],
      [urlOf(new TextEncoder().encode("<svg/>")), [400, "invalid_image", field]],
    ];
    for (const [url, expected] of cases) {
      assertEquals(await refusal(client, [text, image(url)]), expected, url);
    }
    const small = image(urlOf(await png(8, 8, 1)));
    const many = await refusal(client, Array.from({ length: 9 }, () => small));
    assertEquals(many, [400, "too_many_images", "messages[0].content[8].image_url"]);
  });
});

Deno.test("images: a model without a tower refuses images", async () => {
  await withClient(false, async (client) => {
    const expected = [400, "unsupported_content", "messages[0].content[1].image_url"];
    assertEquals(await refusal(client, [text, image(urlOf(await png(64, 64, 1)))]), expected);
  });
});
