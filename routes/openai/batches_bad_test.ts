import { assert, assertEquals } from "@std/assert";
import { chatLine, createBatch, inDataFolder, upload, waitFor, withBatches } from "../testing_batches.ts";

/* Invalid requests for files and batches: each is a 4xx in OpenAI's format and leaves no files. */

interface Case {
  readonly what: string;
  readonly method?: string;
  readonly path: string;
  readonly body?: BodyInit;
  readonly headers?: Record<string, string>;
  readonly status?: number;
  readonly code?: string;
}

const BOUNDARY = "xyz";
const multipart = { "content-type": `multipart/form-data; boundary=${BOUNDARY}` };
const json = { "content-type": "application/json" };

const part = (head: string, content: string) =>
  `--${BOUNDARY}\r\ncontent-disposition: form-data; ${head}\r\n\r\n${content}\r\n`;
const FILE = part('name="file"; filename="a.jsonl"', "{}");
const PURPOSE = part('name="purpose"', "batch");
const END = `--${BOUNDARY}--\r\n`;

function form(what: string, body: string, code: string, more: Partial<Case> = {}): Case {
  return { what, path: "/v1/files", body, headers: multipart, code, ...more };
}

const UPLOADS: Case[] = [
  form("nothing at all", "", "invalid_form"),
  form("only an end", END, "missing_required_parameter"),
  form("no end", FILE + PURPOSE, "invalid_form"),
  form("cut in the file", FILE.slice(0, -3), "invalid_form"),
  form("cut in the head", FILE.slice(0, 30), "invalid_form"),
  form("another boundary", (FILE + PURPOSE + END).replaceAll(BOUNDARY, "abc"), "invalid_form"),
  form("no file", PURPOSE + END, "missing_required_parameter"),
  form("no purpose", FILE + END, "missing_required_parameter"),
  form("the file as a field", part('name="file"', "{}") + PURPOSE + END, "missing_required_parameter"),
  form("an unknown purpose", FILE + part('name="purpose"', "fine-tune") + END, "invalid_value"),
  form("an output's purpose", FILE + part('name="purpose"', "batch_output") + END, "invalid_value"),
  form("two purposes", FILE + PURPOSE + PURPOSE + END, "invalid_form"),
  form("two files", FILE + FILE + PURPOSE + END, "invalid_form"),
  form("a file of another name", FILE.replace('"file"', '"data"') + PURPOSE + END, "invalid_form"),
  form("an empty file", FILE.replace("{}", "") + PURPOSE + END, "invalid_value"),
  form("a long field", FILE + part('name="purpose"', "b".repeat(5000)) + END, "invalid_form"),
  form("many fields", PURPOSE.replace("purpose", "x") + tooMany() + FILE + END, "invalid_form"),
  form(
    "a file that is too large",
    FILE.replace("{}", "x".repeat(5000)) + PURPOSE + END,
    "request_too_large",
    { status: 413 },
  ),
  form("a field named __proto__", part('name="__proto__"', "x") + FILE + END, "missing_required_parameter"),
  ...["0", "3599", "2592001", "-1", "1e5", "", "abc"].map((seconds) =>
    form(
      `expiry in ${seconds} seconds`,
      FILE + PURPOSE + expiry("created_at", seconds) + END,
      "invalid_value",
    )
  ),
  form("expiry from another moment", FILE + PURPOSE + expiry("last_used", "3600") + END, "invalid_value"),
  form(
    "half an expiry",
    FILE + PURPOSE + part('name="expires_after[anchor]"', "created_at") + END,
    "missing_required_parameter",
  ),
  ...[
    "expires_after[Anchor]",
    "expires_after.seconds",
    "expires_after[]",
    "Expires_After",
    "expires-after",
    "expiresAfter",
    "expire_after[seconds]",
  ].map((name) =>
    form(`an expiry as ${name}`, FILE + PURPOSE + part(`name="${name}"`, "3600") + END, "invalid_value")
  ),
  ...["3600", "", "{}x", '{"anchor":"created_at","seconds":1}', '{"anchor":"x","seconds":3600}'].map((json) =>
    form(
      `an expiry of ${json}`,
      FILE + PURPOSE + part('name="expires_after"', json) + END,
      json.startsWith('{"') ? "invalid_value" : "invalid_type",
    )
  ),
  form(
    "half an expiry in JSON",
    FILE + PURPOSE + part('name="expires_after"', '{"anchor":"created_at"}') + END,
    "missing_required_parameter",
  ),
  form(
    "an expiry twice",
    FILE + PURPOSE + expiry("created_at", "3600") +
      part('name="expires_after"', '{"anchor":"created_at","seconds":3600}') + END,
    "invalid_value",
  ),
  form("JSON", "{}", "unsupported_media_type", { headers: json, status: 415 }),
  form("a form without files", "purpose=batch", "unsupported_media_type", {
    headers: { "content-type": "application/x-www-form-urlencoded" },
    status: 415,
  }),
  form("no type", "x", "unsupported_media_type", { headers: { "content-type": "" }, status: 415 }),
  form("no boundary", FILE, "unsupported_media_type", {
    headers: { "content-type": "multipart/form-data" },
    status: 415,
  }),
  form("an empty boundary", FILE, "invalid_form", {
    headers: { "content-type": "multipart/form-data; boundary=" },
  }),
];

