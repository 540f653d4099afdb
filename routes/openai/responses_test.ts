import { assert, assertEquals, assertRejects } from "@std/assert";
import OpenAI from "openai";
import { zodResponsesFunction, zodTextFormat } from "openai/helpers/zod.js";
import { z } from "zod";
import { type Constraint, EngineError } from "../../engine/mod.ts";
import { execute } from "../execute.ts";
import { FakeEngine } from "../testing.ts";
import {
  chatLine,
  createBatch,
  inDataFolder,
  linesOf,
  upload,
  waitFor,
  withBatches,
} from "../testing_batches.ts";
import { type TestServer, until, withServer } from "../testing_server.ts";

/* /v1/responses through OpenAI's unmodified client; the fake model thinks and calls in channels (testing_chat.ts). */

const TEXT = "Hello, wörld 🙂!";
const THINK = "<|start|>think\nParis… and wörld 🙂";
const SAY = "<|start|>text\nHere you are";
const PARIS = '<|start|>call weather\n{"city": "Paris 🙂"}';
const ROME = '<|start|>call time\n{"city": "Rome"}';

const replying = (text: string) => ({ reply: () => text });

function toolOf(name: string) {
  const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  return { type: "function" as const, name, description: `About ${name}`, parameters, strict: true };
}

const tools = [toolOf("weather"), toolOf("time")];

type Body = Partial<OpenAI.Responses.ResponseCreateParamsNonStreaming> & Record<string, unknown>;
type Request = OpenAI.Responses.ResponseCreateParamsNonStreaming & { stream?: undefined };
type Response = OpenAI.Responses.Response;
type Item = OpenAI.Responses.ResponseOutputItem;

/** Returns the first output item of a type. */
function itemOf<Type extends Item["type"]>({ output }: { output: Item[] }, type: Type) {
  return output.find((item) => item.type === type) as Extract<Item, { type: Type }>;
}

/** Returns the answer without the fields that differ between requests. */
function lasting(response: Response) {
  const { id: _, created_at: _created, completed_at: _completed, ...rest } = response;
  return {
    ...rest,
    output_text: undefined,
    output: response.output.map((item) => ({ ...item, id: undefined })),
  };
}

/** Returns the whole answer and its stream's events, after checking that they agree. */
async function both({ client, post }: TestServer, body: Body = {}) {
  const request = { model: "demo", input: "Hi", ...body } as Request;
  const whole = await client.responses.create(request);
  const text = await (await post("/v1/responses", { ...request, stream: true })).text();
  const frames = text.trimEnd().split("\n\n").map((frame) => /^event: (.*)\ndata: (.*)$/.exec(frame)!);
  const events = frames.map(([, name, data]) => {
    const event = JSON.parse(data) as OpenAI.Responses.ResponseStreamEvent;
    assertEquals(name, event.type);
    return event;
  });
  assertEquals(events.map(({ sequence_number }) => sequence_number), events.map((_, i) => i));
  const last = events.at(-1)! as OpenAI.Responses.ResponseCompletedEvent;
  assertEquals(lasting(last.response), lasting(whole), "streamed and whole differ");
  const done = events.flatMap((event) => event.type === "response.output_item.done" ? event.item : []);
  assertEquals(done, last.response.output);
  // The client must assemble the whole answer from the events.
  const { output_parsed: _, ...assembled } = await client.responses.stream(request).finalResponse();
  assertEquals(plain(lasting(assembled as Response)), plain(lasting(whole)));
  return { whole, events };
}

/** Returns the value without the fields that the client's parser adds. */
function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value, (key, value) => key.startsWith("parsed") ? undefined : value));
}

const typesOf = ({ output }: Response) => output.map(({ type }) => type);

