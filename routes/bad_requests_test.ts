import { assert, assertEquals } from "@std/assert";
import {
  badSampling,
  hostileBodies,
  json,
  many,
  notBooleans,
  notInt,
  notTexts,
  refused,
  refuseFields,
  send,
  stillServes,
} from "./testing_bad.ts";
import { withServer } from "./testing_server.ts";

const CHAT = "/v1/chat/completions";
const TEXT = "/v1/completions";
const message = '{"role":"user","content":"Hi"}';
const good: Record<string, Record<string, string>> = {
  [CHAT]: { model: '"demo"', messages: `[${message}]` },
  [TEXT]: { model: '"demo"', prompt: '"Hi"' },
};

const long = `"${"x".repeat(2 ** 18 + 1)}"`;
const call = '{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}';

const generation: Record<string, string[]> = {
  ...badSampling,
  model: [...notTexts, '""', `"${"m".repeat(257)}"`],
  n: [...notInt(1, 128), "0", "-1", "2147483647", "100000"],
  max_tokens: [...notInt(0, 2 ** 31 - 1), "-1", "-2147483648"],
  stop: [
    "1",
    "true",
    "{}",
    '""',
    '[""]',
    "[1]",
    "[[]]",
    '["a",null]',
    many(1025, '"a"'),
    many(17, `"${"s".repeat(1000)}"`),
    `"${"s".repeat(1025)}"`,
  ],
  return_progress: notBooleans,
  stream_options: ["1", '"x"', "[]", "true", '{"include_usage":1}', '{"include_usage":"yes"}'],
  response_format: [
    '"text"',
    "1",
    "true",
    "{}",
    "[]",
    '{"type":"xml"}',
    '{"type":["text"]}',
    '{"type":"json_object","schema":[]}',
    '{"type":"json_schema"}',
    '{"type":"json_schema","json_schema":null}',
    '{"type":"json_schema","json_schema":{}}',
    '{"type":"json_schema","json_schema":{"name":"a"}}',
    '{"type":"json_schema","json_schema":{"name":"","schema":{}}}',
    '{"type":"json_schema","json_schema":{"name":"a","strict":"yes","schema":{}}}',
    '{"type":"json_schema","json_schema":{"name":"a","schema":"{}"}}',
    '{"type":"json_schema","json_schema":{"name":"a","schema":{}},"schema":{}}',
    '{"type":"json_schema","schema":[]}',
    '{"type":"json_schema","schema":{"const":1e999}}',
    '{"type":"json_schema","schema":{"properties":{"a":{"maximum":-1e999}}}}',
    '{"type":"structural_tag","structures":[]}',
  ],
  grammar: [...notTexts, long],
  json_schema: ["1", '"{}"', "[]", '{"minimum":1e999}'],
  guided_json: [
    JSON.stringify('{"not":'.repeat(5000) + "true" + "}".repeat(5000)),
    "1",
    '""',
    '"{"',
    '"[]"',
    "[]",
    '{"const":1e999}',
    '"{\\"const\\":1e999}"',
    long,
  ],
  guided_regex: [...notTexts, '""', long],
  guided_choice: ["1", '"a"', "{}", "[]", "[1]", '[""]', '["a",null]', many(10_001, '"a"')],
  guided_grammar: [...notTexts, '""', long],
  structured_outputs: [
    "1",
    '"x"',
    "[]",
    "{}",
    '{"json_object":false}',
    '{"json_object":"yes"}',
    '{"json":[]}',
    '{"json":"{"}',
    '{"regex":""}',
    '{"choice":[]}',
    '{"grammar":1}',
    '{"json":{},"regex":"a"}',
    '{"json":{},"json_object":true}',
    '{"structural_tag":"{}"}',
  ],
  ebnf: ['"root ::= [a-z]"', "1"],
  regex: ['"a"'],
  structural_tag: ["{}", '"x"'],
  guided_json_object: ["true"],
};