function expiry(anchor: string, seconds: string): string {
  return part('name="expires_after[anchor]"', anchor) + part('name="expires_after[seconds]"', seconds);
}

function tooMany(): string {
  return Array.from({ length: 40 }, (_, i) => part(`name="f${i}"`, "x")).join("");
}

function batchCase(what: string, change: Record<string, unknown>, code: string, status = 400): Case {
  const good = {
    input_file_id: "INPUT",
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
    metadata: {},
  };
  return {
    what,
    path: "/v1/batches",
    body: JSON.stringify({ ...good, ...change }),
    headers: json,
    code,
    status,
  };
}

const many = Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, "v"]));

const BATCHES: Case[] = [
  batchCase("no input", { input_file_id: undefined }, "missing_required_parameter"),
  batchCase("a number as input", { input_file_id: 3 }, "invalid_type"),
  batchCase("an unknown input", { input_file_id: "file-none" }, "file_not_found", 404),
  batchCase("a path as input", { input_file_id: "../../etc/passwd" }, "file_not_found", 404),
  batchCase("a long input", { input_file_id: "x".repeat(101) }, "invalid_value"),
  batchCase("no endpoint", { endpoint: undefined }, "missing_required_parameter"),
  batchCase("image edits", { endpoint: "/v1/images/edits" }, "invalid_value"),
  batchCase("an unknown endpoint", { endpoint: "/v1/files" }, "invalid_value"),
  batchCase("no window", { completion_window: undefined }, "missing_required_parameter"),
  ...["", "24", "24m", "0h", "721h", "31d", "1.5h", "-1h", "999999999999h"].map((completion_window) =>
    batchCase(`a window of "${completion_window}"`, { completion_window }, "invalid_value")
  ),
  batchCase("a list as metadata", { metadata: ["a"] }, "invalid_type"),
  batchCase("a number in metadata", { metadata: { a: 1 } }, "invalid_type"),
  batchCase("much metadata", { metadata: many }, "invalid_value"),
  batchCase("long metadata", { metadata: { a: "x".repeat(513) } }, "invalid_value"),
  batchCase("half a character in metadata", { metadata: { a: "\ud800" } }, "invalid_value"),
  batchCase("a word as strict", { strict: "yes" }, "invalid_type"),
  batchCase(
    "a short expiry",
    { output_expires_after: { anchor: "created_at", seconds: 1 } },
    "invalid_value",
  ),
  batchCase(
    "half an expiry",
    { output_expires_after: { anchor: "created_at" } },
    "missing_required_parameter",
  ),
  { what: "cut JSON", path: "/v1/batches", body: "{", headers: json, code: "invalid_json" },
  {
    what: "deep JSON",
    path: "/v1/batches",
    body: "[".repeat(100) + "]".repeat(100),
    headers: json,
    code: "invalid_json",
  },
  { what: "a list", path: "/v1/batches", body: "[]", headers: json, code: "invalid_type" },
  { what: "text", path: "/v1/batches", body: "hi", status: 400, code: "invalid_json" },
];

