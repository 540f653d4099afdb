import { assert, assertAlmostEquals, assertEquals, assertRejects } from "@std/assert";
import { type ChatRequest, Ollama } from "ollama";
import { testPool } from "../../engine/models/testing.ts";
import { createApp } from "../app.ts";
import { FakeEngine } from "../testing.ts";
import { type TestServer, until, withServer } from "../testing_server.ts";

/* Ollama's unmodified client; the fake model writes thoughts and calls in channels. */

const THINK = "<|start|>think\nParis 🙂";
const ROME = '<|start|>call time\n{"city": "Rome"}';
const SAID = "<|start|>text\nHere you are";
const TEXT = "Hello, wörld 🙂!";
const messages = [{ role: "user", content: "Weather in Rome?" }];
const usual = { model: "demo", messages };
const tools = [{
  type: "function",
  function: {
    name: "time",
    description: "The time somewhere",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
}];
const MOOD = { type: "object", properties: { mood: { type: "string" } }, required: ["mood"] };

const clientOf = ({ base }: TestServer) => new Ollama({ host: base });
const replying = (text: string) => ({ reply: () => text });

/** Returns the whole answer, after checking that the stream adds up to the same one. */
async function both(server: TestServer, body: Partial<ChatRequest> = {}) {
  const client = clientOf(server);
  const whole = await client.chat({ ...usual, ...body, stream: false });
  const parts = await Array.fromAsync(await client.chat({ ...usual, ...body, stream: true }));
  const last = parts.at(-1)!;
  const join = (field: "content" | "thinking") => parts.map(({ message }) => message[field] ?? "").join("");
  const calls = parts.flatMap(({ message }) => message.tool_calls ?? []);
  assertEquals(join("content"), whole.message.content);
  assertEquals(join("thinking"), whole.message.thinking ?? "");
  assertEquals(calls, whole.message.tool_calls ?? []);
  assert(parts.slice(0, -1).every(({ done }) => !done));
  const counts = ({ done, done_reason, eval_count, prompt_eval_count }: typeof whole) => {
    return { done, done_reason, eval_count, prompt_eval_count };
  };
  assertEquals(counts(last), counts(whole));
  return { whole, parts };
}

Deno.test("Ollama: chat answers whole and streamed, with counts and durations", async () => {
  await withServer({}, async (server) => {
    const { whole, parts } = await both(server, { model: "demo:latest" });
    assertEquals(whole.message, { role: "assistant", content: TEXT });
    assertEquals([whole.model, whole.done, whole.done_reason], ["demo:latest", true, "stop"]);
    assert(parts.length > 3);
    const [request] = server.engine.requests;
    assertEquals(whole.prompt_eval_count, request.prompt.length);
    assertEquals(whole.eval_count, new TextEncoder().encode(TEXT).length + 1);
    assert(whole.total_duration > 0 && whole.total_duration < 5e9);
    assert(Number.isSafeInteger(whole.load_duration) && Number.isSafeInteger(whole.prompt_eval_duration));
    assert(Math.abs(Date.parse(whole.created_at as unknown as string) - Date.now()) < 60_000);
  });
});

Deno.test("Ollama: runs the same prompt, form and sampling as /v1/chat/completions", async () => {
  await withServer(replying("{}"), async (server) => {
    const conversation = [
      { role: "system", content: "Be brief" },
      { role: "user", content: "Rome?" },
      {
        role: "assistant",
        content: "",
        tool_calls: [{ function: { name: "time", arguments: { city: "Rome" } } }],
      },
      { role: "tool", content: "noon", tool_name: "time" },
    ];
    const settings = { temperature: 0.5, top_k: 7, top_p: 0.9, min_p: 0.1, seed: 3 };
    await clientOf(server).chat({
      model: "demo",
      messages: conversation,
      tools,
      format: MOOD,
      think: "low",
      options: {
        ...settings,
        repeat_penalty: 1.2,
        presence_penalty: 0.5,
        num_predict: 9,
        stop: ["x"],
        num_gpu: 1,
      },
    });
    const id = `call_${"1".padStart(24, "0")}`;
    await server.post("/v1/chat/completions", {
      model: "demo",
      messages: [
        ...conversation.slice(0, 2),
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id, function: { name: "time", arguments: '{"city":"Rome"}' } }],
        },
        { role: "tool", content: "noon", tool_call_id: id, name: "time" },
      ],
      tools,
      response_format: { type: "json_schema", json_schema: { name: "mood", schema: MOOD } },
      reasoning_effort: "low",
      ...settings,
      repetition_penalty: 1.2,
      presence_penalty: 0.5,
      max_tokens: 9,
      stop: ["x"],
    }).then((response) => response.json());
    const [ours, theirs] = server.engine.requests.map(({ signal: _, ...request }) => request);
    assertEquals(ours, theirs);
    const [asked, wanted] = server.engine.chatForm.conversations;
    assertEquals(
      JSON.parse(JSON.stringify(asked)),
      JSON.parse(
        JSON.stringify({
          ...wanted,
          toolChoice: undefined,
          parallelToolCalls: undefined,
          variables: undefined,
        }),
      ),
    );
  });
});