const fields: Record<string, Record<string, string[]>> = {
  [CHAT]: {
    ...generation,
    max_completion_tokens: notInt(0, 2 ** 31 - 1),
    logprobs: notBooleans,
    top_logprobs: [...notInt(0, 20), "1"], // 1 without logprobs is wrong too
    tools: [
      "{}",
      '"x"',
      "1",
      "[1]",
      "[{}]",
      '[{"type":"function"}]',
      '[{"type":"custom","custom":{"name":"f"}}]',
      '[{"type":"function","function":{}}]',
      '[{"type":"function","function":{"name":""}}]',
      '[{"type":"function","function":{"name":"a b"}}]',
      '[{"type":"function","function":{"name":"f\\n"}}]',
      `[{"type":"function","function":{"name":"${"f".repeat(129)}"}}]`,
      '[{"type":"function","function":{"name":"f","parameters":[]}}]',
      '[{"type":"function","function":{"name":"f","parameters":true}}]',
      '[{"type":"function","function":{"name":"f","parameters":{"const":1e999}}}]',
      '[{"type":"function","function":{"name":"f","description":1}}]',
      '[{"type":"function","function":{"name":"f","strict":"yes"}}]',
      '[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}]',
      many(129, '{"type":"function","function":{"name":"f"}}'),
      many(50_000, "{}"),
      `[{"type":"function","function":{"name":"f","description":"${"d".repeat(2 ** 20)}"}}]`,
    ],
    tool_choice: [
      '"required"',
      '"always"',
      '{"type":"function","function":{"name":"f"}}',
      '{"type":"function"}',
      '{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}',
      '{"function":{"name":"f"}}',
      "1",
      "true",
    ],
    parallel_tool_calls: notBooleans,
    functions: ["{}", '[{"name":"a b"}]', "[{}]", '[{"name":"f"},{"name":"f"}]', many(129, '{"name":"f"}')],
    function_call: ['{"name":"f"}', '"required"', "{}", "1"],
    reasoning_effort: ['""', '"much"', "1", "true", "{}"],
    thinking_budget_tokens: notInt(-1, 2 ** 31 - 1),
    thinking: [
      "1",
      "true",
      '"enabled"',
      "{}",
      '{"type":"on"}',
      '{"type":"enabled","budget_tokens":-1}',
      '{"type":"enabled","budget_tokens":"many"}',
    ],
    continue_final_message: [...notBooleans, "true"], // the last message is the user's
    add_generation_prompt: [...notBooleans, "false"],
    modalities: ['["audio"]', '["text","audio"]', '"text"', "1"],
    messages: [
      "null",
      ...notTexts,
      '"Hi"',
      "[null]",
      '["Hi"]',
      "[1]",
      "[[]]",
      "[{}]",
      '[{"role":"user"}]',
      '[{"content":"Hi"}]',
      '[{"role":"user","content":null}]',
      '[{"role":"tool"}]',
      '[{"role":"root","content":"Hi"}]',
      '[{"role":"function","content":"Hi"}]',
      '[{"role":"function","content":"Hi","name":""}]',
      '[{"role":"tool","content":"Hi","tool_call_id":1}]',
      '[{"role":"tool","tool_call_id":"a"}]',
      `[${message},{"role":"assistant","tool_calls":{}}]`,
      `[${message},{"role":"assistant","tool_calls":[{}]}]`,
      `[${message},{"role":"assistant","tool_calls":[{"id":"a"}]}]`,
      `[${message},{"role":"assistant","tool_calls":[{"id":1,"function":{"name":"f","arguments":"{}"}}]}]`,
      `[${message},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"","arguments":"{}"}}]}]`,
      `[${message},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":[]}}]}]`,
      `[${message},{"role":"assistant","tool_calls":[{"id":"a","type":"custom","function":{"name":"f","arguments":""}}]}]`,
      `[${message},{"role":"assistant","tool_calls":${many(2, call)}}]`,
      `[${message},{"role":"assistant","tool_calls":${many(129, call)}}]`,
      `[${message},{"role":"assistant","function_call":{"name":"f","arguments":1}}]`,
      `[{"role":"user","content":"Hi","tool_calls":[${call}]}]`,
      '[{"role":"user","content":"Hi","function_call":{"name":"f","arguments":"{}"}}]',
      '[{"role":1,"content":"Hi"}]',
      '[{"role":"user","content":1}]',
      '[{"role":"user","content":{}}]',
      '[{"role":"user","content":[]}]',
      '[{"role":"user","content":["Hi"]}]',
      '[{"role":"user","content":[{}]}]',
      '[{"role":"user","content":[{"type":"text"}]}]',
      '[{"role":"user","content":[{"type":"text","text":1}]}]',
      '[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}]',
      '[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]',
      `[{"role":"user","content":"Hi","name":1}]`,
      `[{"role":"user","content":"Hi","name":"${"n".repeat(257)}"}]`,
      '[{"role":"user","content":"raise"}]',
      many(10_001, message),
      many(50_000, "{}"),
      `[{"role":"user","content":${many(1001, '{"type":"text","text":"a"}')}}]`,
      `[{"role":"user","content":${many(50_000, "{}")}}]`,
    ],
    chat_template_kwargs: [
      "1",
      '"x"',
      "[]",
      "true",
      '{"messages":"x"}',
      '{"chat_template":"{{ 1 }}"}',
      '{"tokenize":false}',
      '{"add_generation_prompt":false}',
      '{"bos_token":"x"}',
      '{"__proto__":1}',
      '{"a-b":1}',
      '{"":1}',
      '{"a":{}}',
      '{"a":[]}',
      '{"a":1e999}',
      `{"a":"${"x".repeat(1001)}"}`,
      json(Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`a${i}`, "1"]))),
    ],
  },
  [TEXT]: {
    ...generation,
    logprobs: [...notInt(0, 20), "false"],
    echo: notBooleans,
    best_of: [...notInt(1, 128), "2"],
    suffix: ['"x"', "1", "{}"],
    prompt: [
      "null",
      "1",
      "true",
      "{}",
      "[]",
      "[[]]",
      "[null]",
      "[true]",
      "[{}]",
      "[-1]",
      "[1.5]",
      "[1e999]",
      "[259]",
      "[2147483648]",
      "[1e300]",
      '["a",1]',
      '[1,"a"]',
      '[[1],"a"]',
      '[[1],["a"]]',
      "[[1],[259]]",
      "[[[1]]]",
      many(129, '"a"'),
      many(100_000, '"a"'),
      many(1_000_000, "-1"),
      many(20_000, "[]"),
    ],
  },
  "/tokenize": {
    content: [...notTexts, "null"],
    add_special: notBooleans,
    parse_special: notBooleans,
    with_pieces: notBooleans,
  },
  "/detokenize": {
    tokens: [
      "null",
      "1",
      '"a"',
      "{}",
      "[-1]",
      "[1.5]",
      '["a"]',
      "[[1]]",
      "[259]",
      "[4294967296]",
      "[null]",
      "[1e999]",
    ],
  },
  "/apply-template": { messages: ["null", "1", "[]", "[{}]", '[{"role":"user","content":"raise"}]'] },
};

