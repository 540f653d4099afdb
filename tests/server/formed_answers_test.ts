import { assert, assertEquals, assertRejects } from "@std/assert";
import OpenAI from "openai";
import { execute } from "../../routes/execute.ts";
import { type ChatModel, type Thinks, withChatModel } from "../../testing/chat_model.ts";
import { fullTier } from "../../testing/tier.ts";
import {
  askBothWays,
  judgeCalls,
  judgeJson,
  type Said,
  saidWhole,
  type Tool,
} from "../../testing/tool_calls.ts";

/*
 * Constrained answers from a model with random weights, through everything except the network. A constraint must hold with all other
 * features, and an impossible one must be an error. Each case is a failure that was observed in another server.
 */

const messages = [{ role: "user" as const, content: "Weather in Köln?" }];
const schema = {
  type: "object",
  properties: {
    city: { type: "string", maxLength: 12 },
    days: { type: "array", items: { type: "integer", minimum: 1, maximum: 9 }, maxItems: 3 },
    sunny: { enum: [true, false, null, "perhaps"] },
  },
  required: ["city", "sunny"],
  additionalProperties: false,
};
const tools: Tool[] = [
  { type: "function", function: { name: "get_weather", parameters: schema } },
  {
    type: "function",
    function: {
      name: "notes.add-one",
      description: 'Adds a "note" </tool_call>',
      parameters: {
        type: "object",
        properties: { text: { type: "string", maxLength: 8 }, tags: { $ref: "#/$defs/tags" } },
        required: ["text"],
        additionalProperties: false,
        $defs: { tags: { type: "array", items: { enum: ["a", "b"] }, maxItems: 2 } },
      },
    },
  },
  { type: "function", function: { name: "now" } },
];
const response_format = { type: "json_schema" as const, json_schema: { name: "weather", schema } };

interface Count {
  whole: number;
  cut: number;
}

function judgeContent(said: Said, count: Count): void {
  if (said.finish === "length") return void count.cut++;
  count.whole++;
  judgeJson(said.content, schema);
}

async function eachModel(test: (model: ChatModel, thinks: Thinks) => Promise<void>): Promise<void> {
  for (const thinks of ["by itself", "from the prompt"] as const) {
    await withChatModel(thinks, (model) => test(model, thinks));
  }
}

Deno.test("constrained answers: match a schema with n, streaming, tools, thinking and stop texts", async () => {
  const extras: Record<string, unknown>[] = [
    {},
    { n: 3 },
    { tools },
    { tools, n: 2, parallel_tool_calls: false },
    { tools, tool_choice: "none" },
    { thinking_budget_tokens: 20 },
    { reasoning_effort: "none" },
    { reasoning_effort: "high", thinking_budget_tokens: 9, n: 2 },
    { temperature: 2, thinking_budget_tokens: 20 },
    { temperature: 0, thinking_budget_tokens: 20 },
    { stop: ["never to come"], thinking_budget_tokens: 20 },
    { logprobs: true, top_logprobs: 2, thinking_budget_tokens: 20 },
    { repetition_penalty: 1.3, thinking_budget_tokens: 20 },
  ];
  const count = { whole: 0, cut: 0 };
  await eachModel(async ({ client }) => {
    await Promise.all(extras.map(async (extra) => {
      const request = { model: "random", messages, response_format, max_tokens: 250, ...extra };
      for (const said of await askBothWays(client, request as never)) {
        if (said.calls.length === 0) judgeContent(said, count);
        else {
          assert(extra.tools && extra.tool_choice !== "none", "a call without tools");
          judgeCalls(said, tools);
        }
      }
    }));
  });
  assert(count.whole > count.cut, JSON.stringify(count));
});

fullTier.test("constrained answers: required calls are made with and without thinking, n and parallel calls", async () => {
  const extras: Record<string, unknown>[] = [
    {},
    { n: 3 },
    { parallel_tool_calls: false },
    { tool_choice: { type: "function", function: { name: "now" } } },
    { tool_choice: { type: "function", function: { name: "notes.add-one" } }, n: 2 },
    { reasoning_effort: "none" },
    { response_format },
  ];
  const count = { whole: 0, cut: 0 };
  await eachModel(async ({ client }) => {
    await Promise.all(extras.map(async (extra) => {
      const request = {
        model: "random",
        messages,
        tools,
        tool_choice: "required",
        thinking_budget_tokens: 12,
        max_tokens: 400,
        // This makes the end more probable than another call.
        logit_bias: { 256: 4 },
        ...extra,
      };
      for (const said of await askBothWays(client, request as never)) {
        judgeCalls(said, tools);
        if (said.finish === "length") {
          count.cut++;
          continue;
        }
        count.whole++;
        assert(said.calls.length > 0);
        const { parallel_tool_calls, tool_choice } = extra;
        if (parallel_tool_calls === false) assertEquals(said.calls.length, 1);
        const named = tool_choice as { function: { name: string } } | undefined;
        if (named) { for (const { name } of said.calls) assertEquals(name, named.function.name); }
      }
    }));
  });
  assert(count.whole > count.cut, JSON.stringify(count));
});

