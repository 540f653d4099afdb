import { assertEquals } from "@std/assert";
import { createApp } from "../app.ts";
import { FakeEngine } from "../testing.ts";
import { chatLine, createBatch, inDataFolder, upload, withBatches } from "../testing_batches.ts";

type HeadersOf = { host?: string; origin?: string; "sec-fetch-site"?: string };

/** Headers that a browser sends for another site's page: each kind of body without preflight, and JSON. */
const FOREIGN: Record<string, string>[] = [
  { origin: "http://evil.example", "sec-fetch-site": "cross-site" },
  { origin: "http://evil.example" },
  { "sec-fetch-site": "cross-site" },
  { "sec-fetch-site": "same-site" },
  { "sec-fetch-site": "anything" },
  { origin: "null" },
  { origin: "" },
  { origin: "file://" },
  { origin: "http://127.0.0.1:1" },
  { origin: "http://127.0.0.1.evil.example" },
];

Deno.test("site check: a page of another site cannot upload, start or cancel a batch, or get an answer", async () => {
  await inDataFolder((path) =>
    withBatches(path, { tokenMs: 50 }, async ({ base, client, engine }) => {
      const input = await upload(client, [chatLine("a")]);
      const { id } = await createBatch(client, input);
      const asked = engine.requests.length;
      const form = () => {
        const form = new FormData();
        form.append("purpose", "batch");
        form.append("file", new File(["{}"], "in.jsonl"));
        return form;
      };
      const json = { "content-type": "application/json" };
      const chat = JSON.stringify({ model: "demo", messages: [{ role: "user", content: "Hi" }] });
      const requests: [method: string, path: string, body?: BodyInit, headers?: Record<string, string>][] = [
        ["POST", "/v1/files", form()],
        ["DELETE", `/v1/files/${input}`],
        ["POST", "/v1/batches", "{}", json],
        ["POST", `/v1/batches/${id}/cancel`],
        ["POST", "/v1/chat/completions", chat, json],
        // Browsers send these without a preflight, and the server reads JSON in them.
        ["POST", "/v1/chat/completions", chat, { "content-type": "text/plain" }],
        ["POST", "/v1/chat/completions", chat, { "content-type": "application/x-www-form-urlencoded" }],
        ["POST", "/v1/chat/completions", new Blob([chat])],
        ["POST", "/tokenize", '{"content":"a"}', json],
        ["PUT", "/nowhere"],
      ];
      for (const foreign of FOREIGN) {
        for (const [method, path, body, headers] of requests) {
          const response = await fetch(base + path, { method, body, headers: { ...headers, ...foreign } });
          const { error } = await response.json();
          assertEquals(
            [path, foreign, response.status, error.code],
            [path, foreign, 403, "cross_site_request"],
          );
        }
        // The browser itself forbids reading: no answer allows another site.
        const read = await fetch(`${base}/v1/models`, { headers: foreign });
        assertEquals([read.status, read.headers.get("access-control-allow-origin")], [200, null]);
        await read.body?.cancel();
      }
      assertEquals((await client.files.list()).data.length, 1);
      assertEquals((await client.batches.list()).data.length, 1);
      assertEquals((await client.batches.retrieve(id)).cancelling_at, null);
      assertEquals(engine.requests.length - asked <= 1, true); // the batch's own line
    })
  );
});

Deno.test("site check: accepts requests of programs, of this server's pages, and of pages under an allowed host name", async () => {
  const app = createApp(new FakeEngine(), { allowedHosts: ["compy.example"] });
  const status = async (headers: HeadersOf) => {
    const all = { "content-type": "application/json", ...headers };
    const body = JSON.stringify({ content: "a" });
    return (await app.request("/tokenize", { method: "POST", headers: all as HeadersInit, body })).status;
  };
  for (
    const headers of [
      {},
      { host: "127.0.0.1:8080", origin: "http://127.0.0.1:8080", "sec-fetch-site": "same-origin" },
      { host: "127.0.0.1:8080", origin: "http://127.0.0.1:8080" },
      { host: "localhost", origin: "http://localhost" },
      { host: "LOCALHOST:80", origin: "http://localhost" },
      { host: "[::1]:8080", origin: "http://[::1]:8080" },
      { host: "compy.example", origin: "https://compy.example", "sec-fetch-site": "same-origin" },
      // A proxy in between sets the Host header of the machine behind it.
      { host: "127.0.0.1:8080", origin: "https://compy.example", "sec-fetch-site": "same-origin" },
      { "sec-fetch-site": "none" },
    ]
  ) assertEquals([headers, await status(headers)], [headers, 200]);
  for (
    const headers of [
      { host: "localhost:8080", origin: "http://localhost:3000" },
      { host: "localhost:8080", origin: "http://127.0.0.1:8080" },
      { host: "compy.example:8080", origin: "http://compy.example:3000", "sec-fetch-site": "same-site" },
      { host: "compy.example", origin: "https://www.compy.example" },
      { host: "127.0.0.1:8080", origin: "http://127.0.0.1:8080, http://127.0.0.1:8080" },
    ]
  ) assertEquals([headers, await status(headers)], [headers, 403]);
});
