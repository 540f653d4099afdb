import { assertEquals, assertStringIncludes } from "@std/assert";
import { withServer } from "../testing_server.ts";

/* An encoder model: it pools texts into rows and generates nothing. */

const encoder = (kind: "mean" | "rank") => ({ pooled: { kind, size: 8, encoder: true } });
const messages = [{ role: "user", content: "hi" }];
const REQUESTS: readonly (readonly [path: string, body: Record<string, unknown>])[] = [
  ["/v1/chat/completions", { model: "demo", messages }],
  ["/v1/chat/completions", { model: "demo", messages, stream: true }],
  ["/v1/completions", { model: "demo", prompt: "hi" }],
  ["/v1/responses", { model: "demo", input: "hi" }],
  ["/v1/messages", { model: "demo", messages, max_tokens: 5 }],
  ["/completion", { prompt: "hi" }],
];

for (const kind of ["mean", "rank"] as const) {
  const path = kind === "rank" ? "/v1/rerank" : "/v1/embeddings";
  Deno.test(`encoders: a model with ${kind} pooling refuses to generate, names ${path} in the error, and answers ${path}`, async () => {
    await withServer(encoder(kind), async ({ post, base }) => {
      for (const [url, body] of REQUESTS) {
        const response = await post(url, body);
        const { error } = await response.json();
        const does = kind === "rank" ? "ranks documents" : "returns vectors for texts";
        const message = `The model "demo" ${does} and generates no text: use ${path}, or another model`;
        assertEquals([url, response.status, error.message], [url, 400, message]);
      }
      const body = kind === "rank"
        ? { model: "demo", query: "a", documents: ["b"] }
        : { model: "demo", input: "a" };
      if (kind === "rank") {
        const { error } = await (await post("/v1/embeddings", { model: "demo", input: "a" })).json();
        assertStringIncludes(error.message, "use /v1/rerank, or serve it with --pooling mean");
      }
      const answer = await post(path, body);
      await answer.body?.cancel();
      assertEquals(answer.status, 200);
      for (const url of ["/v1/models", "/props", "/"]) {
        const response = await fetch(base + url);
        await response.body?.cancel();
        assertEquals([url, response.status], [url, 200]);
      }
    });
  });
}