Deno.test("Ollama: a call arrives whole, with its arguments as an object and without an id", async () => {
  await withServer(replying(SAID + ROME + ROME), async (server) => {
    const { whole, parts } = await both(server, { tools });
    const call = { function: { name: "time", arguments: { city: "Rome" } } };
    assertEquals(whole.message, { role: "assistant", content: "Here you are", tool_calls: [call, call] });
    assertEquals(whole.done_reason, "stop");
    assertEquals(parts.filter(({ message }) => message.tool_calls).length, 2);
  });
});

Deno.test("Ollama: leaves out a call that the token limit truncates", async () => {
  await withServer(replying(ROME), async (server) => {
    const { whole } = await both(server, { tools, options: { num_predict: 20 } });
    assertEquals([whole.message.tool_calls, whole.done_reason], [undefined, "length"]);
  });
});

Deno.test("Ollama: turns thinking on and off, and separates it from the content", async () => {
  await withServer(replying(THINK + SAID), async (server) => {
    const { whole } = await both(server, { think: true });
    assertEquals(whole.message, { role: "assistant", content: "Here you are", thinking: "Paris 🙂" });
    await both(server, { think: false });
    await both(server);
    const efforts = server.engine.chatForm.conversations.map(({ effort }) => effort);
    assertEquals(efforts, ["medium", "medium", false, false, undefined, undefined]);
    const thought = { role: "assistant", content: "Hm", thinking: "Paris" };
    await clientOf(server).chat({ model: "demo", messages: [...messages, thought, ...messages] });
    const [, sent] = server.engine.chatForm.conversations.at(-1)!.messages;
    assertEquals(sent.reasoning_content, "Paris");
  });
});

Deno.test("Ollama: format constrains the answer to any JSON object or to a schema", async () => {
  await withServer(replying("{}"), async (server) => {
    for (const format of ["json", MOOD, ""]) await both(server, { format });
    const forms = server.engine.requests.filter((_, i) => i % 2 === 0).map(({ constraint }) => constraint);
    assertEquals(forms, [
      { kind: "json_schema", schema: { type: "object" } },
      { kind: "json_schema", schema: MOOD },
      undefined,
    ]);
  });
});

Deno.test("Ollama: log-probabilities cover the content", async () => {
  await withServer(replying("ab"), async (server) => {
    const { whole } = await both(server, { logprobs: true, top_logprobs: 2 });
    assertEquals(whole.logprobs?.map(({ token, top_logprobs }) => [token, top_logprobs?.length]), [["a", 2], [
      "b",
      2,
    ]]);
  });
});

Deno.test("Ollama: generate answers a prompt with the template, a raw prompt, and a gap before a suffix", async () => {
  const infill = { prefix: 1, suffix: 2, middle: 3, repo: undefined, file: undefined };
  await withServer({ infill }, async (server) => {
    const client = clientOf(server);
    const base = { model: "demo", prompt: "Hi" };
    const whole = await client.generate({ ...base, system: "Be brief" });
    assertEquals([whole.response, whole.done, whole.done_reason], [TEXT, true, "stop"]);
    const parts = await Array.fromAsync(await client.generate({ ...base, stream: true }));
    assertEquals(parts.map(({ response }) => response).join(""), TEXT);
    await client.generate({ ...base, raw: true });
    await client.generate({ ...base, suffix: "end" });
    const [system, streamed, raw, gap] = server.engine.requests.map(({ prompt }) => prompt);
    const chat = [{ role: "system", content: "Be brief" }, { role: "user", content: "Hi" }];
    assertEquals(system, server.engine.encodeChat(chat, { addGenerationPrompt: true }));
    assertEquals(streamed, server.engine.encodeChat(chat.slice(1), { addGenerationPrompt: true }));
    assertEquals(raw, server.engine.encodePrompt("Hi"));
    assertEquals(gap, [256, 1, 72, 105, 2, 101, 110, 100, 3]);
  });
});