Deno.test("Responses: answers in OpenAI's format with the request's settings", async () => {
  await withServer({}, async (server) => {
    const { whole } = await both(server, {
      instructions: "Be kind",
      metadata: { run: "7" },
      temperature: 0.5,
      store: true,
    });
    assert(whole.id.startsWith("resp_"));
    assertEquals([whole.object, whole.model, whole.status], ["response", "demo", "completed"]);
    assertEquals(whole.output_text, TEXT);
    const [message] = whole.output;
    assertEquals({ ...message, id: "" }, {
      type: "message",
      id: "",
      role: "assistant",
      status: "completed",
      content: [{ type: "output_text", text: TEXT, annotations: [], logprobs: [] }],
    });
    assertEquals(whole.instructions, "Be kind");
    assertEquals(whole.metadata, { run: "7" });
    assertEquals([whole.temperature, whole.top_p, whole.truncation], [0.5, 1, "disabled"]);
    assertEquals((whole as { store?: boolean }).store, true);
    assertEquals([whole.error, whole.incomplete_details, whole.previous_response_id], [null, null, null]);
    const [{ prompt }] = server.engine.requests;
    assertEquals(whole.usage?.input_tokens, prompt.length);
    assertEquals(whole.usage?.total_tokens, prompt.length + whole.usage!.output_tokens);
    assertEquals(
      server.engine.tokenizer.decode(prompt, { special: true }),
      "<|start|>system\nBe kind<|end|><|start|>user\nHi<|end|><|start|>assistant\n",
    );
  });
});

Deno.test("Responses: thinking, text and calls are items, the same whole and streamed", async () => {
  await withServer(replying(THINK + SAY + PARIS + ROME), async (server) => {
    const { whole, events } = await both(server, { tools });
    assertEquals(typesOf(whole), ["reasoning", "message", "function_call", "function_call"]);
    const thought = itemOf(whole, "reasoning");
    const weather = itemOf(whole, "function_call");
    assertEquals(thought.content, [{ type: "reasoning_text", text: "Paris… and wörld 🙂" }]);
    assertEquals(thought.summary, []);
    assertEquals([weather.name, weather.arguments, weather.status], [
      "weather",
      '{"city": "Paris 🙂"}',
      "completed",
    ]);
    const spent = new TextEncoder().encode("Paris… and wörld 🙂").length;
    assertEquals(whole.usage?.output_tokens_details.reasoning_tokens, spent);
    const kinds = events.map(({ type }) => type).filter((type, i, all) => type !== all[i - 1]);
    assertEquals(kinds, [
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
      "response.reasoning_text.delta",
      "response.reasoning_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.output_item.added",
      "response.content_part.added",
      "response.output_text.delta",
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      ...[1, 2].flatMap(() => [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
      ]),
      "response.completed",
    ] as never);
    const deltas = events.flatMap((event) => event.type === "response.output_text.delta" ? event.delta : []);
    assertEquals(deltas.join(""), "Here you are");
    const [conversation] = server.engine.chatForm.conversations;
    assertEquals(conversation.tools?.map(({ name }) => name), ["weather", "time"]);
    assertEquals([conversation.toolChoice, conversation.parallelToolCalls], ["auto", true]);
  });
});

Deno.test("Responses: reasoning.summary returns thoughts as the summary", async () => {
  await withServer(replying(THINK + SAY), async (server) => {
    const { whole, events } = await both(server, { reasoning: { summary: "auto", effort: "high" } });
    const thought = itemOf(whole, "reasoning");
    assertEquals(thought.summary, [{ type: "summary_text", text: "Paris… and wörld 🙂" }]);
    assertEquals(thought.content, undefined);
    assertEquals(whole.reasoning, { effort: "high", summary: "auto" });
    const texts = events.flatMap((event) =>
      event.type === "response.reasoning_summary_text.delta" ? event.delta : []
    );
    assertEquals(texts.join(""), "Paris… and wörld 🙂");
    assertEquals(server.engine.chatForm.conversations[0].effort, "high");
  });
});

Deno.test("Responses: an answer sent back as input becomes one message of the assistant", async () => {
  await withServer(replying(THINK + SAY + PARIS + ROME), async ({ client, engine }) => {
    const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: "Weather?" }];
    const first = await client.responses.create({ model: "demo", input, tools });
    for (const item of first.output) input.push(item as OpenAI.Responses.ResponseInputItem);
    for (const item of first.output) {
      if (item.type !== "function_call") continue;
      input.push({ type: "function_call_output", call_id: item.call_id, output: `${item.name}: fine` });
    }
    await client.responses.create({
      model: "demo",
      input,
      tools,
      tool_choice: { type: "function", name: "time" },
    });
    const calls = ["weather", "time"].map((name, i) => ({
      id: `call_${"x".repeat(23)}${i}`,
      type: "function",
      function: { name, arguments: name === "time" ? '{"city": "Rome"}' : '{"city": "Paris 🙂"}' },
    }));
    const { messages, toolChoice } = engine.chatForm.conversations[1];
    assertEquals(toolChoice, { name: "time" });
    assertEquals(messages, [
      { role: "user", content: "Weather?" },
      {
        role: "assistant",
        content: "Here you are",
        reasoning_content: "Paris… and wörld 🙂",
        tool_calls: calls,
      },
      { role: "tool", tool_call_id: calls[0].id, content: "weather: fine" },
      { role: "tool", tool_call_id: calls[1].id, content: "time: fine" },
    ]);
  });
});

