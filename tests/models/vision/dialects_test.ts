/** Images in every dialect, by a seeded model: the same prompt, its tokens in usage, streams, and results of tools. */
import { assert, assertEquals } from "@std/assert";
import { loadEngine } from "../../../engine/load/load.ts";
import { fullTier } from "../../../testing/tier.ts";
import { execute } from "../../../routes/execute.ts";
import { createApp } from "../../../routes/app.ts";
import { withFiles } from "./files.ts";
import { png } from "./pictures.ts";

const TEXT = "What is this?";
/** Tokens of an image of 320 x 256 pixels, with the two marks around them. */
const IMAGE_TOKENS = 320 / 32 * 256 / 32 + 2;

// deno-lint-ignore no-explicit-any -- shapes are what the tests are about
type Json = any;
type App = ReturnType<typeof createApp>;
type Post = (path: string, body: unknown) => Promise<{ status: number; body: Json; text: string }>;

/** Runs `test` with a function that posts to a server for the model. */
async function withServer(tower: boolean, test: (post: Post, app: App) => Promise<void>): Promise<void> {
  await withFiles({ tower: "qwen3vl", type: "Q8_0", seed: 6 }, async ({ model, tower: file }) => {
    if (!tower) await Deno.remove(file);
    const { engine } = await loadEngine({ model, backend: "cpu", threads: 2, contextLength: 1024 });
    const app = createApp(engine);
    try {
      await test(async (path, body) => {
        const headers = { "content-type": "application/json" };
        const response = await app.request(path, { method: "POST", headers, body: JSON.stringify(body) });
        const text = await response.text();
        return {
          status: response.status,
          text,
          body: text.startsWith("{") ? JSON.parse(text.split("\n")[0]) : {},
        };
      }, app);
    } finally {
      await engine.close();
    }
  });
}

const usual = { max_tokens: 6, temperature: 0, ignore_eos: true };

/** A request about an image in each dialect; how its answer is read; its prompt tokens; and the image's field. */
const DIALECTS: Readonly<
  Record<string, {
    body: (base64: string) => Record<string, unknown>;
    answer: (body: Json) => string;
    tokens: (body: Json) => number;
    param: string;
  }>
> = {
  "/v1/chat/completions": {
    body: (data) => ({
      ...usual,
      messages: [{
        role: "user",
        content: [{ type: "image_url", image_url: { url: urlOf(data) } }, { type: "text", text: TEXT }],
      }],
    }),
    answer: ({ choices: [{ message }] }) => message.content,
    tokens: ({ usage }) => usage.prompt_tokens,
    param: "messages[0].content[0].image_url",
  },
  "/v1/responses": {
    body: (data) => ({
      ...usual,
      max_tokens: undefined,
      max_output_tokens: 6,
      input: [{
        role: "user",
        content: [{ type: "input_image", image_url: urlOf(data) }, { type: "input_text", text: TEXT }],
      }],
    }),
    answer: ({ output }) => output[0].content[0].text,
    tokens: ({ usage }) => usage.input_tokens,
    param: "input[0].content[0].image_url",
  },
  "/v1/messages": {
    body: (data) => ({
      ...usual,
      messages: [{
        role: "user",
        content: [
          { type: "image", source: { type: "base64", media_type: "image/png", data } },
          { type: "text", text: TEXT },
        ],
      }],
    }),
    answer: ({ content }) => content[0].text,
    tokens: ({ usage }) => usage.input_tokens + (usage.cache_read_input_tokens ?? 0),
    param: "messages[0].content[0].source",
  },
  "/api/chat": {
    body: (data) => ({
      options: { num_predict: 6, temperature: 0 },
      stream: false,
      messages: [{ role: "user", content: TEXT, images: [data] }],
    }),
    answer: ({ message }) => message.content,
    tokens: ({ prompt_eval_count }) => prompt_eval_count,
    param: "messages[0].images[0]",
  },
  "/api/generate": {
    body: (data) => ({
      options: { num_predict: 6, temperature: 0 },
      stream: false,
      prompt: TEXT,
      images: [data],
    }),
    answer: ({ response }) => response,
    tokens: ({ prompt_eval_count }) => prompt_eval_count,
    param: "images[0]",
  },
};
/** The same question for llama-server's endpoint, in the text that the model's template writes. */
const llamaServer = (data: string, places = 1) => ({
  prompt: {
    prompt_string: `<|im_start|>user\n${
      "<__media__>".repeat(places)
    }${TEXT}<|im_end|>\n<|im_start|>assistant\n`,
    multimodal_data: [data],
  },
  n_predict: 6,
  temperature: 0,
  ignore_eos: true,
});
const urlOf = (base64: string) => `data:image/png;base64,${base64}`;
const errorOf = ({ error, code }: Json) =>
  error?.param ? [error.code, error.param] : [error?.code ?? code, undefined];

