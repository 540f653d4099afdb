// deno-lint-ignore-file no-console
/**
 * A custom server with compy's API below /llm: `deno run -P=library examples/server.ts [MODEL.gguf]`.
 */
import { Hono } from "hono";
import { createServer, loadModel } from "compy";

await using model = await loadModel(Deno.args[0]);
await using llm = await createServer(model, { onError: console.error });

const app = new Hono();
app.get("/", (c) => c.text("Ask POST /llm/v1/chat/completions, or GET /summary?text=…\n"));
app.mount("/llm", llm.fetch);
app.get("/summary", async (c) => {
  const { signal } = c.req.raw; // a disconnect cancels the answer
  const question = `Say it in five words: ${c.req.query("text")}`;
  const { text } = await model.chat(question, { maxTokens: 30, temperature: 0, signal }).answer();
  return c.json({ text });
});

const server = Deno.serve({ hostname: "127.0.0.1", port: Number(Deno.args[1] ?? 8080) }, app.fetch);
Deno.addSignalListener("SIGTERM", () => server.shutdown());
await server.finished;