Deno.test("Responses: every kind of input item becomes chat messages for the template", async () => {
  await withServer({}, async ({ client, engine }) => {
    await client.responses.create({
      model: "demo",
      instructions: "First",
      input: [
        { role: "developer", content: "Second" },
        {
          type: "message",
          role: "user",
          content: [{ type: "input_text", text: "a" }, { type: "input_text", text: "b" }],
        },
        { type: "reasoning", id: "rs_1", summary: [{ type: "summary_text", text: "hm" }] },
        { role: "assistant", content: "Well" },
        { role: "assistant", content: "And" },
        { type: "reasoning", id: "rs_2", summary: [], encrypted_content: "sealed" },
        { type: "function_call", call_id: "c1", name: "f", arguments: "{}" },
        {
          type: "function_call_output",
          call_id: "c1",
          output: [{ type: "input_text", text: "x" }, { type: "input_text", text: "y" }],
        },
        { type: "function_call", call_id: "c2", name: "g", arguments: "no JSON" },
        {
          type: "function_call_output",
          call_id: "c2",
          output: [{ type: "input_image", image_url: "data:image/png;base64,AA==", detail: "auto" }],
        },
      ],
    });
    const call = (id: string, name: string, text: string) => ({
      id,
      type: "function",
      function: { name, arguments: text },
    });
    assertEquals(engine.chatForm.conversations[0].messages, [
      { role: "system", content: "First" },
      { role: "developer", content: "Second" },
      { role: "user", content: "a\nb" },
      { role: "assistant", content: "Well", reasoning_content: "hm" },
      { role: "assistant", content: "And", tool_calls: [call("c1", "f", "{}")] },
      { role: "tool", tool_call_id: "c1", content: "x\ny" },
      { role: "assistant", content: null, tool_calls: [call("c2", "g", "no JSON")] },
      { role: "tool", tool_call_id: "c2", content: "[image left out: this model reads text only]" },
    ]);
  });
});

Deno.test("Responses: the client's parsers accept text.format schemas and strict functions", async () => {
  const Event = z.object({ name: z.string(), day: z.number() });
  const constraints: (Constraint | undefined)[] = [];
  const reply = (_: string, { constraint }: { constraint?: Constraint }) => {
    constraints.push(constraint);
    return '{"name": "Fair", "day": 3}';
  };
  await withServer({ reply }, async ({ client }) => {
    const text = { format: zodTextFormat(Event, "event") };
    const parsed = await client.responses.parse({ model: "demo", input: "When?", text });
    assertEquals(parsed.output_parsed, { name: "Fair", day: 3 });
    const streamed = await client.responses.stream({ model: "demo", input: "When?", text }).finalResponse();
    assertEquals(streamed.output_parsed, { name: "Fair", day: 3 });
    assertEquals(parsed.text?.format?.type, "json_schema");
    for (const constraint of constraints) {
      const { schema } = constraint as Extract<Constraint, { kind: "json_schema" }>;
      assertEquals((schema as { required: string[] }).required, ["name", "day"]);
    }
    await client.responses.create({ model: "demo", input: "", text: { format: { type: "json_object" } } });
    assertEquals(constraints.at(-1), { kind: "json_schema", schema: { type: "object" } });
    await client.responses.create({ model: "demo", input: "", guided_regex: "[a-c]+" } as never);
    assertEquals(constraints.at(-1), { kind: "regex", pattern: "[a-c]+" });
  });
  await withServer(replying(PARIS), async ({ client }) => {
    const weather = zodResponsesFunction({ name: "weather", parameters: z.object({ city: z.string() }) });
    const answer = await client.responses.parse({ model: "demo", input: "?", tools: [weather] });
    const call = itemOf(answer as { output: Item[] }, "function_call");
    assertEquals((call as { parsed_arguments?: unknown }).parsed_arguments, { city: "Paris 🙂" });
  });
});

