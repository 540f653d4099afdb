import { assert, assertEquals, assertRejects } from "@std/assert";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod.js";
import { z } from "zod";
import type { Constraint, GenerateRequest } from "../../engine/mod.ts";
import { ConstraintError, EngineError } from "../../engine/mod.ts";
import { saidInStream, saidWhole } from "../../testing/tool_calls.ts";
import { type TestServer, withServer } from "../testing_server.ts";

/* Thinking and tool calls in chat answers; the fake model writes them in channels (testing_chat.ts). */

const messages = [{ role: "user" as const, content: "Weather in Paris and Rome?" }];

function toolOf(name: string, properties: Record<string, unknown> = { city: { type: "string" } }) {
  const parameters = { type: "object", properties, required: Object.keys(properties) };
  return { type: "function" as const, function: { name, description: `About ${name}`, parameters } };
}

const tools = [toolOf("weather"), toolOf("time")];
const THINK = "<|start|>think\nParis… and wörld 🙂";
const PARIS = '<|start|>call weather\n{"city": "Paris 🙂"}';
const ROME = '<|start|>call time\n{"city": "Rome"}';
const TEXT = "<|start|>text\nHere you are";

const replying = (text: string) => ({ reply: () => text });

type Chunk = OpenAI.ChatCompletionChunk;

async function both(
  client: OpenAI,
  body: Partial<OpenAI.ChatCompletionCreateParamsNonStreaming> & Record<string, unknown>,
) {
  const request = { model: "demo", messages, ...body };
  const answer = await client.chat.completions.create({ ...request, stream: false });
  const chunks = await Array.fromAsync(
    await client.chat.completions.create({
      ...request,
      stream: true,
      stream_options: { include_usage: true },
    }),
  );
  for (const { index, ...choice } of answer.choices) {
    assertEquals(saidInStream(chunks, index), saidWhole({ index, ...choice }), "streamed and whole differ");
  }
  assertEquals(chunks.at(-1)!.usage, answer.usage);
  return { answer, chunks };
}

Deno.test("chat calls: thinking, text and several calls are the same whole and streamed", async () => {
  await withServer(replying(THINK + TEXT + PARIS + ROME), async ({ client, engine }) => {
    const { answer, chunks } = await both(client, { tools, n: 2 });
    for (const choice of answer.choices) {
      assertEquals(saidWhole(choice), {
        content: "Here you are",
        reasoning: "Paris… and wörld 🙂",
        calls: [
          { id: `call_${"x".repeat(23)}0`, name: "weather", arguments: '{"city": "Paris 🙂"}' },
          { id: `call_${"x".repeat(23)}1`, name: "time", arguments: '{"city": "Rome"}' },
        ],
        finish: "tool_calls",
      });
    }
    const thought = new TextEncoder().encode("Paris… and wörld 🙂").length;
    assertEquals(answer.usage?.completion_tokens_details?.reasoning_tokens, 2 * thought);
    assertEquals(chunks[0].choices[0].delta, { role: "assistant", content: null, refusal: null } as never);
    const [conversation] = engine.chatForm.conversations;
    assertEquals(
      conversation.tools,
      tools.map(({ function: { name, description, parameters } }) => {
        return { name, description, parameters };
      }),
    );
    assertEquals([conversation.toolChoice, conversation.parallelToolCalls], ["auto", true]);
  });
});

Deno.test("chat calls: an answer of calls has no content, and one without calls has no tool_calls key", async () => {
  await withServer(replying(PARIS), async ({ client }) => {
    const { answer } = await both(client, { tools, tool_choice: "required" });
    assertEquals(answer.choices[0].message.content, null);
    assertEquals(answer.choices[0].finish_reason, "tool_calls");
  });
  await withServer(replying("Hello"), async ({ client }) => {
    const { answer } = await both(client, { tools });
    assertEquals(Object.keys(answer.choices[0].message).sort(), ["content", "refusal", "role"]);
    assertEquals(answer.choices[0].finish_reason, "stop");
  });
});

