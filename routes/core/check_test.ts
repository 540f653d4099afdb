import { assertEquals } from "@std/assert";
import { withServer } from "../testing_server.ts";

/* Messages of refusals: what is wrong, where, the value as written, and what is allowed. */

const chat = '"model":"demo","messages":[{"role":"user","content":"Hi"}]';

const CASES: [path: string, body: string, message: string][] = [
  ["/v1/chat/completions", `{${chat},"n":1000}`, 'Invalid "n": must be at most 128 (got 1000)'],
  ["/v1/chat/completions", `{${chat},"n":"2"}`, 'Invalid "n": must be a number (got "2")'],
  ["/v1/chat/completions", `{${chat},"n":1.5}`, 'Invalid "n": must be an integer (got 1.5)'],
  ["/v1/chat/completions", `{${chat},"stream":"yes"}`, 'Invalid "stream": must be true or false (got "yes")'],
  [
    "/v1/chat/completions",
    `{${chat},"temperature":1e999}`,
    'Invalid "temperature": must be a number (got 1e999, more than a 64-bit float holds)',
  ],
  [
    "/v1/chat/completions",
    `{${chat},"temperature":-${"9".repeat(400)}}`,
    `Invalid "temperature": must be a number (got -${"9".repeat(59)}…, more than a 64-bit float holds)`,
  ],
  [
    "/v1/chat/completions",
    `{${chat},"stop":[${'"a",'.repeat(1024)}"a"]}`,
    'Invalid "stop": must have at most 1024 entries (got an array of 1025)',
  ],
  [
    "/v1/chat/completions",
    `{${chat},"logit_bias":5}`,
    'Invalid "logit_bias": must be an object (got 5)',
  ],
  [
    "/v1/chat/completions",
    '{"model":"demo","messages":[{"role":"root","content":"Hi"}]}',
    'Invalid "messages[0].role": must be "system" or "developer" or "user" or "assistant" or "tool" or "function" (got "root")',
  ],
  [
    "/v1/chat/completions",
    '{"model":"","messages":[]}',
    'Invalid "model": must have at least 1 character (got "")',
  ],
  ["/v1/chat/completions", '{"model":"demo"}', 'Missing required parameter "messages"'],
  ["/v1/chat/completions", "[]", "Invalid request body: must be an object (got an array of 0)"],
  [
    "/v1/chat/completions",
    `{${chat},"response_format":{"type":"xml"}}`,
    'Invalid "response_format.type": must be "text", "json_object" or "json_schema" (got "xml")',
  ],
  [
    "/v1/chat/completions",
    `{${chat},"tools":[{"type":"function","function":{"name":"a b"}}]}`,
    'Invalid "tools[0].function.name": must have 1 to 128 letters, digits and _ . - (got "a b")',
  ],
  [
    "/v1/chat/completions",
    `{${chat},"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}]}`,
    'Invalid "tools[1].function.name": must differ from the name of entry 0 (got "a")',
  ],
  [
    "/v1/chat/completions",
    `{${chat},"tool_choice":{"type":"function","function":{"name":"a"}}}`,
    'Invalid "tool_choice.function.name": must be the name of one of "tools" (got "a")',
  ],
  [
    "/v1/chat/completions",
    `{${chat},"grammar":"root ::= \\"a\\"","guided_regex":"a"}`,
    '"grammar" and "guided_regex" both constrain the answer; send one of them',
  ],
  [
    "/v1/chat/completions",
    `{${chat},"json_schema":{"const":1e400}}`,
    'Invalid "json_schema": must be a JSON schema whose numbers a 64-bit float holds (got an object)',
  ],
  [
    "/v1/completions",
    '{"model":"demo","prompt":[259]}',
    'Invalid "prompt": token ids must be from 0 to 258 (got 259)',
  ],
  ["/v1/completions", '{"model":"demo","prompt":[1,-1]}', 'Invalid "prompt[1]": must be a token id (got -1)'],
  [
    "/v1/completions",
    '{"model":"demo","prompt":["a",1]}',
    'Invalid "prompt[1]": must be a text, like the earlier entries (got 1)',
  ],
  [
    "/v1/completions",
    '{"model":"demo","prompt":[[1],[]]}',
    'Invalid "prompt[1]": must be an array of at least one token id (got an array of 0)',
  ],
  [
    "/v1/embeddings",
    '{"model":"demo","input":[[1],[2,"a"]]}',
    'Invalid "input[1][1]": must be a token id (got "a")',
  ],
  [
    "/v1/completions",
    '{"model":"demo","prompt":[]}',
    'Invalid "prompt": must be a text, an array of token ids, or an array of up to 128 of either (got an array of 0)',
  ],
  ["/v1/completions", '{"model":"demo"}', 'Missing required parameter "prompt"'],
  ["/completion", '{"model":"demo","prompt":[1,1.5]}', 'Invalid "prompt[1]": must be a token id (got 1.5)'],
  ["/detokenize", '{"tokens":[1,null]}', 'Invalid "tokens[1]": must be a token id (got null)'],
  ["/detokenize", '{"tokens":"1"}', 'Invalid "tokens": must be an array of token ids (got "1")'],
  [
    "/v1/completions",
    '{"model":"demo","prompt":["a","b"],"n":100}',
    'Invalid "prompt": prompts x n must be at most 128 answers (got 200); send fewer prompts in a request, or a smaller n',
  ],
  [
    "/v1/completions",
    '{"model":"demo","prompt":"a","suffix":"b"}',
    'Unsupported parameter "suffix": this server does not support text after the answer; leave it out',
  ],
  [
    "/v1/completions",
    '{"model":"other","prompt":"a"}',
    'There is no model "other" here; use "demo", which this server runs',
  ],
];