Deno.test("Responses: allowed_tools removes the other tools", async () => {
  await withServer(replying(PARIS), async ({ client, engine }) => {
    const tool_choice = {
      type: "allowed_tools" as const,
      mode: "required" as const,
      tools: [{ type: "function", name: "weather" }],
    };
    await client.responses.create({
      model: "demo",
      input: "?",
      tools,
      tool_choice,
      parallel_tool_calls: false,
    });
    const [conversation] = engine.chatForm.conversations;
    assertEquals(conversation.tools?.map(({ name }) => name), ["weather"]);
    assertEquals([conversation.toolChoice, conversation.parallelToolCalls], ["required", false]);
  });
});

Deno.test("Responses: an answer cut by max_output_tokens is incomplete, wherever it is cut", async () => {
  for (const [reply, type] of [[THINK, "reasoning"], [SAY, "message"], [PARIS, "function_call"]]) {
    await withServer(replying(reply), async (server) => {
      const length = reply.length - "<|start|>".length - 4;
      const { whole, events } = await both(server, { tools, max_output_tokens: length });
      assertEquals(whole.status, "incomplete");
      assertEquals(whole.incomplete_details, { reason: "max_output_tokens" });
      assertEquals(whole.max_output_tokens, length);
      const item = whole.output.at(-1)!;
      assertEquals([item.type, (item as { status: string }).status] as string[], [type, "incomplete"]);
      assertEquals(events.at(-1)!.type, "response.incomplete");
    });
  }
  await withServer({}, async (server) => {
    const { whole } = await both(server, { max_output_tokens: 0 });
    assertEquals([whole.status, whole.output, whole.usage?.output_tokens], ["incomplete", [], 0]);
  });
});

Deno.test("Responses: an answer without text has an empty message", async () => {
  for (const reply of ["", THINK]) {
    await withServer(replying(reply), async (server) => {
      const { whole } = await both(server);
      assertEquals([whole.status, whole.output_text], ["completed", ""]);
      assertEquals(whole.output.at(-1)!.type, "message");
    });
  }
});

Deno.test("Responses: log-probabilities come on request and cover exactly the text", async () => {
  await withServer(replying(THINK + SAY + PARIS), async (server) => {
    const include = ["message.output_text.logprobs"] as OpenAI.Responses.ResponseIncludable[];
    const { whole, events } = await both(server, { tools, include, top_logprobs: 2 });
    const { logprobs } = itemOf(whole, "message").content[0] as OpenAI.Responses.ResponseOutputText;
    assertEquals(logprobs!.map(({ token }) => token).join(""), "Here you are");
    assertEquals(logprobs![0].top_logprobs.length, 2);
    const streamed = events.flatMap((event) =>
      event.type === "response.output_text.delta" ? event.logprobs : []
    );
    assertEquals(streamed, logprobs as never);
    assertEquals(whole.top_logprobs, 2);
    const without = await server.client.responses.create({ model: "demo", input: "Hi", top_logprobs: 2 });
    assertEquals(server.engine.requests.at(-1)!.logprobs, undefined);
    assertEquals(without.status, "completed");
  });
});

Deno.test("Responses: every supported field reaches the engine, and meaningless ones are ignored", async () => {
  await withServer({}, async ({ client, engine }) => {
    const own = {
      top_k: 5,
      min_p: 0.1,
      repetition_penalty: 1.2,
      presence_penalty: 1,
      logit_bias: { "3": -100 },
      seed: 4,
      stop: ["x", "y"],
      thinking_budget_tokens: 9,
      chat_template_kwargs: { mood: "calm" },
    };
    await client.responses.create({
      ...own,
      model: "demo",
      input: "Hi",
      temperature: 0,
      top_p: 0.5,
      max_output_tokens: 5,
      reasoning: { effort: "none" },
      user: "u",
      service_tier: "auto",
      prompt_cache_key: "k",
      safety_identifier: "s",
      max_tool_calls: 3,
      truncation: "disabled",
      background: false,
      previous_response_id: null,
      conversation: null,
      include: ["reasoning.encrypted_content"],
      text: { verbosity: "low" },
      stream_options: null,
    });
    const [{ sampling, stop, maxTokens, priority }] = engine.requests;
    assertEquals([sampling?.temperature, sampling?.topK, sampling?.topP, sampling?.minP], [0, 5, 0.5, 0.1]);
    assertEquals([sampling?.repetitionPenalty, sampling?.presencePenalty, sampling?.seed], [1.2, 1, 4]);
    assertEquals([...sampling!.logitBias!], [[3, -100]]);
    assertEquals([stop, maxTokens, priority] as unknown[], [["x", "y"], 5, "interactive"]);
    const [conversation] = engine.chatForm.conversations;
    assertEquals(conversation.effort, false);
    assertEquals(conversation.thinkingBudget, 9);
    assertEquals(conversation.variables, { mood: "calm" });
  });
});

