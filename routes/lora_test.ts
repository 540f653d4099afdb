import { assertEquals, assertStringIncludes } from "@std/assert";
import type { AdapterInfo } from "../engine/mod.ts";
import { withServer } from "./testing_server.ts";

/* LoRA adapters over HTTP: chosen by a field or by the model's name. */

const adapters: readonly AdapterInfo[] = [
  { id: 0, name: "poet", path: "adapters/poet.gguf", scale: 0.5, fingerprint: "a" },
  { id: 1, name: "judge", path: "adapters/judge.gguf", scale: 0, fingerprint: "b" },
];
const messages = [{ role: "user", content: "Hi" }];
const chat = { messages };
const LORA = {
  "/completion": { prompt: "Hi" },
  "/v1/completions": { prompt: "Hi" },
  "/v1/chat/completions": chat,
};

Deno.test("lora: the field chooses adapters and scales; without the field, a request names no adapters", async () => {
  await withServer({ adapters }, async ({ engine, post }) => {
    for (const [path, body] of Object.entries(LORA)) {
      for (const lora of [[{ id: 1, scale: 0.25 }], [], undefined, null]) {
        const response = await post(path, { ...body, lora });
        assertEquals(response.status, 200, await response.text());
      }
      const asked = engine.requests.splice(0).map(({ adapters }) => adapters);
      assertEquals(asked, [[{ id: 1, scale: 0.25 }], [], undefined, undefined], path);
    }
  });
});

Deno.test("lora: MODEL:ADAPTER uses one adapter, in every API", async () => {
  const bodies = {
    ...LORA,
    "/v1/responses": { input: "Hi" },
    "/v1/messages": { messages, max_tokens: 5 },
    "/api/chat": { messages, stream: false },
  };
  await withServer({ adapters }, async ({ engine, post }) => {
    for (const [path, body] of Object.entries(bodies)) {
      for (
        const [model, used] of [["demo:poet", { id: 0, scale: 0.5 }], ["demo:judge", { id: 1, scale: 1 }]]
      ) {
        const response = await post(path, { ...body, model });
        const answer = await response.json();
        assertEquals(response.status, 200, JSON.stringify(answer));
        assertEquals(engine.requests.pop()?.adapters, [used], path);
        assertEquals(answer.model, model, path);
      }
    }
    await post("/v1/embeddings", { model: "demo:judge", input: "Hi" });
    assertEquals(engine.embeds.pop()?.adapters, [{ id: 1, scale: 1 }]);
    const unknown = await post("/v1/completions", { prompt: "Hi", model: "demo:cook" });
    assertEquals([unknown.status, (await unknown.json()).error.code], [404, "model_not_found"]);
  });
});

Deno.test("lora: the lists of models and of adapters include every adapter", async () => {
  await withServer({ adapters }, async ({ base }) => {
    const get = async (path: string) => await (await fetch(base + path)).json();
    const { data } = await get("/v1/models");
    const seen = data.map(({ id, parent }: { id: string; parent?: string }) => [id, parent]);
    assertEquals(seen, [["demo", undefined], ["demo:poet", "demo"], ["demo:judge", "demo"]]);
    assertEquals((await get("/v1/models/demo:judge")).id, "demo:judge");
    assertEquals(await get("/lora-adapters"), [
      { id: 0, path: "poet.gguf", scale: 0.5, name: "poet" },
      { id: 1, path: "judge.gguf", scale: 0, name: "judge" },
    ]);
  });
});

Deno.test("lora: wrong values, and adapters that the model does not have, get a 400 that names the field", async () => {
  const wrong = [
    [{ id: 2, scale: 1 }],
    [{ id: 0, scale: 1 }, { id: 0, scale: 2 }],
    [{ id: 0 }],
    [{ id: -1, scale: 1 }],
    [{ id: 0.5, scale: 1 }],
    [{ id: 0, scale: 1e9 }],
    [{ id: 0, scale: "NaN" }],
    "poet",
    Array(100).fill({ id: 0, scale: 1 }),
  ];
  await withServer({ adapters }, async ({ engine, post }) => {
    for (const [path, body] of Object.entries(LORA)) {
      for (const lora of wrong) {
        const response = await post(path, { ...body, lora });
        const { error } = await response.json();
        assertEquals(response.status, 400, `${path} ${JSON.stringify(lora)}`);
        assertStringIncludes(error.param, "lora");
      }
    }
    assertEquals(engine.requests, []);
  });
  await withServer({}, async ({ post, base }) => {
    const response = await post("/v1/chat/completions", { ...chat, lora: [{ id: 0, scale: 1 }] });
    const { error } = await response.json();
    assertEquals([response.status, error.code, error.param], [400, "unsupported_parameter", "lora"]);
    assertStringIncludes(error.message, "without adapters");
    assertEquals(await (await fetch(`${base}/lora-adapters`)).json(), []);
  });
});