Deno.test("chat calls: requests in the older format get calls in the older format", async () => {
  await withServer(replying(PARIS), async ({ client, engine }) => {
    const functions = tools.map((tool) => tool.function);
    const request = { model: "demo", messages, functions, function_call: { name: "weather" } };
    const answer = await client.chat.completions.create(request);
    const called = { name: "weather", arguments: '{"city": "Paris 🙂"}' };
    assertEquals(answer.choices[0].message.function_call, called);
    assertEquals(answer.choices[0].message.tool_calls, undefined);
    assertEquals(answer.choices[0].finish_reason, "function_call");
    const stream = await client.chat.completions.create({ ...request, stream: true });
    const deltas = (await Array.fromAsync(stream)).flatMap(({ choices }) => choices);
    const calls = deltas.flatMap(({ delta }) => delta.function_call ?? []);
    assertEquals(calls[0], { name: "weather", arguments: "" });
    assertEquals(calls.slice(1).map(({ arguments: text }) => text).join(""), called.arguments);
    assertEquals(deltas.at(-1)!.finish_reason, "function_call");
    const [conversation] = engine.chatForm.conversations;
    assertEquals(conversation.toolChoice, { name: "weather" });
    assertEquals(conversation.parallelToolCalls, false);
  });
});

Deno.test("chat calls: an answer cut by max_tokens reports length, also within a call or thought", async () => {
  for (const reply of [THINK, TEXT + PARIS, PARIS + ROME]) {
    const length = reply.replaceAll("<|start|>", "_").length - 4;
    await withServer(replying(reply), async ({ client }) => {
      const { answer } = await both(client, { tools, max_tokens: length });
      assertEquals(answer.choices[0].finish_reason, "length");
    });
  }
});

Deno.test("chat calls: an incomplete call with finish reason stop is an error, whole and streamed", async () => {
  await withServer(replying(PARIS), async ({ client, errors }) => {
    const request = { model: "demo", messages, tools, stop: "Paris" };
    const error = await assertRejects(() => client.chat.completions.create(request), OpenAI.APIError);
    assertEquals([error.status, error.code, error.param], [422, "constraint_failed", null]);
    const stream = await client.chat.completions.create({ ...request, stream: true });
    const chunks: Chunk[] = [];
    const late = await assertRejects(async () => {
      for await (const chunk of stream) chunks.push(chunk);
    }, OpenAI.APIError);
    assertEquals(late.code, "constraint_failed");
    assertEquals(chunks.flatMap(({ choices }) => choices).filter((choice) => choice.finish_reason), []);
    assertEquals(errors, []);
  });
});

Deno.test("chat calls: log-probabilities cover exactly the tokens of the content", async () => {
  await withServer(replying(THINK + TEXT + PARIS), async ({ client }) => {
    const { answer, chunks } = await both(client, { tools, logprobs: true, top_logprobs: 1 });
    const bytes = (choices: { logprobs?: OpenAI.ChatCompletion.Choice["logprobs"] }[]) =>
      choices.flatMap(({ logprobs }) => logprobs?.content ?? []).flatMap(({ bytes }) => bytes!);
    const content = [...new TextEncoder().encode("Here you are")];
    assertEquals(bytes(answer.choices), content);
    assertEquals(bytes(chunks.flatMap(({ choices }) => choices)), content);
  });
  await withServer(replying("<|start|>text\nwörld 🙂" + PARIS), async ({ client }) => {
    const { answer } = await both(client, { tools, logprobs: true });
    const bytes = answer.choices[0].logprobs!.content!.flatMap(({ bytes }) => bytes!);
    assertEquals(new TextDecoder().decode(new Uint8Array(bytes)), "wörld 🙂");
  });
});

