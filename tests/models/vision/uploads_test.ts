/** Tests uploaded images in each API that accepts file ids, and images at https URLs. */
import Anthropic from "@anthropic-ai/sdk";
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import OpenAI, { toFile } from "openai";
import { oneModel } from "../../../engine/mod.ts";
import { createApp } from "../../../routes/app.ts";
import { execute } from "../../../routes/execute.ts";
import { createBatch, inDataFolder, linesOf, waitFor, withBatches } from "../../../routes/testing_batches.ts";
import { withModel } from "./answering.ts";
import { png } from "./pictures.ts";

const TEXT = "What is this?";
const KEYS = ["first", "second"];

function askedInResponses(file_id: string) {
  const content = [
    { type: "input_image" as const, file_id, detail: "auto" as const },
    { type: "input_text" as const, text: TEXT },
  ];
  return {
    model: "model",
    temperature: 0,
    max_output_tokens: 6,
    input: [{ role: "user" as const, content }],
  };
}

Deno.test("images: only the key that uploaded a file can use it as an image, in responses, messages and batches", async () => {
  await withModel({ tower: "qwen3vl", type: "Q8_0", seed: 6 }, async (engine) => {
    await inDataFolder(async (path) => {
      const options = {
        served: oneModel(engine),
        apiKeys: KEYS,
        execute: (line: Parameters<typeof execute>[1]) => execute(engine, line),
      };
      await withBatches(path, options, async ({ base, client, reports }) => {
        const anthropic = new Anthropic({ baseURL: base, apiKey: KEYS[0], maxRetries: 0 });
        const bytes = await png(96, 64, 1);
        const { id, purpose } = await client.files.create({
          file: await toFile(bytes, "a.png"),
          purpose: "vision",
        });
        assertEquals(purpose, "vision");
        const uploaded = await anthropic.beta.files.upload({ file: await toFile(bytes, "b.png") });
        assertEquals((await client.files.retrieve(uploaded.id)).purpose, "user_data");

        const url = `data:image/png;base64,${bytes.toBase64()}`;
        const inline = askedInResponses("");
        inline.input[0].content[0] = { type: "input_image", image_url: url, detail: "auto" } as never;
        const expected = await client.responses.create(inline);
        const first = await client.responses.create(askedInResponses(id));
        assertEquals([first.output_text, first.usage!.input_tokens], [
          expected.output_text,
          expected.usage!.input_tokens,
        ]);
        const count = await client.responses.inputTokens.count(askedInResponses(id));
        assertEquals(count.input_tokens, first.usage!.input_tokens);
        const source = { type: "file" as const, file_id: uploaded.id };
        const content = [{ type: "image" as const, source }, { type: "text" as const, text: TEXT }];
        const messages = [{ role: "user" as const, content }];
        const { content: [said] } = await anthropic.beta.messages.create({
          model: "model",
          max_tokens: 6,
          temperature: 0, // the beta's types omit it
          messages,
        } as Anthropic.Beta.MessageCreateParamsNonStreaming);
        assertEquals(said.type === "text" && said.text, expected.output_text);

        const line = (custom_id: string, body: object) =>
          JSON.stringify({ custom_id, method: "POST", url: "/v1/responses", body });
        const input = await client.files.create({
          file: await toFile(
            new TextEncoder().encode(
              [line("a", askedInResponses(id)), line("b", askedInResponses("file-x"))].join("\n"),
            ),
            "in.jsonl",
          ),
          purpose: "batch",
        });
        const { id: batch } = await createBatch(client, input.id, { endpoint: "/v1/responses" });
        const ended = await waitFor(client, batch, "completed");
        const [{ response: { body } }] = await linesOf(client, ended.output_file_id);
        assertEquals(body.output[0].content[0].text, expected.output_text);
        const [{ response: { body: { error } } }] = await linesOf(client, ended.error_file_id);
        assertEquals([error.code, error.param], ["invalid_image", "input[0].content[0].file_id"]);

        const other = new OpenAI({ baseURL: `${base}/v1`, apiKey: KEYS[1], maxRetries: 0 });
        const refusal = await other.responses.create(askedInResponses(id)).catch((error) => error);
        assert(refusal instanceof OpenAI.APIError);
        assertEquals([refusal.status, refusal.code, refusal.param], [
          400,
          "invalid_image",
          "input[0].content[0].file_id",
        ]);
        assertStringIncludes(refusal.message, `there is no file "${id}"`);
        const wrong = await createBatch(client, id).catch((error) => error);
        assertEquals([wrong.status, wrong.code], [400, "invalid_value"]);

        await client.files.delete(id);
        const next = await client.responses.create({
          model: "model",
          input: "And?",
          previous_response_id: first.id,
        }).catch((error) => error);
        assertEquals([next.status, next.param], [400, "previous_response_id"]);
        assertEquals(reports, []);
      });
    });
  });
});

Deno.test("images: fetches URLs of allowed hosts for requests and batch lines, and refuses all URLs without allowed hosts", async () => {
  await withModel({ tower: "qwen3vl", type: "Q8_0", seed: 6 }, async (engine) => {
    const bytes = await png(96, 64, 1);
    const fetchImage = (url: string) =>
      Promise.resolve(url.endsWith("/a.png") ? bytes.slice() : "its host answers 404");
    const body = (url: string) => ({
      messages: [{
        role: "user",
        content: [{ type: "image_url", image_url: { url } }, { type: "text", text: TEXT }],
      }],
      max_tokens: 4,
      temperature: 0,
    });
    const inline = body(`data:image/png;base64,${bytes.toBase64()}`);
    const url = "/v1/chat/completions";
    const ask = async (asked: unknown, options: object = { fetchImage }) => {
      const headers = { "content-type": "application/json" };
      const init = { method: "POST", headers, body: JSON.stringify(asked) };
      return await (await createApp(engine, options).request(url, init)).json();
    };
    const { choices } = await ask(inline);
    assertEquals((await ask(body("https://img.example/a.png"))).choices, choices);
    const line = await execute(engine, { url, body: body("https://img.example/a.png"), fetchImage });
    assertEquals(line.body.choices, choices);
    const gone = await ask(body("https://img.example/b.png"));
    assertEquals([gone.error.code, gone.error.param], ["invalid_image", "messages[0].content[0].image_url"]);
    assertStringIncludes(gone.error.message, "its host answers 404");
    const { error } = await ask(body("https://img.example/a.png"), {});
    assertEquals(error.code, "unsupported_image_url");
    assertStringIncludes(error.message, "the server fetches no images");
    assertEquals((await ask(body("http://img.example/a.png"))).error.code, "unsupported_image_url");
  });
});