fullTier.test("constrained answers: text before a call is allowed, and text that looks like a marker stays text", async () => {
  let calls = 0;
  let texts = 0;
  await eachModel(async ({ client }) => {
    await Promise.all(Array.from({ length: 8 }, async (_, seed) => {
      const request = { model: "random", messages, tools, thinking_budget_tokens: 10, max_tokens: 160, seed };
      // Makes the markers of calls more probable, so that calls occur.
      for (const said of await askBothWays(client, { ...request, logit_bias: { 260: 3 } } as never)) {
        judgeCalls(said, tools);
        calls += said.calls.length;
        texts += Number(said.content !== "" && said.calls.length > 0);
      }
    }));
  });
  assert(calls > 8 && texts > 3, `${calls} calls, ${texts} after a text`);
});

Deno.test("constrained answers: thinking is unconstrained and ends at its budget", async () => {
  await withChatModel("from the prompt", async ({ client }) => {
    for (const budget of [0, 1, 30]) {
      const request = { model: "random", messages, response_format, thinking_budget_tokens: budget, seed: 1 };
      const answer = await client.chat.completions.create({ ...request, n: 3, max_tokens: 250 } as never);
      const { choices, usage } = answer as OpenAI.ChatCompletion;
      const thought = usage!.completion_tokens_details!.reasoning_tokens!;
      // A started character is completed.
      assert(thought <= 3 * (budget + 3), `${thought} of ${budget}`);
      for (const { content, reasoning, finish } of choices.map(saidWhole)) {
        if (finish === "stop") judgeJson(content, schema);
        if (budget < 30) continue;
        // Unconstrained random bytes are not JSON.
        assert(reasoning.length > 3 && !/^\s*\{/.test(reasoning), reasoning);
      }
    }
  });
});

fullTier.test("constrained answers: finish_reason is length wherever max_tokens cuts the answer", async () => {
  await eachModel(async ({ client }) => {
    const counts = Array.from({ length: 8 }, (_, i) => 1 + 5 * i);
    await Promise.all(counts.map(async (max_tokens) => {
      for (const extra of [{ response_format }, { tools, tool_choice: "required" as const }]) {
        const request = { model: "random", messages, max_tokens, thinking_budget_tokens: 8, ...extra };
        for (const said of await askBothWays(client, request)) {
          if (said.finish !== "length") judgeCalls(said, tools);
          if (said.finish === "stop") judgeJson(said.content, schema);
        }
      }
    }));
  });
});

Deno.test("constrained answers: a stop text gives finish_reason length, and answers with biases match, whole, streamed and in batches", async () => {
  await withChatModel("by itself", async ({ client, engine }) => {
    const request = { model: "random", messages, reasoning_effort: "none" };
    const url = "/v1/chat/completions";
    const stopped = { ...request, guided_choice: ["yes", "no"], stop: ["e"] };
    const no = { ...stopped, logit_bias: { ["y".charCodeAt(0)]: -100 } };
    const [said] = await askBothWays(client, no as never);
    assertEquals([said.content, said.finish], ["no", "stop"]);
    const { body } = await execute(engine, { url, body: no });
    assertEquals(saidWhole((body as unknown as OpenAI.ChatCompletion).choices[0]), said);

    const yes = { ...stopped, logit_bias: { ["y".charCodeAt(0)]: 100 } };
    const call = { ...request, tools, tool_choice: "required", parallel_tool_calls: false, stop: [":"] };
    for (const body of [yes, { ...yes, n: 2 }, call]) {
      for (const { finish } of await askBothWays(client, body as never)) assertEquals(finish, "length");
      const { body: answer } = await execute(engine, { url, body });
      const { choices } = answer as unknown as OpenAI.ChatCompletion;
      for (const { finish_reason } of choices) assertEquals(finish_reason, "length");
    }
    // Biases make tokens improbable but do not forbid required ones.
    const forbidden = ["{", '"', "}", " ", "\n"].map((text) => [text.charCodeAt(0), -100]);
    const biased = {
      ...request,
      response_format,
      logit_bias: Object.fromEntries(forbidden),
      max_tokens: 250,
    };
    const answer = await client.chat.completions.create(biased as never);
    const { content, finish } = saidWhole((answer as OpenAI.ChatCompletion).choices[0]);
    if (finish === "stop") judgeJson(content, schema);
  });
});

Deno.test("constrained answers: completions match every kind of constraint, also with several prompts and n", async () => {
  const forms: [Record<string, unknown>, (text: string) => void][] = [
    [{ response_format }, (text) => judgeJson(text, schema)],
    [{ json_schema: schema }, (text) => judgeJson(text, schema)],
    [{ guided_json: JSON.stringify(schema) }, (text) => judgeJson(text, schema)],
    [{ structured_outputs: { json_object: true } }, (text) => judgeJson(text, { type: "object" })],
    [{ guided_regex: "[a-c]{2,5}(-[0-9]+)?" }, (text) => assert(/^[a-c]{2,5}(-[0-9]+)?$/.test(text), text)],
    [{ guided_choice: ["Köln", "Bonn 🙂"] }, (text) => assert(["Köln", "Bonn 🙂"].includes(text), text)],
    [
      { grammar: 'root ::= item ("," item)*\nitem ::= [0-9]{1,3}' },
      (text) => assert(/^\d{1,3}(,\d{1,3})*$/.test(text), text),
    ],
    [
      { guided_grammar: 'start: "a" b+\nb: "b" | "c"' },
      (text) => assert(/^a[bc]+$/.test(text), text),
    ],
  ];
  await withChatModel("by itself", async ({ client }) => {
    let whole = 0;
    for (const [form, judge] of forms) {
      const request = { model: "random", prompt: ["Say:", "And:"], n: 2, max_tokens: 200, seed: 5, ...form };
      const answer = await client.completions.create(request as never) as unknown as OpenAI.Completion;
      const chunks = await Array.fromAsync(
        await client.completions.create({ ...request, stream: true } as never) as unknown as AsyncIterable<
          OpenAI.Completion
        >,
      );
      for (const { index, text, finish_reason } of answer.choices) {
        const parts = chunks.flatMap(({ choices }) => choices).filter((choice) => choice.index === index);
        assertEquals(parts.map(({ text }) => text).join(""), text);
        assertEquals(parts.at(-1)!.finish_reason, finish_reason);
        if (finish_reason === "length") continue;
        judge(text);
        whole++;
      }
    }
    assert(whole > 16, `${whole}`);
  });
});

fullTier.test("constrained answers: exceeding a limit of the grammar library fails only that answer, whole, streamed and in batches", async () => {
  const names = Array.from({ length: 30 }, (_, i) => `a${i}`);
  // An answer's number of parses grows with its length.
  const guided_grammar = [
    `start: ${names.join(" | ")}`,
    ...names.map((name) => `${name}: /[a-z]/ | ${name} ${name}`),
  ].join("\n");
  await withChatModel("by itself", async ({ client, engine }) => {
    const request = { model: "random", max_tokens: 100, ignore_eos: true, guided_grammar };
    const chat = { ...request, messages, reasoning_effort: "none" as const };
    const other = askBothWays(client, { model: "random", messages, response_format, max_tokens: 60 });
    const failed = { status: 422, code: "constraint_failed", param: null };
    for (
      const [url, body] of [
        ["/v1/completions", { ...request, prompt: "Say:" }],
        ["/v1/completions", { ...request, prompt: "Say:", n: 2, logprobs: 1 }],
        ["/v1/chat/completions", chat],
      ] as const
    ) {
      const { status, body: answer } = await execute(engine, { url, body });
      const { code, param, type } = (answer as { error: Record<string, unknown> }).error;
      assertEquals([status, code, param, type], [422, "constraint_failed", null, "invalid_request_error"]);
      const ask = async (stream: boolean) => {
        const path = url.slice("/v1".length);
        const events = await client.post(path, { body: { ...body, stream }, stream });
        if (stream) { for await (const _ of events as AsyncIterable<unknown>); }
      };
      const whole = await assertRejects(() => ask(false), OpenAI.APIError);
      assertEquals({ status: whole.status, code: whole.code, param: whole.param }, failed);
      const streamed = await assertRejects(() => ask(true), OpenAI.APIError);
      assertEquals(streamed.code, "constraint_failed");
    }
    for (const said of await other) judgeContent(said, { whole: 0, cut: 0 });
    assertEquals(engine.state, "ready");
  });
});