const REFUSED: [body: Record<string, unknown>, code: string, param: string][] = [
  [{ input: undefined }, "missing_required_parameter", "input"],
  [{ input: [] }, "invalid_value", "input"],
  [{ input: 3 }, "invalid_value", "input"],
  [{ input: [{ role: "user" }] }, "missing_required_parameter", "input[0].content"],
  [{ input: [{ role: "tool", content: "a" }] }, "invalid_value", "input[0].role"],
  [{ input: [{ type: "screenshot_call", id: "ss_1" }] }, "invalid_value", "input[0].type"],
  [
    { input: [{ type: "local_shell_call", action: { type: "exec", command: ["ls"] } }] },
    "missing_required_parameter",
    "input[0].call_id",
  ],
  [
    { input: [{ role: "user", content: [{ type: "input_image", image_url: "x" }] }] },
    "unsupported_image_url",
    "input[0].content[0].image_url",
  ],
  [
    {
      input: [{ role: "user", content: [{ type: "input_image", image_url: "data:image/png;base64,AA==" }] }],
    },
    "unsupported_content",
    "input[0].content[0].image_url",
  ],
  [
    { input: [{ role: "system", content: [{ type: "input_image" }] }] },
    "unsupported_content",
    "input[0].content[0].type",
  ],
  [
    { input: [{ type: "function_call", call_id: "a", arguments: "" }] },
    "missing_required_parameter",
    "input[0].name",
  ],
  [{ input: [{ role: "user", content: "raise" }] }, "chat_template_error", "input"],
  [{ conversation: "conv_1" }, "unsupported_parameter", "conversation"],
  [{ prompt: { id: "pmpt_1" } }, "unsupported_parameter", "prompt"],
  [{ background: true }, "unsupported_parameter", "background"],
  [{ truncation: "auto" }, "unsupported_parameter", "truncation"],
  [{ tools: [{ type: "functoin", name: "f" }] }, "invalid_value", "tools[0].type"],
  [{ tools: [{ type: "custom" }] }, "missing_required_parameter", "tools[0].name"],
  [{ tools: [{ type: "local_shell" }, { type: "local_shell" }] }, "invalid_value", "tools[1].type"],
  [{ tools: [tools[0], { type: "custom", name: "weather" }] }, "invalid_value", "tools[1].name"],
  [
    { tools: [{ type: "namespace", name: "a", tools: [tools[0], tools[0]] }] },
    "invalid_value",
    "tools[0].tools[1].name",
  ],
  [
    { tools: [{ type: "namespace", name: "a", tools: [{ type: "web_search" }] }] },
    "invalid_value",
    "tools[0].tools[0].type",
  ],
  [
    {
      tools: ["a", "b"].map((name) => ({
        type: "namespace",
        name,
        tools: Array.from({ length: 257 }, (_, i) => toolOf(`t${i}`)),
      })),
    },
    "invalid_value",
    "tools",
  ],
  [
    {
      tools: ["a", "b"].map((name) => ({ type: "namespace", name, tools })),
      tool_choice: { type: "function", name: "time" },
    },
    "invalid_value",
    "tool_choice.name",
  ],
  [{ tools: [{ type: "web_search" }], tool_choice: "required" }, "invalid_value", "tool_choice"],
  [
    {
      tools: [...tools, { type: "web_search" }],
      tool_choice: { type: "allowed_tools", mode: "auto", tools: [{ type: "web_search" }] },
    },
    "unsupported_parameter",
    "tool_choice.tools[0].type",
  ],
  [{ tools: [{ type: "function" }] }, "missing_required_parameter", "tools[0].name"],
  [{ tools: [tools[0], tools[0]] }, "invalid_value", "tools[1].name"],
  [{ tools, tool_choice: { type: "function", name: "nothing" } }, "invalid_value", "tool_choice.name"],
  [{ tools, tool_choice: { type: "web_search" } }, "unsupported_parameter", "tool_choice.type"],
  [{ tools, tool_choice: { type: "custom", name: "time" } }, "invalid_value", "tool_choice.name"],
  [{ tools, tool_choice: { type: "local_shell" } }, "invalid_value", "tool_choice.type"],
  [{ tools, tool_choice: { type: "any" } }, "invalid_value", "tool_choice.type"],
  [{ tool_choice: "required" }, "invalid_value", "tool_choice"],
  [{ response_format: { type: "json_object" } }, "invalid_value", "response_format"],
  [
    { text: { format: { type: "json_schema", name: "a" } } },
    "missing_required_parameter",
    "text.format.schema",
  ],
  [{ text: { format: { type: "json_object" } }, grammar: "a" }, "conflicting_parameters", "grammar"],
  [{ text: { format: { type: "xml" } } }, "invalid_value", "text.format.type"],
  [{ max_output_tokens: -1 }, "invalid_value", "max_output_tokens"],
  [{ top_logprobs: 21 }, "invalid_value", "top_logprobs"],
  [{ metadata: { a: 1 } }, "invalid_type", "metadata.a"],
  [{ reasoning: { effort: "enormous" } }, "invalid_value", "reasoning.effort"],
  [{ model: "other" }, "model_not_found", "model"],
];

