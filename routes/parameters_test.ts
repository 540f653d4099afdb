import { assert, assertEquals } from "@std/assert";
import { createApp } from "./app.ts";
import { IGNORED, REFUSED_NAMES, WARNING_HEADER } from "./core/parameters.ts";
import { execute } from "./execute.ts";
import { FakeEngine } from "./testing.ts";
import { withServer } from "./testing_server.ts";

/* The server applies every parameter, refuses it by name, ignores it as the table says, or warns about it. */

const schema = { type: "object" };
const messages = [{ role: "user", content: "Hi" }];
const infill = { prefix: 1, suffix: 2, middle: 3, repo: undefined, file: undefined };

/** Values of each field: one that constrains the answer, and one that does not. */
const WAYS: Record<string, [asks: unknown, nothing: unknown]> = {
  ebnf: ["root ::= [a-z]", null],
  functions: [[{ name: "f" }], []],
  grammar: ['root ::= "a"', ""],
  guided_choice: [["a"], null],
  guided_grammar: ['root ::= "a"', null],
  guided_json: [schema, null],
  guided_json_object: [true, null],
  guided_regex: ["a", null],
  json_schema: [schema, null],
  output_config: [{ format: { type: "json_schema", schema } }, { effort: "low" }],
  output_format: [{ type: "json_schema", schema }, null],
  regex: ["a", null],
  response_format: [{ type: "json_object" }, { type: "text" }],
  structural_tag: ["{}", null],
  structured_outputs: [{ json: schema }, null],
  text: [{ format: { type: "json_object" } }, { format: { type: "text" }, verbosity: "low" }],
  tools: [[{ type: "function", function: { name: "f" } }], []],
};

const OPENAI = [
  ...["response_format", "grammar", "json_schema", "guided_json", "guided_regex", "guided_choice"],
  ...["guided_grammar", "structured_outputs"],
];

/** Path of an endpoint that batches cannot use. */
const COUNT = "/v1/messages/count_tokens";

/** Each endpoint with a valid body and the fields that it supports. */
const ENDPOINTS: Record<string, [body: object, own: string[]]> = {
  "/v1/chat/completions": [{ messages }, [...OPENAI, "tools", "functions"]],
  "/v1/completions": [{ prompt: "Hi" }, OPENAI],
  "/v1/responses": [{ input: "Hi" }, [...OPENAI, "text", "tools"]],
  "/v1/messages": [{ messages, max_tokens: 9 }, ["output_config", "output_format", "tools"]],
  [COUNT]: [{ messages }, ["output_config", "output_format", "tools"]],
  "/completion": [{ prompt: "Hi" }, ["grammar", "json_schema"]],
  "/infill": [{ input_prefix: "a", input_suffix: "b" }, ["grammar", "json_schema"]],
};

Deno.test("constraint fields of other servers: an unsupported field is a 400 that names it, whole, streamed and in batches", async () => {
  await withServer({ infill }, async ({ engine, post }) => {
    for (const [path, [least, own]] of Object.entries(ENDPOINTS)) {
      for (const [field, [asks]] of Object.entries(WAYS)) {
        if (own.includes(field)) continue;
        const body = { model: "demo", ...least, [field]: asks };
        for (const stream of [false, true]) {
          const response = await post(path, { ...body, stream });
          const { error } = await response.json();
          const refused = [response.status, error.code, error.param];
          assertEquals(refused, [400, "unsupported_parameter", field], `${path} ${error.message}`);
        }
        const { status } = await execute(new FakeEngine({ infill }), { url: path, body });
        assertEquals(status, path === COUNT ? 404 : 400, `${path} ${field}`);
      }
    }
    assertEquals(engine.requests, []);
  });
});

Deno.test("constraint fields of other servers: values that constrain nothing are accepted", async () => {
  await withServer({ infill }, async ({ post }) => {
    for (const [path, [least, own]] of Object.entries(ENDPOINTS)) {
      const entries = Object.entries(WAYS).filter(([field]) => !own.includes(field));
      for (const choose of [([, nothing]: [unknown, unknown]) => nothing, () => null]) {
        const fields = entries.map(([field, values]) => [field, choose(values)]);
        const response = await post(path, { model: "demo", ...least, ...Object.fromEntries(fields) });
        assertEquals(response.status, 200, `${path} ${await response.text()}`);
      }
    }
  });
});

/** Further endpoints, with valid bodies. */
const OTHERS: Record<string, object> = {
  "/v1/embeddings": { input: "Hi" },
  "/v1/responses/input_tokens": { input: "Hi" },
  "/tokenize": { content: "Hi" },
  "/detokenize": { tokens: [72] },
  "/apply-template": { messages },
  "/api/chat": { messages, stream: false },
  "/api/generate": { prompt: "Hi", stream: false },
  "/api/embed": { input: "Hi" },
  "/api/embeddings": { prompt: "Hi" },
  "/api/show": {},
};