Deno.test("chat calls: histories with calls, results and thoughts reach the model in both formats", async () => {
  await withServer({}, async ({ client, engine }) => {
    const call = {
      id: "call_1",
      type: "function" as const,
      function: { name: "weather", arguments: '{"city":"Paris"}' },
    };
    await client.chat.completions.create({
      model: "demo",
      tools,
      messages: [
        ...messages,
        {
          role: "assistant",
          content: null,
          tool_calls: [call],
          reasoning_content: "Hm",
          refusal: null,
        } as never,
        { role: "tool", tool_call_id: "call_1", content: "sunny" },
        { role: "assistant", tool_calls: [] },
        { role: "assistant", function_call: call.function },
        { role: "function", name: "weather", content: "rainy" },
      ],
    });
    const older = `call_${"0".repeat(23)}1`;
    assertEquals(engine.chatForm.conversations[0].messages, [
      ...messages,
      { role: "assistant", content: null, tool_calls: [call], reasoning_content: "Hm" },
      { role: "tool", tool_call_id: "call_1", content: "sunny" },
      { role: "assistant", content: null },
      { role: "assistant", content: null, tool_calls: [{ ...call, id: older }] },
      { role: "tool", name: "weather", content: "rainy", tool_call_id: older },
    ]);
  });
});

Deno.test("chat calls: a last message of the assistant is continued unless the request disables it", async () => {
  const text = [...messages, { role: "assistant" as const, content: "In Paris" }];
  const withCall = [
    ...messages,
    {
      role: "assistant" as const,
      tool_calls: [{ id: "a", type: "function" as const, function: { name: "f", arguments: "" } }],
    },
  ];
  const cases: [Record<string, unknown>, boolean | string][] = [
    [{ messages: text }, true],
    [{ messages: text, continue_final_message: true, add_generation_prompt: false }, true],
    [{ messages: text, add_generation_prompt: false }, true],
    [{ messages: text, add_generation_prompt: true }, false],
    [{ messages: text, continue_final_message: false }, false],
    [{ messages: text, tools }, true],
    [{ messages: withCall }, false],
    [{ messages }, false],
    [{ messages, add_generation_prompt: true }, false],
    [{ messages: text, continue_final_message: true, add_generation_prompt: true }, "add_generation_prompt"],
    [
      { messages: text, continue_final_message: false, add_generation_prompt: false },
      "add_generation_prompt",
    ],
    [{ messages: withCall, continue_final_message: true }, "continue_final_message"],
    [{ messages, continue_final_message: true }, "continue_final_message"],
    [{ messages, add_generation_prompt: false }, "add_generation_prompt"],
    [{ messages: text, json_schema: {} }, "json_schema"],
    [{ messages: text, response_format: { type: "json_object" } }, "response_format"],
    [{ messages: text, tools, tool_choice: "required" }, "tool_choice"],
  ];
  await withServer({}, async ({ post, engine }) => {
    for (const [body, expected] of cases) {
      const answer = await (await post("/v1/chat/completions", { model: "demo", ...body })).json();
      if (typeof expected === "string") assertEquals(answer.error?.param, expected, JSON.stringify(body));
      else assertEquals(engine.chatForm.conversations.at(-1)!.continueFinal, expected, JSON.stringify(body));
    }
    const prompt = engine.tokenizer.decode(engine.requests[0].prompt, { special: true });
    assert(prompt.endsWith("assistant\nIn Paris"), prompt);
  });
});