Deno.test("Ollama: num_ctx bounds prompt and answer together", async () => {
  await withServer({}, async (server) => {
    const client = clientOf(server);
    const base = { model: "demo", prompt: "Hi", raw: true };
    const { eval_count, done_reason } = await client.generate({
      ...base,
      options: { num_ctx: 8, tfs_z: null } as never,
    });
    assertEquals([eval_count, done_reason], [5, "length"]);
    await assertRejects(
      () => client.generate({ ...base, options: { num_ctx: 3 } }),
      Error,
      "maximum context length is 3 tokens",
    );
    await assertRejects(
      () => client.generate({ ...base, options: { num_ctx: 4096 } }),
      Error,
      "at most 1024",
    );
  });
});

Deno.test("Ollama: embed gives rows of length 1 and cuts long texts unless told not to", async () => {
  await withServer({}, async (server) => {
    const client = clientOf(server);
    const { embeddings, prompt_eval_count } = await client.embed({ model: "demo", input: ["a", "b"] });
    assertEquals([embeddings.length, embeddings[0].length, prompt_eval_count], [2, 8, 4]);
    assertAlmostEquals(Math.hypot(...embeddings[0]), 1, 1e-6);
    const { embedding } = await client.embeddings({ model: "demo", prompt: "a" });
    assertEquals(embedding, embeddings[0]);
    const short = await client.embed({ model: "demo", input: "b", dimensions: 3 });
    assertEquals(short.embeddings[0].length, 3);
    const long = "x".repeat(2000);
    assertEquals((await client.embed({ model: "demo", input: long })).prompt_eval_count, 1024);
    await assertRejects(
      () => client.embed({ model: "demo", input: long, truncate: false }),
      Error,
      "2001 tokens",
    );
  });
});

Deno.test("Ollama: list, ps, show and version describe the model", async () => {
  await withServer({}, async (server) => {
    const client = clientOf(server);
    const { models: [listed, ...others] } = await client.list();
    assertEquals([listed.name, listed.details.format, others], ["demo:latest", "gguf", []]);
    assertEquals(listed.size, (await Deno.stat("models/demo.gguf")).size);
    assert(/^[0-9a-f]{64}$/.test(listed.digest));
    const { models: [running] } = await client.ps();
    assertEquals(running.expires_at as unknown as string, "9999-12-31T23:59:59.000Z");
    const shown = await client.show({ model: "demo" });
    const info = shown.model_info as unknown as Record<string, unknown>;
    assertEquals([info["general.architecture"], info["fake.context_length"]], ["fake", 1024]);
    assertEquals(shown.capabilities, ["completion", "thinking"]);
    const version = await (await fetch(`${server.base}/api/version`)).json();
    const [major, minor, patch] = version.version.split(".").map(Number);
    // Codex refuses older versions, which had no Responses API.
    assert(major > 0 || minor > 13 || minor === 13 && patch >= 4, version.version);
  });
});

Deno.test("Ollama: pull succeeds for a model that the server has", async () => {
  await withServer({}, async (server) => {
    const client = clientOf(server);
    assertEquals((await client.pull({ model: "demo" })).status, "success");
    const rows = await Array.fromAsync(await client.pull({ model: "demo:latest", stream: true }));
    assertEquals(rows.at(-1)!.status, "success");
  });
});

