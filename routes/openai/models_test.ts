import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { testPool, type TestPoolOptions } from "../../engine/models/testing.ts";
import { createApp } from "../app.ts";
import { KeyRing } from "../access/keys.ts";
import { FakeEngine } from "../testing.ts";
import { until } from "../testing_server.ts";

const chat = { messages: [{ role: "user", content: "Hi" }] };

/** Returns functions that send requests to an app as clients do. */
function clientOf(served: Parameters<typeof createApp>[0], options: Parameters<typeof createApp>[1] = {}) {
  const app = createApp(served, options);
  const send = (path: string, body?: unknown, init: RequestInit = {}) =>
    Promise.resolve(app.request(path, {
      ...(body === undefined
        ? {}
        : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
      ...init,
    }));
  const post = async (path: string, body: unknown) => {
    const response = await send(path, body);
    return { status: response.status, headers: response.headers, body: await response.json() };
  };
  const get = async (path: string) => await (await send(path)).json();
  return { send, post, get };
}

function open(options: TestPoolOptions = {}) {
  const test = testPool(options);
  return { ...test, ...clientOf(test.pool) };
}

async function states(get: (path: string) => Promise<unknown>) {
  const { data } = await get("/v1/models") as { data: { id: string; status: { value: string } }[] };
  return data.map(({ id, status }) => `${id} ${status.value}`).join(", ");
}

const textOf = (body: { choices: { message: { content: string } }[] }) => body.choices[0].message.content;

Deno.test("one model: requests may omit its name, and another name is a 404", async () => {
  const { post } = clientOf(new FakeEngine());
  const bodies = {
    "/v1/chat/completions": chat,
    "/v1/completions": { prompt: "Hi" },
    "/tokenize": { content: "Hi" },
    "/detokenize": { tokens: [72] },
    "/apply-template": chat,
  };
  for (const [path, fields] of Object.entries(bodies)) {
    for (const model of [undefined, null, "demo"]) {
      const { status, body } = await post(path, { ...fields, model });
      assertEquals(status, 200, `${path} ${model}`);
      assert(!path.startsWith("/v1") || body.model === "demo");
    }
    const { status, body: { error } } = await post(path, { ...fields, model: "other" });
    assertEquals([status, error.code, error.param], [404, "model_not_found", "model"], path);
    assertStringIncludes(error.message, 'use "demo"');
  }
});

Deno.test("one model: a server's only model is loaded from the start and cannot be unloaded", async () => {
  const { post, get } = clientOf(new FakeEngine());
  assertEquals(await states(get), "demo ready");
  assertEquals((await post("/models/load", { model: "demo" })).body, { success: true });
  const { status, body: { error } } = await post("/models/unload", { model: "demo" });
  assertEquals([status, error.code], [400, "model_stays"]);
  for (const path of ["/models/load", "/models/unload"]) {
    assertEquals((await post(path, { model: "other" })).status, 404);
    assertEquals((await post(path, {})).body.error.param, "model");
  }
});

Deno.test("several models: requests name one by id or alias, and that model answers", async () => {
  const { post, get, pool } = open();
  assertEquals(await states(get), "a unloaded, b unloaded, c unloaded");
  for (const model of ["a", "b-alias", "c:latest", "a"]) {
    const { status, body } = await post("/v1/chat/completions", { ...chat, model });
    assertEquals([status, body.model, textOf(body)[0]], [200, model[0], model[0]]);
  }
  assertEquals(await states(get), "a ready, b unloaded, c ready");
  for (const path of ["/v1/completions", "/v1/chat/completions"]) {
    const { status, body: { error } } = await post(path, { ...chat, prompt: "Hi" });
    assertEquals([status, error.code, error.param], [400, "model_required", "model"]);
    assertStringIncludes(error.message, '"a", "b", "c"');
  }
  assertEquals((await post("/tokenize", { content: "Hi" })).body.error.code, "model_required");
  assertEquals((await post("/tokenize", { content: "Hi", model: "b" })).body.tokens, [72, 105]);
  assertEquals((await get("/tokenizer_info?model=b")).model_max_length, 1024);
  assertEquals((await get("/tokenizer_info")).error.code, "model_required");
  const b = await get("/v1/models/b-alias");
  assertEquals([b.id, b.aliases, b.status.value, b.meta.n_ctx], ["b", ["b-alias"], "ready", 1024]);
  assertEquals((await get("/v1/models/d")).error.code, "model_not_found");
  await pool.close();
});

Deno.test("several models: messages and props use the named model, and slots list all loaded ones", async () => {
  const { post, get, send, pool } = open();
  assertEquals(await get("/slots"), []);
  assertEquals((await send("/slots?fail_on_no_slot=1")).status, 200);
  const message = { ...chat, max_tokens: 9 };
  for (const model of ["a", "b-alias"]) {
    const { status, body } = await post("/v1/messages", { ...message, model });
    assertEquals([status, body.model, body.content[0].text[0]], [200, model[0], model[0]]);
    assertEquals((await post("/v1/messages/count_tokens", { ...chat, model })).status, 200);
  }
  const { status, body } = await post("/v1/messages", message);
  assertEquals([status, body.type, body.error.code], [400, "error", "model_required"]);
  assertEquals((await get("/props?model=b")).model_alias, "b");
  assertEquals((await get("/props")).error.code, "model_required");
  const modelsOf = (slots: { model: string }[]) => slots.map(({ model }) => model).join("");
  assertEquals(modelsOf(await get("/slots")), "aaaabbbb");
  assertEquals(modelsOf(await get("/slots?model=b-alias")), "bbbb");
  assertEquals(await get("/slots?model=c"), []);
  assertEquals(await states(get), "a ready, b ready, c unloaded");
  const { paths } = await get("/doc");
  assertEquals([paths["/slots"], paths["/props"]].map(({ get }) => get.parameters[0].required ?? false), [
    false,
    true,
  ]);
  await pool.close();
});

Deno.test("several models: the OpenAPI document requires the field model, and metrics have the model as a label", async () => {
  const { post, get, send, pool } = open();
  const { components: { schemas }, paths } = await get("/doc");
  assertEquals(schemas.ModelId.enum, ["a", "a-alias", "b", "b-alias", "c", "c-alias"]);
  for (const name of ["ChatCompletionRequest", "CompletionRequest", "TokenizeRequest", "ModelRequest"]) {
    assert(schemas[name].required.includes("model"), name);
  }
  assertEquals(paths["/tokenizer_info"].get.parameters[0].required, true);
  await post("/v1/chat/completions", { ...chat, model: "a" });
  const metrics = await (await send("/metrics")).text();
  assertStringIncludes(metrics, 'compy_engine_state{model="a",state="ready"} 1');
  assert(!metrics.includes('model="b"'));
  await pool.close();
});

Deno.test("several models: /ready is 200 while no model is loaded, and 503 when all have failed", async () => {
  const { send, post, pool } = open({ loading: () => Promise.reject(new Error("a cut file")) });
  assertEquals((await send("/ready")).status, 200);
  for (const model of ["a", "b", "c"]) {
    const { status, body: { error }, headers } = await post("/v1/completions", { model, prompt: "Hi" });
    assertEquals([status, error.code], [503, "model_load_failed"]);
    assertStringIncludes(error.message, "a cut file");
    assert(Number(headers.get("retry-after")) > 0);
  }
  assertEquals((await send("/ready")).status, 503);
  await pool.close();
});

Deno.test("several models: a model that does not fit in memory is a 503 with the sizes in bytes", async () => {
  const { post, pool } = open({ roomMs: 30, turns: { turnMs: 60_000 } });
  const held = [await pool.use("a"), await pool.use("b")];
  const { status, body: { error }, headers } = await post("/v1/completions", { model: "c", prompt: "Hi" });
  assertEquals([status, error.code, error.needed_bytes, error.free_bytes, error.budget_bytes], [
    503,
    "no_memory_for_model",
    10,
    0,
    20,
  ]);
  assert(Number(headers.get("retry-after")) > 0);
  held.forEach(({ release }) => release());
  assertEquals((await post("/v1/completions", { model: "c", prompt: "Hi" })).status, 200);
  await pool.close();
});

Deno.test("streams: a model stays loaded until its stream ends, fails or loses its reader", async () => {
  const { send, pool, engines, get } = open({ tokenMs: 5 });
  const stream = { ...chat, model: "a", stream: true };
  const whole = await send("/v1/chat/completions", stream);
  const reader = whole.body!.getReader();
  await reader.read();
  const unloaded = pool.unload("a");
  assertEquals((await states(get)).split(",")[0], "a draining");
  let text = "";
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    text += new TextDecoder().decode(next.value);
  }
  assertStringIncludes(text, "[DONE]");
  await unloaded;
  assertEquals(engines.size, 0);

  const left = await send("/v1/chat/completions", { ...stream, max_tokens: 1000 });
  await left.body!.cancel();
  await until(() => engines.get("a")!.stats().running === 0);
  await pool.unload("a");

  const refused = await send("/v1/chat/completions", {
    ...stream,
    messages: [{ role: "user", content: "raise" }],
  });
  assertEquals(refused.status, 400);
  await pool.unload("a");
  assertEquals(engines.size, 0);
  await pool.close();
});