Deno.test("chat calls: accepts the thinking effort and budget in all formats that clients send", async () => {
  const cases: [Record<string, unknown>, { effort?: unknown; thinkingBudget?: number }][] = [
    [{}, {}],
    [{ reasoning_effort: "low" }, { effort: "low" }],
    [{ reasoning_effort: "none" }, { effort: false }],
    [{ thinking_budget_tokens: 64 }, { thinkingBudget: 64 }],
    [{ thinking_budget_tokens: -1 }, {}],
    [{ thinking_budget_tokens: 0 }, { thinkingBudget: 0 }],
    [{ thinking: { type: "enabled", budget_tokens: 1024 } }, { thinkingBudget: 1024 }],
    [{ thinking: { type: "disabled" } }, { effort: false }],
    [{ chat_template_kwargs: { enable_thinking: false } }, { effort: false }],
    [{ chat_template_kwargs: { enable_thinking: true }, reasoning_effort: "high" }, { effort: "high" }],
  ];
  await withServer({}, async ({ post, engine }) => {
    for (const [body, expected] of cases) {
      await (await post("/v1/chat/completions", { model: "demo", messages, ...body })).json();
      const { effort, thinkingBudget } = engine.chatForm.conversations.at(-1)!;
      assertEquals({ effort, thinkingBudget }, { effort: undefined, thinkingBudget: undefined, ...expected });
    }
    const contradictions = [
      { reasoning_effort: "high", thinking: { type: "disabled" } },
      { reasoning_effort: "none", thinking: { type: "enabled" } },
      { thinking_budget_tokens: 1, thinking: { type: "enabled", budget_tokens: 2 } },
    ];
    for (const body of contradictions) {
      const response = await post("/v1/chat/completions", { model: "demo", messages, ...body });
      const { error } = await response.json();
      assertEquals([response.status, error.code], [400, "conflicting_parameters"]);
    }
  });
});

Deno.test("chat calls: the openai client's helpers work: zodResponseFormat with parse and stream, zodFunction, runTools", async () => {
  const City = z.object({ city: z.string(), population: z.number() });
  const format = zodResponseFormat(City, "city");
  const json = '{"city": "Rome", "population": 2.8}';
  await withServer(replying(THINK + "<|start|>text\n" + json), async ({ client, engine }) => {
    const request = { model: "demo", messages, response_format: format };
    const expected = { city: "Rome", population: 2.8 };
    const { choices } = await client.chat.completions.parse(request);
    assertEquals(choices[0].message.parsed, expected);
    const streamed = await client.chat.completions.stream(request).finalChatCompletion();
    assertEquals(streamed.choices[0].message.parsed, expected);
    assertEquals(engine.chatForm.conversations[0].constraint, {
      kind: "json_schema",
      closed: true,
      schema: (format.json_schema as { schema: unknown }).schema,
    });
  });
  const asked: unknown[] = [];
  const weather = zodFunction({
    name: "weather",
    parameters: z.object({ city: z.string() }),
    function: (given) => {
      asked.push(given);
      return "sunny";
    },
  });
  const reply = (prompt: string) => prompt.includes("sunny") ? "It is sunny." : PARIS;
  await withServer({ reply }, async ({ client, engine }) => {
    const parsed = await client.chat.completions.parse({ model: "demo", messages, tools: [weather] });
    const [call] = parsed.choices[0].message.tool_calls!;
    if (call.type !== "function") throw new Error(`A call of type ${call.type}`);
    assertEquals(call.function.parsed_arguments, { city: "Paris 🙂" });
    for (const stream of [false, true]) {
      const request = { model: "demo", messages, tools: [weather] };
      const runner = stream
        ? client.chat.completions.runTools({ ...request, stream: true })
        : client.chat.completions.runTools(request);
      assertEquals(await runner.finalContent(), "It is sunny.");
      const history = engine.chatForm.conversations.at(-1)!.messages;
      assertEquals(history.map(({ role }) => role), ["user", "assistant", "tool"]);
      const [made] = history[1].tool_calls as { id: string; function: unknown }[];
      assertEquals(made.function, { name: "weather", arguments: '{"city": "Paris 🙂"}' });
      assertEquals(history[2].tool_call_id, made.id);
    }
    assertEquals(asked, [{ city: "Paris 🙂" }, { city: "Paris 🙂" }]);
  });
});