const gets = (path: string, status: number, code: string): Case => ({
  what: "",
  method: "GET",
  path,
  status,
  code,
});

const REQUESTS: Case[] = [
  gets("/v1/files/file-none", 404, "file_not_found"),
  gets("/v1/files/..%2F..%2Fcompy.sqlite", 404, "file_not_found"),
  gets("/v1/files/..%2F..%2Fcompy.sqlite/content", 404, "file_not_found"),
  gets("/v1/files/%00", 404, "file_not_found"),
  gets("/v1/files/%F0%9F%92%A9/content", 404, "file_not_found"),
  gets(`/v1/files/${"x".repeat(3000)}`, 404, "file_not_found"),
  gets("/v1/files?limit=0", 400, "invalid_value"),
  gets("/v1/files?limit=10001", 400, "invalid_value"),
  gets("/v1/files?limit=ten", 400, "invalid_value"),
  gets("/v1/files?after=file-none", 400, "invalid_value"),
  gets("/v1/files?order=sideways", 400, "invalid_value"),
  gets("/v1/files?purpose=fine-tune", 400, "invalid_value"),
  gets("/v1/batches/batch_none", 404, "batch_not_found"),
  gets("/v1/batches/batch_none/events", 404, "batch_not_found"),
  gets("/v1/batches?limit=101", 400, "invalid_value"),
  gets("/v1/batches?limit=-1", 400, "invalid_value"),
  gets("/v1/batches?after=batch_none", 400, "invalid_value"),
  gets("/v1/batches/batch_none/cancel", 405, "method_not_allowed"),
  { what: "", method: "POST", path: "/v1/batches/batch_none/cancel", status: 404, code: "batch_not_found" },
  { what: "", method: "DELETE", path: "/v1/files/file-none", status: 404, code: "file_not_found" },
  { what: "", method: "DELETE", path: "/v1/files", status: 405, code: "method_not_allowed" },
  { what: "", method: "DELETE", path: "/v1/batches/batch_none", status: 405, code: "method_not_allowed" },
  { what: "", method: "PUT", path: "/v1/files/file-none", status: 405, code: "method_not_allowed" },
];

Deno.test(`files and batches: refuse ${UPLOADS.length + BATCHES.length + REQUESTS.length} bad requests`, async () => {
  await inDataFolder((path) =>
    withBatches(path, { limits: { uploadBytes: 4096 } }, async ({ base, client, reports }) => {
      const input = await upload(client, [chatLine("a")]);
      for (const bad of [...UPLOADS, ...BATCHES, ...REQUESTS]) {
        const { what, method = "POST", path, headers, status = 400, code } = bad;
        const body = typeof bad.body === "string" ? bad.body.replace("INPUT", input) : bad.body;
        const signal = AbortSignal.timeout(5000);
        const response = await fetch(base + path, { method, body, headers, signal }).catch((error) => {
          throw new Error(`${what} ${path}`, { cause: error });
        });
        const answer = await response.json();
        const found = [response.status, answer.error?.code];
        assertEquals([what, path, ...found], [what, path, status, code], JSON.stringify(answer));
        assertEquals(Object.keys(answer.error).sort(), ["code", "message", "param", "type"]);
        assert(answer.error.message.length < 400);
        assert(response.headers.get("x-request-id"));
      }
      assertEquals((await client.files.list()).data.length, 1);
      assertEquals((await client.batches.list()).data, []);
      assertEquals([...Deno.readDirSync(`${path}/uploads`)], []);
      assertEquals([...Deno.readDirSync(`${path}/files`)].map(({ name }) => name), [input]);
      assertEquals([...Deno.readDirSync(`${path}/jobs`)], []);
      assertEquals(reports, []);
    })
  );
});

