import { assertEquals } from "@std/assert";
import { FakeEngine } from "../testing.ts";
import { createApp } from "../app.ts";
import { routePath } from "./paths.ts";

const PATTERNS = [
  "/v1/chat/completions",
  "/v1/models/:model{.+}",
  "/v1/rerank",
  "/rerank",
  "/models/load",
  "/",
];

Deno.test("paths: /v1, extra slashes and the prefix may be missing or present if only one route can be meant", () => {
  const of = (prefix: string | undefined, ...paths: string[]) =>
    paths.map((path) => routePath(PATTERNS, prefix)(new Request(`http://localhost${path}`)));
  assertEquals(of(undefined, "/chat/completions", "//v1//chat/completions/", "/models", "/models/a/b", "/"), [
    "/v1/chat/completions",
    "/v1/chat/completions",
    "/v1/models",
    "/v1/models/a/b",
    "/",
  ]);
  assertEquals(of(undefined, "/models/load", "/rerank", "/v1/v1/models", "/none", "/v1"), [
    "/models/load",
    "/rerank",
    "/v1/v1/models",
    "/none",
    "/v1",
  ]);
  assertEquals(of("/a", "/a/models", "/a/", "/b/models", "/a"), ["/v1/models", "/", "/ ", "/ "]);
});

Deno.test("paths: a client whose base URL lacks /v1 or ends in a slash is answered", async () => {
  const app = createApp(new FakeEngine());
  for (const path of ["/chat/completions", "/v1/chat/completions/", "//v1/chat/completions"]) {
    const answer = await app.request(`http://localhost${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ messages: [{ role: "user", content: "Hi" }], max_tokens: 3 }),
    });
    assertEquals([path, answer.status, typeof (await answer.json()).id], [path, 200, "string"]);
  }
  const models = await (await app.request("http://localhost/models/")).json();
  assertEquals(models.object, "list");
});

Deno.test("paths: an unknown path of another server's API gets an error that names the path to use here", async () => {
  const app = createApp(new FakeEngine());
  for (const path of ["/v1/health", "/version", "/v1/version/"]) {
    const answer = await app.request(`http://localhost${path}`);
    const { error } = await answer.json();
    assertEquals([answer.status, error.message.includes("/doc lists")], [404, false]);
  }
});