/** Each way to ask for a form, the constraint that results, and the parameter that a refusal names. */
const schema = { type: "object", properties: { a: { type: "integer" } } };
const json: Constraint = { kind: "json_schema", schema };
const anyObject: Constraint = { kind: "json_schema", schema: { type: "object" } };
const FORMS: [Record<string, unknown>, Constraint, string][] = [
  [{ response_format: { type: "json_object" } }, anyObject, "response_format"],
  [{ response_format: { type: "json_object", schema } }, json, "response_format.schema"],
  [{ response_format: { type: "json_object", schema: {} } }, anyObject, "response_format"],
  [{ response_format: { type: "json_schema", schema } }, json, "response_format.schema"],
  [
    { response_format: { type: "json_schema", json_schema: { name: "a", strict: true, schema } } },
    { ...json, closed: true },
    "response_format.json_schema.schema",
  ],
  [{ grammar: 'root ::= "a"' }, { kind: "gbnf", grammar: 'root ::= "a"' }, "grammar"],
  [{ json_schema: schema }, json, "json_schema"],
  [{ json_schema: true }, { kind: "json_schema", schema: true }, "json_schema"],
  [{ guided_json: schema }, json, "guided_json"],
  [{ guided_json: JSON.stringify(schema) }, json, "guided_json"],
  [{ guided_regex: "[ab]+" }, { kind: "regex", pattern: "[ab]+" }, "guided_regex"],
  [{ guided_choice: ["a", "b"] }, { kind: "choice", choices: ["a", "b"] }, "guided_choice"],
  [{ guided_grammar: 'root ::= "a"' }, { kind: "gbnf", grammar: 'root ::= "a"' }, "guided_grammar"],
  [{ guided_grammar: 'start: "a"' }, { kind: "lark", grammar: 'start: "a"' }, "guided_grammar"],
  [{ structured_outputs: { json: schema } }, json, "structured_outputs.json"],
  [
    { structured_outputs: { json: false } },
    { kind: "json_schema", schema: false },
    "structured_outputs.json",
  ],
  [{ structured_outputs: { regex: "a" } }, { kind: "regex", pattern: "a" }, "structured_outputs.regex"],
  [
    { structured_outputs: { choice: ["a"] } },
    { kind: "choice", choices: ["a"] },
    "structured_outputs.choice",
  ],
  [
    { structured_outputs: { grammar: 'start: "a"' } },
    { kind: "lark", grammar: 'start: "a"' },
    "structured_outputs.grammar",
  ],
  [{ structured_outputs: { json_object: true } }, anyObject, "structured_outputs.json_object"],
];
const NO_FORM = [
  { response_format: { type: "text" } },
  { response_format: null, grammar: null, structured_outputs: null },
  { grammar: "" },
];

const BODIES: [string, Record<string, unknown>][] = [
  ["/v1/chat/completions", { messages }],
  ["/v1/completions", { prompt: "Hi" }],
];

Deno.test("constraints: each field's constraint applies to all answers of a request, and two such fields are a 400 that names both", async () => {
  await withServer({}, async ({ post, engine }) => {
    for (const [path, body] of BODIES) {
      for (const [form, constraint] of FORMS) {
        engine.requests.length = 0;
        const response = await post(path, { model: "demo", ...body, ...form, n: 2 });
        assertEquals(response.status, 200, await response.text());
        assertEquals(engine.requests.map(({ constraint }) => constraint), [constraint, constraint]);
      }
      for (const form of NO_FORM) {
        assertEquals((await post(path, { model: "demo", ...body, ...form })).status, 200);
        assertEquals(engine.requests.at(-1)!.constraint, undefined);
      }
      for (const [first, form] of FORMS) {
        for (const [second, other] of FORMS) {
          const [one, two] = [Object.keys(first)[0], Object.keys(second)[0]];
          if (one === two) continue;
          const response = await post(path, { model: "demo", ...body, ...first, ...second });
          const { error } = await response.json();
          // The same constraint in two fields is not a conflict.
          if (JSON.stringify(form) === JSON.stringify(other)) {
            assertEquals(response.status, 200, JSON.stringify([first, second]));
            continue;
          }
          assertEquals([response.status, error.code], [400, "conflicting_parameters"]);
          assert([one, two].every((name) => error.message.includes(`"${name}"`)), error.message);
        }
      }
    }
  });
});