Deno.test("images: every dialect gives the same answer about an image, and counts its tokens", async () => {
  await withServer(true, async (post, app) => {
    assertEquals(await told(app), Array(4).fill(true));
    const data = (await png(320, 256, 1)).toBase64();
    const plain = await post("/v1/chat/completions", {
      ...usual,
      messages: [{ role: "user", content: TEXT }],
    });
    const answers = new Set<string>();
    for (const [path, { body, answer, tokens }] of Object.entries(DIALECTS)) {
      const got = await post(path, body(data));
      assertEquals(got.status, 200, got.text);
      assertEquals(tokens(got.body) - plain.body.usage.prompt_tokens, IMAGE_TOKENS, path);
      answers.add(answer(got.body));
    }
    const completed = await post("/completion", llamaServer(data));
    assertEquals(completed.status, 200, completed.text);
    answers.add(completed.body.content);
    assertEquals(answers.size, 1, JSON.stringify([...answers]));
    const wrong = await post("/completion", llamaServer(data, 2));
    assertEquals([wrong.status, wrong.body.error.param], [400, "prompt.prompt_string"], wrong.text);
    const damaged = await post("/completion", llamaServer("AAAA"));
    assertEquals(
      [damaged.status, damaged.body.error.param],
      [400, "prompt.multimodal_data[0]"],
      damaged.text,
    );
    assert(!answers.has(plain.body.choices[0].message.content));
    const { model: _, max_tokens: __, temperature: ___, ignore_eos: ____, ...counted } =
      DIALECTS["/v1/messages"].body(data) as Json;
    const count = await post("/v1/messages/count_tokens", counted);
    assertEquals(count.body.input_tokens - plain.body.usage.prompt_tokens, IMAGE_TOKENS);
    const { input } = DIALECTS["/v1/responses"].body(data);
    const inputTokens = await post("/v1/responses/input_tokens", { input });
    assertEquals(inputTokens.body.input_tokens, count.body.input_tokens);
    assertEquals((await post("/api/show", { model: "model" })).body.capabilities.includes("vision"), true);
  });
});

fullTier.test("images: streams, several answers, stop texts and schemas answer about images too", async () => {
  await withServer(true, async (post) => {
    const data = (await png(64, 64, 1)).toBase64();
    const asked = DIALECTS["/v1/chat/completions"].body(data);
    const whole = await post("/v1/chat/completions", asked);
    const { content } = whole.body.choices[0].message;
    const streamed = await post("/v1/chat/completions", { ...asked, stream: true });
    const deltas = streamed.text.split("\n").filter((line) => line.startsWith("data: {"))
      .map((line) => JSON.parse(line.slice(6)).choices[0]?.delta.content ?? "");
    assertEquals(deltas.join(""), content);
    const two = await post("/v1/chat/completions", { ...asked, n: 2 });
    assertEquals(two.body.choices.map(({ message }: Json) => message.content), [content, content]);
    const stop = [...content][3];
    const stopped = await post("/v1/chat/completions", { ...asked, stop });
    assertEquals(stopped.body.choices[0].message.content, content.slice(0, content.indexOf(stop)));
    const schema = { enum: ["cat", "dog"] };
    const format = { type: "json_schema", json_schema: { name: "a", schema } };
    const formed = await post("/v1/chat/completions", {
      ...asked,
      ignore_eos: false,
      response_format: format,
    });
    assert(["cat", "dog"].includes(JSON.parse(formed.body.choices[0].message.content)), formed.text);
    const events = await post("/v1/messages", { ...DIALECTS["/v1/messages"].body(data), stream: true });
    const start = JSON.parse(events.text.split("\n").find((line) => line.startsWith("data: "))!.slice(6));
    const { body, tokens } = DIALECTS["/v1/messages"];
    assertEquals(tokens(start.message), tokens((await post("/v1/messages", body(data))).body));
  });
});