const required: Record<string, Record<string, string>> = {
  ...good,
  "/tokenize": { content: '"a"' },
  "/detokenize": { tokens: "[1]" },
  "/apply-template": { messages: `[${message}]` },
};

Deno.test("requests: every wrong field value is a 4xx that names the field, and the server keeps serving", async () => {
  await withServer({}, async (server) => {
    const count = await refuseFields(server, required, fields);
    assert(count >= 500, `${count}`);
  });
});

Deno.test("requests: malformed bodies are a 4xx, and the server keeps serving", async () => {
  await withServer({}, async (server) => {
    for (const path of Object.keys(required)) {
      for (const [name, body] of Object.entries(hostileBodies(good[CHAT]))) {
        await refused(await send(server, path, body), `${path} ${name}`);
      }
      await stillServes(server, path);
    }
  });
});

Deno.test("requests: JSON may have some other content types; a wrong type is 415, a wrong method 405, a wrong path 404", async () => {
  await withServer({}, async (server) => {
    const body = json(good[CHAT]);
    for (
      const type of [
        "multipart/form-data",
        "text/html",
        "application/jsonl",
        "image/png",
        "json",
        "*/*",
      ]
    ) {
      const response = await send(server, CHAT, body, { "content-type": type });
      assertEquals(response.status, 415, type);
      await refused(response, type);
    }
    for (
      const type of [
        "",
        "application/json; charset=UTF-8",
        "application/vnd.api+json",
        "text/json",
        "text/plain;charset=utf-8",
        "application/x-www-form-urlencoded",
      ]
    ) {
      const response = await send(server, CHAT, body, { "content-type": type });
      assertEquals([type, response.status], [type, 200]);
      await response.body?.cancel();
      const wrong = await send(server, CHAT, "model=demo", { "content-type": type });
      assertEquals([type, wrong.status], [type, type.includes("urlencoded") ? 415 : 400]);
      await refused(wrong, type);
    }
    for (const encoding of ["gzip", "br", "deflate", "x"]) {
      assertEquals((await send(server, CHAT, body, { "content-encoding": encoding })).status, 415);
    }
    for (const path of Object.keys(required)) {
      for (const method of ["GET", "PUT", "DELETE", "PATCH"]) {
        const response = await fetch(server.base + path, { method });
        assertEquals(
          [response.status, response.headers.get("allow")],
          [405, "POST, OPTIONS"],
          `${method} ${path}`,
        );
        await refused(response, `${method} ${path}`);
      }
    }
    for (
      const [path, allow] of [...Object.keys(required).map((path) => [path, "POST"]), [
        "/v1/models",
        "GET, HEAD",
      ]]
    ) {
      const response = await fetch(server.base + path, { method: "OPTIONS" });
      const { status, headers } = response;
      assertEquals([status, headers.get("allow"), headers.get("content-type")], [
        204,
        `${allow}, OPTIONS`,
        null,
      ], path);
    }
    for (const path of ["/health", "/ready", "/metrics", "/v1/models", "/v1/models/demo"]) {
      for (const method of ["POST", "PUT", "DELETE"]) {
        const response = await fetch(server.base + path, { method });
        assertEquals(
          [response.status, response.headers.get("allow")],
          [405, "GET, HEAD, OPTIONS"],
          `${method} ${path}`,
        );
        await refused(response, `${method} ${path}`);
      }
    }
    for (
      const path of [
        "/v1",
        "/v2/chat/completions",
        "/v1/models/../x",
        "/%00",
        "/%ff",
        `/${"a".repeat(5000)}`,
      ]
    ) {
      const response = await fetch(server.base + path);
      assertEquals(response.status, 404, path);
      await refused(response, path);
    }
    for (const id of ["other", "..%2f..%2fetc%2fpasswd", "%00", "%ff", "a".repeat(5000), "demo%20"]) {
      await refused(await fetch(`${server.base}/v1/models/${id}`), id);
    }
    await stillServes(server, "at the end");
  });
});