Deno.test("Responses: unsupported fields are refused, and the error names the field, over HTTP and in batches", async () => {
  await withServer({}, async ({ engine, post }) => {
    for (const [fields, code, param] of REFUSED) {
      const body = { model: "demo", input: "Hi", ...fields };
      const response = await post("/v1/responses", body);
      const { error } = await response.json();
      assertEquals([error.code, error.param], [code, param], JSON.stringify(fields));
      assert(response.status === 400 || response.status === 404);
      const executed = await execute(new FakeEngine(), { url: "/v1/responses", body });
      assertEquals(executed, { status: response.status, body: { error } });
    }
    assertEquals(engine.requests, []);
  });
});

Deno.test("Responses: if no answer can match a schema, the error names the schema's field", async () => {
  const refuses = (constraint: Constraint) => constraint.kind === "json_schema" ? "too odd" : undefined;
  await withServer({ refuses }, async ({ post }) => {
    const format = { type: "json_schema", name: "a", schema: { type: "object" } };
    const { error } = await (await post("/v1/responses", { input: "Hi", text: { format } })).json();
    assertEquals([error.code, error.param, error.message], [
      "invalid_constraint",
      "text.format.schema",
      "too odd",
    ]);
  });
});

Deno.test("Responses: a failure before the answer has its own status, whole or streamed", async () => {
  await withServer({ contextLength: 30 }, async ({ client }) => {
    for (const stream of [false, true]) {
      const error = await assertRejects(
        () => client.responses.create({ model: "demo", input: "x".repeat(50), stream }),
        OpenAI.BadRequestError,
      );
      assertEquals(error.code, "context_length_exceeded");
    }
  });
});

Deno.test("Responses: a failure in mid-stream is an error event and a failed answer", async () => {
  const failure = new EngineError("engine_failed", "It broke");
  await withServer({ failure }, async ({ client, post }) => {
    const request = { model: "demo", input: "x".repeat(200) };
    const text = await (await post("/v1/responses", { ...request, stream: true })).text();
    const events = text.trimEnd().split("\n\n").map((frame) => JSON.parse(frame.split("\ndata: ")[1]));
    assertEquals(events.map(({ type }) => type), [
      "response.created",
      "response.in_progress",
      "error",
      "response.failed",
    ]);
    const [, , error, failed] = events;
    assertEquals([error.code, error.message, error.param], ["engine_failed", "It broke", null]);
    assertEquals(failed.response.status, "failed");
    assertEquals(failed.response.error, { code: "server_error", message: "It broke" });
    await assertRejects(
      async () => await Array.fromAsync(await client.responses.create({ ...request, stream: true })),
      OpenAI.APIError,
      "It broke",
    );
    await assertRejects(() => client.responses.stream(request).finalResponse(), OpenAI.APIError, "It broke");
  });
});