const BAD_FILES: [what: string, content: string | Uint8Array, code: string][] = [
  ["no JSON", "hello", "invalid_json"],
  ["a JSON array over several lines", `[\n${chatLine("a")}\n]`, "invalid_json"],
  ["zeros", new Uint8Array(100), "invalid_json"],
  ["UTF-16", new Uint8Array([0xff, 0xfe, 0x7b, 0, 0x7d, 0]), "invalid_utf8"],
  ["a gzip head", new Uint8Array([0x1f, 0x8b, 8, 0, 0, 0, 0, 0]), "invalid_utf8"],
  ["an endpoint twice nested", chatLine("a").replace("/v1/chat", "/v1/v1/chat"), "invalid_url"],
  ["image edits", chatLine("a").replace("/v1/chat/completions", "/v1/images/edits"), "invalid_url"],
  ["GET", chatLine("a").replace("POST", "GET"), "invalid_method"],
  ["no id", chatLine("a").replace('"custom_id":"a",', ""), "invalid_custom_id"],
  ["blank lines only", "\n\n \n", "input_unreadable"],
];

Deno.test("batches: an invalid input file fails the batch with a reason and leaves no files", async () => {
  await inDataFolder((path) =>
    withBatches(path, {}, async ({ client, reports }) => {
      for (const [what, content, code] of BAD_FILES) {
        const text = typeof content === "string" ? [content] : [];
        const input = typeof content === "string"
          ? await upload(client, text)
          : (await client.files.create({ file: new File([content.slice()], "x"), purpose: "batch" })).id;
        const { id } = await createBatch(client, input);
        const failed = await waitFor(client, id, "failed");
        assertEquals([what, failed.errors!.data![0].code], [what, code]);
        await client.files.delete(input);
      }
      assertEquals([...Deno.readDirSync(`${path}/files`)], []);
      assertEquals([...Deno.readDirSync(`${path}/jobs`)], []);
      assertEquals(reports, []);
    })
  );
});

Deno.test("files: an aborted or stalled upload leaves no files", async () => {
  await inDataFolder((path) =>
    withBatches(path, { limits: { bodyMs: 100 } }, async ({ base }) => {
      const uploads = () => [...Deno.readDirSync(`${path}/uploads`)].length;
      const head = new TextEncoder().encode(FILE.slice(0, -2));
      const start = () => {
        const abort = new AbortController();
        const body = new ReadableStream({ start: (controller) => controller.enqueue(head) });
        const request = { method: "POST", headers: multipart, body, signal: abort.signal };
        return { abort, response: fetch(`${base}/v1/files`, request) };
      };
      const left = start();
      while (uploads() === 0) await new Promise((resolve) => setTimeout(resolve, 2));
      left.abort.abort();
      await left.response.catch(() => {});
      const stalled = start();
      const response = await stalled.response;
      assertEquals([response.status, (await response.json()).error.code], [408, "body_timeout"]);
      stalled.abort.abort();
      for (let i = 0; uploads() > 0 && i < 500; i++) await new Promise((resolve) => setTimeout(resolve, 2));
      assertEquals(uploads(), 0);
      assertEquals([...Deno.readDirSync(`${path}/files`)], []);
    })
  );
});

Deno.test("files: accepts the expiry as JSON and as form fields", async () => {
  await inDataFolder((path) =>
    withBatches(path, {}, async ({ base }) => {
      const json = part('name="expires_after"', '{"anchor":"created_at","seconds":3600}');
      for (const fields of [expiry("created_at", "3600"), json]) {
        const body = FILE + PURPOSE + fields + END;
        const response = await fetch(`${base}/v1/files`, { method: "POST", headers: multipart, body });
        const file = await response.json();
        assertEquals(file.expires_at - file.created_at, 3600);
      }
    })
  );
});

Deno.test("files: an invalid form gets an error that describes a valid one", async () => {
  await inDataFolder((path) =>
    withBatches(path, {}, async ({ base }) => {
      const messages: string[] = [];
      for (const type of ["multipart/form-data", "application/json", ""]) {
        const response = await fetch(`${base}/v1/files`, {
          method: "POST",
          headers: { "content-type": type },
          body: FILE,
        });
        messages.push((await response.json()).error.message);
      }
      const start = "Unsupported content-type: must be multipart/form-data with a boundary";
      assertEquals(messages, [
        `${start} (got "multipart/form-data")`,
        `${start} (got "application/json")`,
        `${start} (got none)`,
      ]);
    })
  );
});