fullTier.test("images: tools' results show their images, and say which images are left out", async () => {
  await withServer(true, async (post) => {
    const data = (await png(64, 64, 1)).toBase64();
    const prompt = async (...content: unknown[]) => {
      const call = { id: "a", type: "function", function: { name: "look", arguments: "{}" } };
      const messages = [
        { role: "user", content: TEXT },
        { role: "assistant", content: null, tool_calls: [call] },
        { role: "tool", tool_call_id: "a", content },
      ];
      return (await post("/apply-template", { messages })).body.prompt as string;
    };
    const image = (url: string) => ({ type: "image_url", image_url: { url } });
    const seen = await prompt({ type: "text", text: "seen" }, image(urlOf(data)));
    assert(seen.includes("seen<|vision_start|><|image_pad|><|vision_end|>"), seen);
    const left = await prompt(image("https://a.example/b.png"), image(urlOf("AAAA")), image(""));
    assert(!left.includes("<|image_pad|>") && left.split("[image left out: it must be").length === 4, left);
    const many = await prompt(...Array.from({ length: 10 }, () => image(urlOf(data))));
    assertEquals(many.split("[image left out: a request may have at most 8 images]").length, 3);
    assertEquals(many.split("<|image_pad|>").length, 9);
  });
});

/** Returns for each endpoint whether it says that the model reads images. */
async function told(app: App): Promise<boolean[]> {
  const get = async (path: string, body?: string): Promise<Json> =>
    await (await app.request(path, {
      method: body ? "POST" : "GET",
      headers: body ? { "content-type": "application/json" } : {},
      body,
    })).json();
  const [{ data: [{ architecture }] }, { modalities }, { models: [{ details }] }, { capabilities }] =
    await Promise
      .all([get("/v1/models"), get("/props"), get("/api/tags"), get("/api/show", '{"model":"model"}')]);
  return [
    architecture.input_modalities.includes("image"),
    modalities.vision,
    details.families.includes("clip"),
    capabilities.includes("vision"),
  ];
}

Deno.test("images: without a tower, every dialect refuses images, says why, and names the field", async () => {
  await withServer(false, async (post, app) => {
    assertEquals(await told(app), Array(4).fill(false));
    const data = (await png(64, 64, 1)).toBase64();
    for (const [path, { body, param }] of Object.entries(DIALECTS)) {
      const { status, text, body: refusal } = await post(path, body(data));
      assertEquals(status, 400, path);
      assert(text.includes("this model reads text only"), text);
      if (path.startsWith("/v1/") && path !== "/v1/messages") {
        assertEquals(errorOf(refusal), ["unsupported_content", param]);
      } else assert(text.includes(param) || path.startsWith("/api"), text);
    }
  });
});

fullTier.test("images: batch lines of every endpoint may have images", async () => {
  await withFiles({ tower: "qwen3vl", type: "Q8_0", seed: 6 }, async ({ model }) => {
    const { engine } = await loadEngine({ model, backend: "cpu", threads: 2, contextLength: 1024 });
    try {
      const data = (await png(64, 64, 1)).toBase64();
      const answers = new Set<string>();
      for (const path of ["/v1/chat/completions", "/v1/responses", "/v1/messages"]) {
        const { body, answer } = DIALECTS[path];
        const { status, body: got } = await execute(engine, {
          url: path,
          body: body(data),
          priority: "batch",
        });
        assertEquals(status, 200, path);
        answers.add(answer(got));
      }
      assertEquals(answers.size, 1);
      const files = {
        messages: [{ role: "user", content: [{ type: "image_url", image_url: "file:a.png" }] }],
      };
      const refused = await execute(engine, { url: "/v1/chat/completions", body: files });
      assertEquals([refused.status, (refused.body.error as Json).code], [400, "unsupported_image_url"]);
    } finally {
      await engine.close();
    }
  });
});
