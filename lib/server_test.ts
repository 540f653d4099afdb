import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { Hono } from "hono";
import { CompyError } from "./errors.ts";
import { loadModel, type Model } from "./model.ts";
import { createServer } from "./server.ts";
import type { ServerOptions } from "./server_types.ts";

const open = (id = "demo") => loadModel(undefined, { threads: 1, parallel: 2, ctx: 128, id });

const asking = (body: object = {}, headers: Record<string, string> = {}) => ({
  method: "POST",
  headers: { "content-type": "application/json", ...headers },
  body: JSON.stringify({
    messages: [{ role: "user", content: "Who are you?" }],
    temperature: 0,
    ...body,
  }),
});

const chatAt = (base: string, body?: object, headers?: Record<string, string>) =>
  new Request(`${base}/v1/chat/completions`, asking(body, headers));

const contentOf = async (response: Response) => {
  assertEquals(response.status, 200);
  return (await response.json()).choices[0].message.content;
};

async function expected(model: Model): Promise<string> {
  return (await model.chat("Who are you?", { temperature: 0 }).answer()).text;
}

Deno.test("createServer: answers like the model, can be mounted into another app, and does not close the model", async () => {
  await using model = await open();
  const text = await expected(model);
  {
    await using server = await createServer(model, { pathPrefix: undefined });
    assertEquals(await contentOf(await server.fetch(chatAt("http://localhost"))), text);
    const own = new Hono();
    own.get("/", (c) => c.text("mine"));
    own.mount("/llm", server.fetch);
    assertEquals(await (await own.request("/")).text(), "mine");
    assertEquals(await contentOf(await own.fetch(chatAt("http://localhost/llm"))), text);
    const stream = await own.fetch(chatAt("http://localhost/llm", { stream: true }));
    const events = (await stream.text()).trim().split("\n\n").map((event) => event.replace("data: ", ""));
    const said = events.slice(0, -1).map((event) => JSON.parse(event).choices[0].delta.content ?? "");
    assertEquals([said.join(""), events.at(-1)], [text, "[DONE]"]);
    const unknown = await own.request("http://localhost/llm/v2");
    assertEquals([unknown.status, (await unknown.json()).error.code], [404, "unknown_url"]);
    await server.close();
    assertEquals((await server.fetch(chatAt("http://localhost"))).status, 503);
  }
  assertEquals(await expected(model), text, "it keeps running without the server");
});

Deno.test("createServer: serves several models, and each request names one", async () => {
  await using one = await open("one");
  await using two = await open("two");
  await using server = await createServer([one, two]);
  const models = await (await server.fetch(new Request("http://localhost/v1/models"))).json();
  assertEquals(models.data.map(({ id }: { id: string }) => id), ["one", "two"]);
  const answer = await (await server.fetch(chatAt("http://localhost", { model: "two" }))).json();
  assertEquals(answer.model, "two");
  const unnamed = await (await server.fetch(chatAt("http://localhost"))).json();
  assertEquals(unnamed.error.code, "model_required");
  const other = await (await server.fetch(chatAt("http://localhost", { model: "three" }))).json();
  assertEquals(other.error.code, "model_not_found");
});

Deno.test("createServer: listens with keys; closing it ends requests in time but not the model", async () => {
  await using model = await open();
  const server = await createServer(model, { apiKeys: ["secret"], openHealth: true });
  const { url, port } = server.listen({ drainMs: 50 });
  assert(url.endsWith(`:${port}`) && port > 0);
  assertThrows(() => server.listen(), CompyError, "listens already");
  assertEquals((await fetch(`${url}/health`)).status, 200);
  const refused = await fetch(chatAt(url));
  assertEquals(refused.status, 401);
  await refused.body?.cancel();
  const authorization = "Bearer secret";
  assertEquals(await contentOf(await fetch(chatAt(url, {}, { authorization }))), await expected(model));
  const endless = await fetch(
    chatAt(url, { stream: true, ignore_eos: true, max_tokens: 100 }, { authorization }),
  );
  await server[Symbol.asyncDispose]();
  await endless.text().catch(() => {});
  await assertRejects(() => fetch(`${url}/health`));
  assertEquals((await model.chat("Hi", { maxTokens: 3 }).answer()).usage.completionTokens, 3);
});

Deno.test("createServer: stores files and batches in a folder, and a later server resumes them", async () => {
  await using model = await open();
  const data = await Deno.makeTempDir({ prefix: "lib-server-" });
  try {
    let id = "";
    const get = async (server: Awaited<ReturnType<typeof createServer>>, path: string) =>
      await (await server.fetch(new Request(`http://localhost/v1/${path}`))).json();
    {
      await using server = await createServer(model, { data });
      const lines = Array.from({ length: 40 }, (_, i) => ({
        custom_id: `q${i}`,
        method: "POST",
        url: "/v1/chat/completions",
        body: { messages: [{ role: "user", content: `Count to ${i}` }], max_tokens: 20, ignore_eos: true },
      }));
      const form = new FormData();
      form.append("purpose", "batch");
      form.append("file", new File([lines.map((line) => JSON.stringify(line)).join("\n")], "in.jsonl"));
      const upload = await server.fetch(
        new Request("http://localhost/v1/files", { method: "POST", body: form }),
      );
      const file = await upload.json();
      const made = await server.fetch(
        new Request("http://localhost/v1/batches", {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({
            input_file_id: file.id,
            endpoint: "/v1/chat/completions",
            completion_window: "24h",
          }),
        }),
      );
      id = (await made.json()).id;
    }
    await using server = await createServer(model, { data });
    for (let tries = 0;; tries++) {
      const batch = await get(server, `batches/${id}`);
      if (batch.status === "completed") {
        assertEquals(batch.request_counts, { total: 40, completed: 40, failed: 0 });
        break;
      }
      assert(tries < 300, JSON.stringify(batch));
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const busy = await assertRejects(() => createServer(model, { data }), CompyError);
    assertEquals(busy.code, "data_unusable");
  } finally {
    await Deno.remove(data, { recursive: true });
  }
});

Deno.test("createServer: throws an error with a code if a server cannot be created", async () => {
  await using model = await open();
  await using twin = await open();
  const made: [code: string, models: Model | Model[], options: unknown, words: string][] = [
    ["invalid_request", [], {}, "Invalid models"],
    [
      "invalid_request",
      [model, twin],
      {},
      'must have different ids; load one with another `id` (got "demo")',
    ],
    ["invalid_request", model, { apiKey: "x" }, 'There is no option "apiKey"'],
    ["invalid_request", model, { apiKeys: ["bad key"] }, ""],
    ["invalid_request", model, { data: "/tmp", batchLines: 0 }, "Invalid batchLines"],
  ];
  for (const [code, models, options, words] of made) {
    const error = await assertRejects(
      () => createServer(models, options as ServerOptions),
      CompyError,
      words,
    );
    assertEquals(error.code, code as CompyError["code"], error.message);
  }
  await using server = await createServer(model);
  const open1 = assertThrows(() => server.listen({ host: "0.0.0.0" }), CompyError, "needs an API key");
  assertEquals(open1.code, "cannot_listen");
  using taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = taken.addr as Deno.NetAddr;
  const busy = assertThrows(() => server.listen({ port }), CompyError, `Cannot listen on 127.0.0.1:${port}`);
  assertEquals(busy.code, "cannot_listen");
});
