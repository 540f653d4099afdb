import { assert, assertEquals, assertRejects } from "@std/assert";
import type { Engine } from "../engine/mod.ts";
import { execute } from "../routes/execute.ts";
import { FakeEngine } from "../routes/testing.ts";
import { withChatModel } from "../testing/chat_model.ts";
import { chat, type ChatAnswer, type ChatOptions, type ChatPart } from "./chat.ts";
import { CompyError } from "./errors.ts";
import type { Message } from "./messages.ts";

const THINK = "<|start|>think\nParis… and wörld 🙂";
const PARIS = '<|start|>call weather\n{"city": "Paris 🙂"}';
const ROME = '<|start|>call time\n{"city": "Rome"}';
const TEXT = "<|start|>text\nHere you are";

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ name: "weather", description: "The weather", parameters }, { name: "time", parameters }];
const replying = (text: string) => new FakeEngine({ reply: () => text });

const refusal = (code: string, words: string) => async (promise: () => Promise<unknown>) => {
  const error = await assertRejects(promise, CompyError, words);
  assertEquals(error.code, code as CompyError["code"]);
};

/** Joins the texts of the parts. */
function joined(parts: readonly ChatPart[]) {
  return {
    text: parts.map(({ text = "" }) => text).join(""),
    reasoning: parts.map(({ reasoning = "" }) => reasoning).join(""),
    toolCalls: parts.flatMap(({ toolCall }) => toolCall ?? []),
  };
}

Deno.test("chat: returns thinking, text and calls both as parts and in the whole answer", async () => {
  const answering = chat(replying(THINK + TEXT + PARIS + ROME), "Weather?", { tools });
  const whole = answering.answer();
  const parts = await Array.fromAsync(answering);
  const { usage, timings, ...answer } = await whole;
  assertEquals(answer, {
    text: "Here you are",
    reasoning: "Paris… and wörld 🙂",
    toolCalls: [
      {
        id: `call_${"x".repeat(23)}0`,
        name: "weather",
        arguments: { city: "Paris 🙂" },
        json: '{"city": "Paris 🙂"}',
      },
      { id: `call_${"x".repeat(23)}1`, name: "time", arguments: { city: "Rome" }, json: '{"city": "Rome"}' },
    ],
    finishReason: "tool_calls",
  });
  assertEquals(joined(parts), {
    text: answer.text,
    reasoning: answer.reasoning,
    toolCalls: [...answer.toolCalls],
  });
  assertEquals(await Array.fromAsync(answering), parts, "again, from the first part on");
  assertEquals(usage.reasoningTokens, new TextEncoder().encode(answer.reasoning).length);
  assert(usage.promptTokens > 0 && timings.decodeMs >= 0);
});

Deno.test("chat: omits a truncated call from the parts and from the answer", async () => {
  const answering = chat(replying(ROME + PARIS), "Weather?", { tools, maxTokens: ROME.length + 8 });
  const parts = await Array.fromAsync(answering);
  const answer = await answering.answer();
  assertEquals(answer.toolCalls.map(({ name }) => name), ["time"]);
  assertEquals(joined(parts).toolCalls, [...answer.toolCalls]);
  assertEquals(answer.finishReason, "length");
});

Deno.test("chat: builds the same prompt as the server for a conversation with calls and their results", async () => {
  const engine = replying(TEXT);
  const messages: Message[] = [
    { role: "system", content: "Short, \ud800please." },
    { role: "user", content: "Weather?" },
    {
      role: "assistant",
      reasoning: "I ask.",
      toolCalls: [{ id: "c1", name: "weather", arguments: { city: "Rome" }, json: '{ "city":"Rome" }' }],
    },
    { role: "tool", toolCallId: "c1", content: "Sun" },
  ];
  const asked = messages.map((message) => {
    if (message.role === "tool") return { role: "tool", tool_call_id: "c1", content: "Sun" };
    if (message.role !== "assistant") return message;
    const call = { name: "weather", arguments: '{ "city":"Rome" }' };
    const tool_calls = [{ id: "c1", type: "function", function: call }];
    return { role: "assistant", reasoning_content: "I ask.", tool_calls };
  });
  const functions = tools.map((tool) => ({ type: "function", function: tool }));
  await execute(engine, {
    url: "/v1/chat/completions",
    body: { messages: asked, tools: functions, reasoning_effort: "high", thinking_budget_tokens: 9 },
  });
  await chat(engine, messages, { tools, effort: "high", thinkingBudget: 9 }).answer();
  const plain = ({ chatForm: { conversations } }: FakeEngine, i: number) =>
    JSON.parse(JSON.stringify(conversations[i]));
  assertEquals(plain(engine, 1), plain(engine, 0));
  const { signal: _, ...own } = engine.requests[1];
  const { signal: __, weight: ___, ...server } = engine.requests[0];
  assertEquals(own, server);
});