Deno.test("request checks: messages name the field, the rule and the value as written", async () => {
  await withServer({}, async ({ post }) => {
    for (const [path, body, message] of CASES) {
      const { error } = await (await post(path, undefined, { body })).json();
      assertEquals(error?.message, message, body);
    }
  });
});

const entries = (count: number, value: unknown) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`a${i}`, value]));
const nested = (levels: number) => "[".repeat(levels) + "]".repeat(levels);

const OVER_LIMITS: [fields: Record<string, unknown>, message: string][] = [
  [{ stop: "🙂".repeat(1025) }, 'Invalid "stop": must have at most 1024 characters (got 1025)'],
  [{ stop: ["x", "y".repeat(2000)] }, 'Invalid "stop[1]": must have at most 1024 characters (got 2000)'],
  [
    { grammar: "x".repeat(2_000_000) },
    'Invalid "grammar": must have at most 262144 characters (got at least 1000000)',
  ],
  [{ logit_bias: { 5: 101 } }, 'Invalid "logit_bias.5": must be at most 100 (got 101)'],
  [{ logit_bias: { 5: "a" } }, 'Invalid "logit_bias.5": must be a number (got "a")'],
  [{ logit_bias: { x: 1 } }, 'Invalid "logit_bias": must have token ids as names (got "x")'],
  [
    { logit_bias: entries(1025, 1) },
    'Invalid "logit_bias": must have at most 1024 entries (got an object of 1025)',
  ],
  [
    { chat_template_kwargs: entries(17, 1) },
    'Invalid "chat_template_kwargs": must have at most 16 entries (got an object of 17)',
  ],
  [
    { chat_template_kwargs: { a: "x".repeat(1001) } },
    'Invalid "chat_template_kwargs.a": must have at most 1000 characters (got 1001)',
  ],
  [
    { chat_template_kwargs: { a: [] } },
    'Invalid "chat_template_kwargs.a": must be a text, a number, true, false or null (got an array of 0)',
  ],
  [{ guided_json: nested(70) }, 'Invalid "guided_json": must be a JSON schema of at most 64 levels (got 70)'],
  [{ guided_json: "{" }, 'Invalid "guided_json": must be the text of a JSON schema (got "{")'],
  [
    { user: JSON.parse(nested(70)) },
    "The request body must have at most 64 levels of arrays and objects (got 71)",
  ],
  [
    { user: Array.from({ length: 100_000 }, () => []) },
    "The request body must have at most 100000 arrays and objects (got 100004)",
  ],
];

Deno.test("request checks: messages over a limit name the limit and the actual size", async () => {
  await withServer({}, async ({ post }) => {
    for (const [fields, message] of OVER_LIMITS) {
      const messages = [{ role: "user", content: "Hi" }];
      const { error } = await (await post("/v1/chat/completions", { model: "demo", messages, ...fields }))
        .json();
      assertEquals(error?.message, message);
    }
    const metadata = { a: "x".repeat(513) };
    const { error } = await (await post("/v1/responses", { model: "demo", input: "a", metadata })).json();
    assertEquals(error?.message, 'Invalid "metadata.a": must have at most 512 characters (got 513)');
  });
  await withServer({ limits: { bodyBytes: 10 } }, async ({ post }) => {
    const { error } = await (await post("/v1/completions", { prompt: "a" })).json();
    assertEquals(
      error?.message,
      "The request body must be at most 10 bytes (got 14); send less in one request",
    );
  });
});

Deno.test("request checks: lengths count characters, not UTF-16 units", async () => {
  await withServer({}, async ({ post }) => {
    const status = async (name: string) => {
      const messages = [{ role: "user", content: "Hi", name }];
      const response = await post("/v1/chat/completions", { model: "demo", messages });
      await response.body?.cancel();
      return response.status;
    };
    assertEquals([await status("🙂".repeat(256)), await status("🙂".repeat(257))], [200, 400]);
    assertEquals([await status("a".repeat(256)), await status("a".repeat(257))], [200, 400]);
    assertEquals(await status("🙂".repeat(1_000_000)), 400);
  });
});

Deno.test("request checks: refuse a number that no 64-bit float can hold, but only in fields that the endpoint reads", async () => {
  await withServer({}, async ({ post }) => {
    const response = await post("/v1/chat/completions", undefined, {
      body: `{${chat},"metadata":[1e999,"1e999"]}`,
    });
    assertEquals(response.status, 200);
    await response.body?.cancel();
  });
});