Deno.test("loading: a client that disconnects stops waiting, and other clients still get the model", async () => {
  const gate = Promise.withResolvers<void>();
  const { send, post, pool, log } = open({ loading: () => gate.promise });
  const abort = new AbortController();
  const left = send("/v1/completions", { model: "a", prompt: "Hi" }, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "a", prompt: "Hi" }),
    signal: abort.signal,
  });
  const stays = post("/v1/completions", { model: "a", prompt: "Hi" });
  await until(() => log.length === 1);
  abort.abort();
  assertEquals((await left).status, 499);
  gate.resolve();
  assertEquals((await stays).status, 200);
  assertEquals(log, ["load a"]);
  await pool.close();
});

Deno.test("several models: different keys share no cached prompts, whichever model they use", async () => {
  const { pool, engines } = testPool();
  const { send } = clientOf(pool, { apiKeys: new KeyRing(["k1", "k2"]) });
  const ask = (key: string, model: string) =>
    send("/v1/completions", undefined, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      body: JSON.stringify({ model, prompt: "Hi" }),
    });
  for (const model of ["a", "b"]) {
    assertEquals((await ask("wrong", model)).status, 401);
    for (const key of ["k1", "k2", "k1"]) assertEquals((await ask(key, model)).status, 200);
    const [one, other, again] = engines.get(model)!.requests.map(({ cacheSalt }) => cacheSalt);
    assert(one !== undefined && one !== other && one === again);
  }
  await pool.close();
});

Deno.test("models/load and models/unload: answer when the model is loaded or unloaded", async () => {
  const { post, get, pool } = open({ loading: () => delay(30) });
  const loading = post("/models/load", { model: "a-alias" });
  await delay(10);
  assertEquals((await states(get)).split(",")[0], "a loading");
  assertEquals((await loading).body, { success: true });
  assertEquals((await states(get)).split(",")[0], "a ready");
  assertEquals((await post("/models/unload", { model: "a" })).body, { success: true });
  assertEquals((await states(get)).split(",")[0], "a unloaded");
  await pool.close();
});