Deno.test("chat: continues a last assistant message unless told not to", async () => {
  const engine = replying("…");
  const messages: Message[] = [{ role: "user", content: "Count" }, { role: "assistant", content: "1, 2" }];
  await chat(engine, messages, {}).answer();
  await chat(engine, messages, { continueLast: false }).answer();
  assertEquals(engine.chatForm.conversations.map(({ continueFinal }) => continueFinal), [true, false]);
  await refusal("invalid_request", "Invalid continueLast")(() =>
    chat(engine, "Hi", { continueLast: true }).answer()
  );
});

Deno.test("chat: copies a request, so later changes to its parts have no effect", async () => {
  const engine = replying(TEXT);
  const conversation: Message[] = [{ role: "user", content: "First" }];
  const options = { maxTokens: 3 };
  const asked = chat(engine, conversation, options);
  conversation.push({ role: "user", content: "Second" });
  options.maxTokens = 0;
  const { usage } = await asked.answer();
  assertEquals(engine.chatForm.conversations[0].messages.length, 1);
  assertEquals(usage.completionTokens, 3);
});

Deno.test("chat: throws an error with a code for an invalid request, and the message names the field as the caller wrote it", async () => {
  const engine = new FakeEngine({ refuses: () => undefined, contextLength: 64 });
  const cases: [options: unknown, words: string][] = [
    [{ temprature: 0 }, 'There is no option "temprature"; there are temperature, '],
    [{ temperature: "0" }, 'Invalid temperature: must be a number (got "0")'],
    [{ stop: [1] }, "Invalid stop: must be a string or an array of strings (got [1])"],
    [{ schema: {}, regex: "a" }, "Give one of schema, regex, choices, grammar (got schema and regex)"],
    [{ schema: 1 }, "Invalid schema: must be a JSON schema: an object, true or false (got 1)"],
    [{ priority: "low" }, 'Invalid priority: must be "interactive" or "batch" (got "low")'],
    [
      { tools: [{ name: "a b" }] },
      'Invalid tools[0].name: must have 1 to 128 letters, digits and _ . - (got "a b")',
    ],
    [
      { tools: [{ name: "a" }, { name: "a" }] },
      "Invalid tools[1].name: must differ from the name of tools[0]",
    ],
    [{ toolChoice: "required" }, 'Invalid toolChoice: needs tools (got "required")'],
    [{ tools, toolChoice: { name: "x" } }, "Invalid toolChoice.name: must be the name of one of the tools"],
    [
      { templateVariables: { messages: 1 } },
      "Invalid templateVariables: must not use names that the template reserves",
    ],
    [{ logitBias: { 1: 2 } }, "Invalid logitBias: must be a Map of token ids to numbers"],
  ];
  for (const [options, words] of cases) {
    await refusal("invalid_request", words)(() => chat(engine, "Hi", options as ChatOptions).answer());
  }
  const talks: [messages: unknown, words: string][] = [
    [[], "Invalid messages: must be a string, or an array of at least one message (got [])"],
    [
      [{ role: "usr", content: "" }],
      "Invalid messages[0].role: must be system, developer, user, assistant, tool",
    ],
    [[{ role: "user", content: 1 }], "Invalid messages[0].content: must be a string (got 1)"],
    [
      [{ role: "tool", content: "a" }],
      "Invalid messages[0].toolCallId: must be the id of the call (got undefined)",
    ],
  ];
  for (const [messages, words] of talks) {
    await refusal("invalid_request", words)(() => chat(engine, messages as Message[], {}).answer());
  }
  await refusal("context_length_exceeded", "The prompt has")(() => chat(engine, "a".repeat(99), {}).answer());
  assertEquals(engine.requests.length, 0, "nothing ran");
});