Deno.test("requests: a body over the limit is 413, whether content-length is correct, missing or false", async () => {
  await withServer({ limits: { bodyBytes: 10_000 } }, async (server) => {
    const large = json({ ...good[CHAT], metadata: `"${"x".repeat(20_000)}"` });
    assertEquals((await send(server, CHAT, large)).status, 413);
    const chunked = new Blob([large]).stream();
    const response = await send(server, CHAT, chunked);
    assertEquals((await refused(response, "chunked")).code, "request_too_large");
    assertEquals(response.status, 413);
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new Uint8Array(1000)),
    });
    const answer = await send(server, CHAT, endless).then((response) => response.status, () => "reset");
    assert(answer === 413 || answer === "reset", `${answer}`);
    const fits = json({ ...good[CHAT], metadata: `"${"x".repeat(9000)}"` });
    assertEquals((await send(server, CHAT, new Blob([fits]).stream())).status, 200);
    await stillServes(server, "at the end");
  });
});

/** Sends raw bytes; returns the data received within 200 ms, a little longer than the server waits for a body. */
async function raw(base: string, bytes: string, end: boolean): Promise<string> {
  const { hostname, port } = new URL(base);
  const connection = await Deno.connect({ hostname, port: Number(port) });
  const timer = setTimeout(() => connection.close(), 200);
  let answer = "";
  try {
    await connection.write(new TextEncoder().encode(bytes));
    if (end) await connection.closeWrite();
    for await (const part of connection.readable) answer += new TextDecoder().decode(part);
  } catch {
    // The connection was reset, or closed by the timer.
  }
  clearTimeout(timer);
  return answer;
}

Deno.test("requests: broken HTTP gets no 5xx, and an incomplete body gets no answer to its request", async () => {
  await withServer({ limits: { bodyMs: 50 } }, async (server) => {
    const head =
      `POST ${CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n`;
    const body = json(good[CHAT]);
    const cases: [string, boolean][] = [
      ["\r\n\r\n", true],
      ["GET\r\n\r\n", true],
      ["GET / HTTP/9.9\r\n\r\n", true],
      ["GET / HTTP/1.1\r\n\r\n", true],
      ["GET / HTTP/1.1\r\nhost: a b\r\n\r\n", true],
      [`GET /health HTTP/1.1\r\nhost: localhost\r\nx: ${"a".repeat(200_000)}\r\n\r\n`, true],
      [`${head}content-length: -1\r\n\r\n${body}`, true],
      [`${head}content-length: 1e3\r\n\r\n${body}`, true],
      [`${head}content-length: 99999999999999999999\r\n\r\n${body}`, true],
      [`${head}content-length: ${body.length + 1}\r\n\r\n${body}`, true],
      [`${head}content-length: ${body.length + 1}\r\n\r\n${body}`, false],
      [`${head}transfer-encoding: chunked\r\n\r\nzz\r\n${body}`, true],
      [`${head}transfer-encoding: chunked\r\n\r\nffffffffffffffff1\r\n${body}`, true],
      [`${head}transfer-encoding: chunked\r\n\r\n5\r\nab`, true],
    ];
    for (const [bytes, end] of cases) {
      const what = JSON.stringify(bytes.slice(0, 200));
      const answer = await raw(server.base, bytes, end);
      const statuses = answer.match(/HTTP\/1.1 \d+/g) ?? [];
      assert(statuses.every((status) => / 4\d\d/.test(status)), `${what}: ${answer}`);
    }
    await stillServes(server, "at the end");
    assertEquals(server.engine.requests.length, 1);
  });
});

Deno.test("requests: TRACE, which fetch does not know, is a 405 like other wrong methods", async () => {
  await withServer({}, async ({ base }) => {
    for (const [path, status] of [[CHAT, 405], ["/health", 405], ["/nowhere", 404]] as const) {
      const answer = await raw(
        base,
        `TRACE ${path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n`,
        true,
      );
      assert(answer.startsWith(`HTTP/1.1 ${status}`), answer);
      if (path === CHAT) assert(/^allow: POST, OPTIONS\r$/m.test(answer), answer);
    }
  });
});
