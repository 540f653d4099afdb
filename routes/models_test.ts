import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { createApp } from "./app.ts";
import { FakeEngine } from "./testing.ts";

const headers = { "content-type": "application/json" };

function open() {
  const app = createApp(new FakeEngine());
  return async (path: string, body: unknown) => {
    const response = await app.request(path, { method: "POST", headers, body: JSON.stringify(body) });
    return { status: response.status, body: await response.json() };
  };
}

Deno.test("one model: a request need not name it, and one that names another is a 404", async () => {
  const post = open();
  const bodies = {
    "/v1/chat/completions": { messages: [{ role: "user", content: "Hi" }] },
    "/v1/completions": { prompt: "Hi" },
    "/tokenize": { content: "Hi" },
    "/detokenize": { tokens: [72] },
    "/apply-template": { messages: [{ role: "user", content: "Hi" }] },
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