Deno.test("Responses: incomplete JSON arguments fail the answer in mid-stream", async () => {
  await withServer(replying('<|start|>call weather\n{"city": '), async ({ client, post }) => {
    const request = { model: "demo", input: "Hi", tools };
    await assertRejects(() => client.responses.create(request), OpenAI.UnprocessableEntityError);
    const text = await (await post("/v1/responses", { ...request, stream: true })).text();
    const last = JSON.parse(text.trimEnd().split("\n\n").at(-1)!.split("\ndata: ")[1]);
    assertEquals([last.type, last.response.output[0].status], ["response.failed", "incomplete"]);
  });
});

Deno.test("Responses: a client that leaves a stream cancels its work", async () => {
  const reply = () => "a".repeat(500);
  await withServer({ reply, tokenMs: 5 }, async ({ client, engine, errors }) => {
    const stream = await client.responses.create({ model: "demo", input: "Hi", stream: true });
    for await (const event of stream) {
      if (event.type === "response.output_text.delta") break;
    }
    await until(() => engine.stats().running === 0);
    assert(engine.stats().generatedTokens < 500);
    assertEquals(errors, []);
  });
});

Deno.test("Responses: prompts of different keys share no cache", async () => {
  const apiKeys = ["one", "two"];
  await withServer({ apiKeys }, async ({ base, engine, post }) => {
    for (const apiKey of apiKeys) {
      const client = new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0 });
      await client.responses.create({ model: "demo", input: "Hi" });
    }
    const [one, two] = engine.requests.map(({ cacheSalt }) => cacheSalt);
    assert(one !== undefined && two !== undefined && one !== two);
    const refused = await post("/v1/responses", { input: "Hi" });
    assertEquals([refused.status, (await refused.json()).error.code], [401, "invalid_api_key"]);
  });
});

Deno.test("Responses: input_tokens equals the usage of an answer", async () => {
  await withServer({}, async ({ client }) => {
    for (
      const body of [
        { input: "Hi" },
        { input: "Hi", instructions: "Be kind", tools },
        { input: [{ role: "user" as const, content: "a" }], reasoning: { effort: "none" as const } },
      ]
    ) {
      const request = { model: "demo", ...body };
      const counted = await client.responses.inputTokens.count(request);
      assertEquals(counted.object, "response.input_tokens");
      assertEquals(counted.input_tokens, (await client.responses.create(request)).usage?.input_tokens);
    }
  });
});

Deno.test("Responses: batch lines are answered as over HTTP, and their tokens are counted", async () => {
  await inDataFolder((path) =>
    withBatches(path, replying(THINK + SAY), async ({ client }) => {
      const url = "/v1/responses";
      const line = (id: string, body: Record<string, unknown>) =>
        JSON.stringify({ custom_id: id, method: "POST", url, body: { model: "demo", ...body } });
      const input = await upload(client, [line("good", { input: "Hi" }), line("bad", { input: [] })]);
      const { id } = await createBatch(client, input, { endpoint: url, strict: false });
      const batch = await waitFor(client, id, "completed");
      assertEquals(batch.request_counts, { total: 2, completed: 1, failed: 1 });
      const [good] = await linesOf(client, batch.output_file_id);
      const [bad] = await linesOf(client, batch.error_file_id);
      const whole = await client.responses.create({ model: "demo", input: "Hi", store: false });
      assertEquals(lasting(good.response.body), lasting(whole));
      assertEquals([bad.response.status_code, bad.response.body.error.param], [400, "input"]);
      assertEquals(batch.usage?.input_tokens, whole.usage?.input_tokens);
      assertEquals(batch.usage?.output_tokens, whole.usage?.output_tokens);
      // The chat line has another endpoint than the batch, so it is refused.
      const other = await upload(client, [chatLine("chat")]);
      const mixed = await createBatch(client, other, { endpoint: url });
      assertEquals((await waitFor(client, mixed.id, "failed")).errors?.data?.[0].code, "endpoint_mismatch");
    })
  );
});