/** Returns whether a call's arguments are JSON. The arguments of a truncated call are not. */
function whole(json: string): boolean {
  try {
    JSON.parse(json);
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns the answer of the server's API to the same request. Unlike the library, the API returns the
 * beginning of a truncated call.
 */
async function served(engine: Engine, body: Record<string, unknown>) {
  const { status, body: answer } = await execute(engine, { url: "/v1/chat/completions", body });
  assertEquals(status, 200, JSON.stringify(answer));
  // deno-lint-ignore no-explicit-any
  const { choices: [{ message, finish_reason }], usage } = answer as any;
  // deno-lint-ignore no-explicit-any
  const calls = (message.tool_calls ?? []).map(({ function: f }: any) => [f.name, f.arguments]);
  const last = calls.at(-1);
  if (finish_reason === "length" && last !== undefined && !whole(last[1])) calls.pop();
  return {
    text: message.content ?? "",
    reasoning: message.reasoning_content ?? "",
    calls,
    finish: finish_reason,
    tokens: [usage.prompt_tokens, usage.completion_tokens, usage.completion_tokens_details.reasoning_tokens],
  };
}

function shown({ text, reasoning, toolCalls, finishReason, usage }: ChatAnswer) {
  return {
    text,
    reasoning,
    calls: toolCalls.map(({ name, json }) => [name, json]),
    finish: finishReason,
    tokens: [usage.promptTokens, usage.completionTokens, usage.reasoningTokens],
  };
}

Deno.test("chat: answers bit for bit like the server, with thinking, schemas and tools, alone and concurrently", async () => {
  await withChatModel("from the prompt", async ({ engine }) => {
    const schema = {
      type: "object",
      properties: { a: { type: "string", maxLength: 8 }, b: { type: "boolean" } },
      required: ["a", "b"],
      additionalProperties: false,
    };
    const short = {
      ...parameters,
      properties: { city: { type: "string", maxLength: 6 } },
      additionalProperties: false,
    };
    const calling = [{ name: "weather", parameters: short }];
    const functions = calling.map((tool) => ({ type: "function", function: tool }));
    const response_format = { type: "json_schema", json_schema: { name: "x", schema } };
    const cases: [own: ChatOptions, server: Record<string, unknown>][] = [
      [{ maxTokens: 40 }, { max_tokens: 40 }],
      [{ maxTokens: 400, thinkingBudget: 12, schema }, {
        max_tokens: 400,
        thinking_budget_tokens: 12,
        response_format,
      }],
      [{ maxTokens: 300, effort: "none", schema }, {
        max_tokens: 300,
        reasoning_effort: "none",
        response_format,
      }],
      [
        {
          maxTokens: 400,
          thinkingBudget: 8,
          tools: calling,
          toolChoice: "required",
          parallelToolCalls: false,
        },
        {
          max_tokens: 400,
          thinking_budget_tokens: 8,
          tools: functions,
          tool_choice: "required",
          parallel_tool_calls: false,
        },
      ],
      [
        { maxTokens: 300, thinkingBudget: 8, tools: calling, schema },
        { max_tokens: 300, thinking_budget_tokens: 8, tools: functions, response_format },
      ],
      [{ maxTokens: 40, choices: ["yes", "no"], effort: "none" }, {
        max_tokens: 40,
        guided_choice: ["yes", "no"],
        reasoning_effort: "none",
      }],
    ];
    const messages: Message[] = [{ role: "user", content: "Weather in Rome?" }];
    const expected = [];
    for (const [i, [, body]] of cases.entries()) {
      expected.push(await served(engine, { messages, seed: i, temperature: 0.8, top_p: 0.9, ...body }));
    }
    const asked = cases.map(([options], i) =>
      chat(engine, messages, { seed: i, temperature: 0.8, topP: 0.9, ...options })
    );
    const answers = await Promise.all(asked.map((asked) => asked.answer()));
    assertEquals(answers.map(shown), expected);
    for (const [i, asked1] of asked.entries()) {
      const { text, reasoning, toolCalls } = answers[i];
      assertEquals(joined(await Array.fromAsync(asked1)), { text, reasoning, toolCalls: [...toolCalls] });
    }
    assert(answers[1].reasoning !== "", "it thinks");
    assertEquals(answers[2].json, JSON.parse(answers[2].text));
    assertEquals(answers[3].finishReason, "tool_calls");
  });
});