async function refusal(server: TestServer, path: string, body: Record<string, unknown>) {
  const response = await server.post(path, { model: "demo", ...body });
  const type = response.headers.get("content-type")!;
  const { error } = await response.json();
  return { status: response.status, isJson: type.startsWith("application/json"), ...error };
}

Deno.test("constraints: a refused constraint is a 400 that names its parameter, even if a stream was requested", async () => {
  const refuses = ({ kind }: Constraint) => `No ${kind} today`;
  await withServer({ refuses }, async (server) => {
    for (const [path, body] of BODIES) {
      for (const [form, { kind }, param] of FORMS) {
        for (const stream of [false, true]) {
          const { status, isJson, message, code, param: named } = await refusal(server, path, {
            ...body,
            ...form,
            n: 2,
            stream,
          });
          assertEquals({ status, isJson, message, code, named }, {
            status: 400,
            isJson: true,
            message: `No ${kind} today`,
            code: "invalid_constraint",
            named: param,
          });
        }
      }
    }
    const asked = { messages, tools, tool_choice: "required" };
    assertEquals(
      (await refusal(server, "/v1/chat/completions", asked)).param,
      "tools[0].function.parameters",
    );
    assertEquals(server.errors, []);
  });
});

Deno.test("constraints: an answer that cannot match is an error without finish reason, retry or report", async () => {
  const failure = new EngineError("constraint_failed", "Nothing can follow token 3 of the answer");
  const late = { failure, tokenMs: 5, chunk: 4, limits: { headersAfterMs: 1 } };
  await withServer(late, async ({ client, errors }) => {
    let asked = 0;
    const counted = client.withOptions({ maxRetries: 2, fetch: (url, init) => (asked++, fetch(url, init)) });
    const request = { model: "demo", messages, response_format: { type: "json_object" as const } };
    const error = await assertRejects(() => counted.chat.completions.create(request), OpenAI.APIError);
    assertEquals([error.status, error.code, asked], [422, "constraint_failed", 1]);
    const stream = await client.chat.completions.create({ ...request, stream: true });
    const inStream = await assertRejects(() => Array.fromAsync(stream), OpenAI.APIError);
    assertEquals(inStream.code, "constraint_failed");
    assertEquals(errors, []);
  });
});

Deno.test("constraints: a schema also applies with tools, thinking, n and streaming", async () => {
  const reply = (_: string, { constraint }: GenerateRequest) => constraint ? '{"a": 1}' : "free";
  await withServer({ reply }, async ({ client, engine }) => {
    const response_format = { type: "json_schema" as const, json_schema: { name: "a", schema } };
    const extras = [{}, { tools }, { reasoning_effort: "high" }, { n: 3 }, { stop: "x" }, { logprobs: true }];
    for (const extra of extras) {
      const { answer } = await both(client, { ...extra, response_format } as never);
      for (const { message } of answer.choices) assertEquals(message.content, '{"a": 1}');
    }
    assert(engine.chatForm.conversations.every(({ constraint }) => constraint !== undefined));
  });
});

Deno.test("chat calls: tool parameters that the model cannot use are a 400 before anything runs", async () => {
  await withServer({}, async ({ client, engine, errors }) => {
    const plan = () => {
      throw new ConstraintError('Cannot use the tool "weather": no allOf');
    };
    Object.assign(engine.chatForm, { plan });
    const request = { model: "demo", messages, tools };
    for (const stream of [false, true]) {
      const create = async () => await client.chat.completions.create({ ...request, stream });
      const error = await assertRejects(create, OpenAI.BadRequestError);
      assertEquals([error.code, error.param], ["invalid_constraint", "tools"]);
    }
    assertEquals([engine.requests, errors], [[], []]);
  });
});