Deno.test("Ollama: an error is a string in the field error, also in a stream", async () => {
  await withServer({ failure: new Error("secret"), chunk: 16, tokenMs: 60 }, async (server) => {
    const client = clientOf(server);
    await assertRejects(() => client.show({ model: "none" }), Error, 'There is no model "none" here');
    const unload = { model: "demo", prompt: "", keep_alive: 0 };
    await assertRejects(() => client.generate(unload), Error, 'Cannot unload "demo"');
    await assertRejects(() => client.delete({ model: "demo" }), Error, 'Unknown path "/api/delete"');
    await assertRejects(
      () => client.pull({ model: "llama3.2" }),
      Error,
      "This server downloads no models",
    );
    // Progress delays the failure until the status line is sent.
    const stream = await client.generate({ model: "demo", prompt: "Hi ".repeat(20), stream: true });
    await assertRejects(() => Array.fromAsync(stream), Error, "The server failed on this request");
    const response = await server.post("/api/chat", usual);
    assertEquals(response.headers.get("content-type"), "application/x-ndjson; charset=utf-8");
    assertEquals(Object.keys(JSON.parse(await response.text())), ["error", "code", "param"]);
    server.errors.length = 0;
  });
});

Deno.test("Ollama: empty chunks keep a stream open while the prompt is read", async () => {
  const slow = { ...replying("ab"), chunk: 16, tokenMs: 60, limits: { keepAliveMs: 20 } };
  await withServer(slow, async (server) => {
    const parts = await Array.fromAsync(await clientOf(server).chat({ ...usual, stream: true }));
    assert(parts.filter(({ message: { content } }) => content === "").length > 2);
    assertEquals(parts.map(({ message }) => message.content).join(""), "ab");
    assert(parts.slice(0, -1).every(({ done }) => !done));
  });
});

Deno.test("Ollama: without a key or with a wrong Host, its paths are refused in its error format", async () => {
  await withServer({ apiKeys: ["secret"] }, async (server) => {
    const refused = await server.post("/api/chat", usual);
    assertEquals([refused.status, typeof (await refused.json()).error], [401, "string"]);
    const client = new Ollama({ host: server.base, headers: { authorization: "Bearer secret" } });
    assertEquals((await client.list()).models.length, 1);
    await client.chat(usual);
    const metrics = await fetch(`${server.base}/metrics`, { headers: { "x-api-key": "secret" } });
    assert((await metrics.text()).includes('route="/api/chat",status="200"'));
  });
  const foreign = await createApp(new FakeEngine()).request("/api/tags", {
    headers: { host: "evil.example" },
  });
  assertEquals([foreign.status, typeof (await foreign.json()).error], [403, "string"]);
});

Deno.test("Ollama: an empty prompt loads a model, and keep_alive says how long it stays", async () => {
  const { pool, log } = testPool();
  const app = createApp(pool);
  const ask = async (path: string, body?: unknown) => {
    const headers = { "content-type": "application/json" };
    const init = body === undefined ? {} : { method: "POST", headers, body: JSON.stringify(body) };
    return await (await app.request(path, init)).json();
  };
  try {
    const loaded = await ask("/api/chat", { model: "a:latest", messages: [], keep_alive: "10m" });
    assertEquals([loaded.done, loaded.done_reason, loaded.message.content, log], [true, "load", "", [
      "load a",
    ]]);
    const { models: [running, ...others] } = await ask("/api/ps");
    assertEquals([running.name, others.map(({ name }: { name: string }) => name)], ["a:latest", []]);
    const left = Date.parse(running.expires_at) - Date.now();
    assert(left > 590_000 && left < 601_000, `${left}`);
    const names = (await ask("/api/tags")).models.map(({ name }: { name: string }) => name);
    assertEquals(names.slice(0, 3), ["a:latest", "a-alias:latest", "b:latest"]);
    // Without keep_alive the server's setting counts again: models stay.
    await ask("/api/generate", { model: "a", prompt: "Hi", stream: false });
    assertEquals((await ask("/api/ps")).models[0].expires_at, "9999-12-31T23:59:59.000Z");
    const answered = await ask("/api/generate", { model: "a", prompt: "Hi", stream: false, keep_alive: 0 });
    assertEquals(answered.done_reason, "stop");
    await until(() => log.includes("close a"));
    await ask("/api/generate", { model: "b", keep_alive: -1 });
    assertEquals((await ask("/api/generate", { model: "b", keep_alive: "0s" })).done_reason, "unload");
    assertEquals(log, ["load a", "close a", "load b", "close b"]);
  } finally {
    await pool.close();
  }
});