const BODIES: Record<string, object> = {
  ...Object.fromEntries(Object.entries(ENDPOINTS).map(([path, [body]]) => [path, body])),
  ...OTHERS,
};

const fieldOf = (error: { param: string } | string, body: { param: string }) =>
  typeof error === "string" ? body.param : error.param;

Deno.test("parameters: every endpoint refuses unsupported ones that would change the answer", async () => {
  const asks: Record<string, unknown> = {
    lora: [{ id: 0, scale: 1 }],
    chat_template: "{{ 1 }}",
    allowed_token_ids: [1],
    stop_token_ids: [1],
    min_tokens: 5,
    skip_special_tokens: false,
    truncate_prompt_tokens: 9,
    image_data: [{ data: "aGk=" }],
    tfs_z: 0.9,
    cache_salt: "a",
  };
  await withServer({ infill }, async ({ engine, post }) => {
    for (const [path, least] of Object.entries(BODIES)) {
      for (const [field, value] of Object.entries(asks)) {
        if (field === "lora" && path === "/apply-template") continue; // adapters do not change a template
        const response = await post(path, { model: "demo", ...least, [field]: value });
        const body = await response.json();
        assertEquals([response.status, fieldOf(body.error, body)], [400, field], `${path} ${field}`);
      }
    }
    assertEquals(engine.requests, []);
  });
});

Deno.test("parameters: ignored ones, and harmless values of refused ones, cause no warning", async () => {
  const harmless = {
    ...Object.fromEntries(REFUSED_NAMES.map((name) => [name, null])),
    ...{ lora: [], stop_token_ids: [], min_tokens: 0, skip_special_tokens: true, tfs_z: 1, n_cmpl: 1 },
    ...Object.fromEntries(
      Object.values(IGNORED).flat().map((
        name,
      ) => [name, name === "metadata" ? {} : name === "verbose" ? true : "x"]),
    ),
  };
  const warned: string[] = [];
  await withServer(
    { infill, strictParameters: true, warn: (text) => warned.push(text) },
    async ({ post }) => {
      for (const [path, least] of Object.entries(BODIES)) {
        const { store: _, ...others } = harmless as Record<string, unknown>;
        const response = await post(path, { ...others, ...least, model: "demo" });
        assertEquals([response.status, response.headers.get(WARNING_HEADER)], [200, null], path);
        await response.body?.cancel();
      }
    },
  );
  assertEquals(warned, []);
});

Deno.test("parameters: unknown ones cause a warning in a header and in the log, in strict mode a 400", async () => {
  const warned: string[] = [];
  const warn = (text: string) => warned.push(text);
  await withServer({ infill, warn }, async ({ post }) => {
    for (const [path, least] of Object.entries(BODIES)) {
      const response = await post(path, { model: "demo", ...least, colour: "red", unset: null });
      const expected = 'The parameter "colour" is not supported and is ignored';
      assertEquals([response.status, response.headers.get(WARNING_HEADER)], [200, expected], path);
      assertEquals(warned.splice(0), [expected], path);
      await response.body?.cancel();
    }
  });
  await withServer({ infill, strictParameters: true }, async ({ engine, post }) => {
    for (const [path, least] of Object.entries(BODIES)) {
      const response = await post(path, { model: "demo", ...least, colour: "red" });
      const body = await response.json();
      assertEquals([response.status, fieldOf(body.error, body)], [400, "colour"], path);
    }
    assertEquals(engine.requests, []);
  });
});

Deno.test("parameters: nested objects of settings are checked too, and streams have the warning header", async () => {
  const warnings = async (path: string, body: object) => {
    const app = createApp(new FakeEngine());
    const headers = { "content-type": "application/json" };
    const response = await app.request(path, { method: "POST", headers, body: JSON.stringify(body) });
    assertEquals(response.status, 200, await response.text());
    return response.headers.get(WARNING_HEADER)?.match(/"[^"]*"/g) ?? [];
  };
  const stream_options = { include_usage: true, include_obfuscation: false, colour: 1 };
  assertEquals(await warnings("/v1/chat/completions", { messages, stream: true, stream_options }), [
    '"stream_options.colour"',
  ]);
  assertEquals(await warnings("/v1/responses", { input: "Hi", text: { verbosity: "low" } }), [
    '"text.verbosity"',
  ]);
  assertEquals(await warnings("/api/chat", { messages, options: { num_gpu: 1, colour: 1 } }), [
    '"options.colour"',
  ]);
});

Deno.test("parameters: hostile names cost little and stay readable", async () => {
  const warned: string[] = [];
  const app = createApp(new FakeEngine(), { warn: (text) => warned.push(text) });
  const names = ["__proto__", "constructor", "a\r\nset-cookie: b", "\u202e", "ö", "x".repeat(1000)];
  const many = Array.from({ length: 9_000 }, (_, i) => `"p${i}":1`);
  const body = `{"prompt":"Hi",${names.map((name) => `${JSON.stringify(name)}:1`).join()},${many.join()}}`;
  const headers = { "content-type": "application/json" };
  const response = await app.request("/v1/completions", { method: "POST", headers, body });
  assertEquals(response.status, 200, await response.text());
  const header = response.headers.get(WARNING_HEADER)!;
  assert(header.length < 1000 && /^[ -~]+$/.test(header), header);
  assertEquals(warned.length, 8);
  for (const text of warned) assert(text.length < 200 && !/\p{C}/u.test(text), text);
  assertEquals(warned[0], 'The parameter "__proto__" is not supported and is ignored');
});

Deno.test("parameters: each kind of hosted tool causes one warning, in the header and in the log", async () => {
  const expected = 'The server cannot run tools of the type "web_search" and leaves them out of prompts';
  const tools = [{ type: "web_search", name: "web_search" }, { type: "web_search", name: "again" }];
  const warned: string[] = [];
  await withServer({ warn: (text) => warned.push(text) }, async ({ post }) => {
    for (
      const [path, body] of [["/v1/responses", { input: "Hi" }], ["/v1/messages", {
        messages,
        max_tokens: 9,
      }]]
    ) {
      const response = await post(path as string, { ...body as object, tools });
      assertEquals([response.status, response.headers.get(WARNING_HEADER)], [200, expected]);
      await response.body?.cancel();
    }
  });
  assertEquals(warned, [expected, expected]);
});

Deno.test("parameters: both names of the repetition penalty work everywhere", async () => {
  const paths = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/completion",
    "/api/chat",
  ];
  for (const path of paths) {
    const send = async (settings: object) => {
      const engine = new FakeEngine();
      const body = { ...BODIES[path], ...path === "/api/chat" ? { options: settings } : settings };
      const headers = { "content-type": "application/json" };
      const response = await createApp(engine).request(path, {
        method: "POST",
        headers,
        body: JSON.stringify(body),
      });
      const { error } = await response.json();
      return response.status === 200
        ? engine.requests[0].sampling?.repetitionPenalty
        : error.code ?? response.status;
    };
    assertEquals(await send({ repeat_penalty: 1.5 }), 1.5, path);
    assertEquals(await send({ repetition_penalty: 1.5 }), 1.5, path);
    assertEquals(await send({ repetition_penalty: 1.5, repeat_penalty: 1.5 }), 1.5, path);
    assertEquals(await send({ repetition_penalty: 1.5, repeat_penalty: null }), 1.5, path);
    const conflict = await send({ repetition_penalty: 1.5, repeat_penalty: 1.2 });
    assertEquals(conflict, path === "/api/chat" ? 400 : "conflicting_parameters", path);
  }
});

Deno.test("parameters: the same constraint in two fields is accepted as one", async () => {
  const grammar = 'root ::= "a"';
  const same: object[] = [
    { guided_grammar: grammar, structured_outputs: { grammar } },
    { guided_json: JSON.stringify(schema), structured_outputs: { json: schema } },
    { guided_regex: "a+", structured_outputs: { regex: "a+" } },
    { guided_choice: ["a", "b"], structured_outputs: { choice: ["a", "b"] } },
    { json_schema: schema, response_format: { type: "json_schema", json_schema: { name: "a", schema } } },
  ];
  await withServer({}, async ({ post }) => {
    for (const forms of same) {
      for (
        const [path, body] of [["/v1/completions", { prompt: "Hi" }], ["/v1/chat/completions", { messages }]]
      ) {
        const response = await post(path as string, { ...body as object, ...forms });
        assertEquals(response.status, 200, `${path} ${await response.text()}`);
      }
    }
    const other = { guided_grammar: grammar, structured_outputs: { grammar: 'root ::= "b"' } };
    assertEquals((await post("/v1/completions", { prompt: "Hi", ...other })).status, 400);
  });
});

Deno.test("parameters: a batch line warns of unknown ones once, and is refused in strict mode", async () => {
  const url = "/v1/chat/completions";
  const body = { messages, colour: "red" };
  const warned: string[] = [];
  const warn = (text: string) => warned.push(text);
  assertEquals((await execute(new FakeEngine(), { url, body, warn })).status, 200);
  assertEquals(warned, ['The parameter "colour" is not supported and is ignored']);
  const refused = await execute(new FakeEngine(), { url, body, strictParameters: true });
  assertEquals([refused.status, (refused.body.error as { param: string }).param], [400, "colour"]);
});
