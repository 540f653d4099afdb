import { assert, assertEquals, assertRejects } from "@std/assert";
import OpenAI from "openai";
import { execute } from "../routes/execute.ts";
import { type ChatModel, type Thinks, withChatModel } from "./chat_model.ts";
import { askBothWays, judgeCalls, judgeJson, type Said, saidWhole, type Tool } from "./tool_calls.ts";

/*
 * Answers in a given form from a model with random weights, through all of it but the network: whatever else a request asks for,
 * the form holds, and what cannot hold is an error. Each is how another server was seen to fail.
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
const SEEDS = [1, 2, 3];

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

Deno.test("formed answers: a schema holds with n, streaming, tools, thinking and stop texts alike", async () => {
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
    for (const extra of extras) {
      for (const seed of SEEDS) {
        const request = { model: "random", messages, response_format, max_tokens: 600, seed, ...extra };
        for (const said of await askBothWays(client, request as never)) {
          if (said.calls.length === 0) judgeContent(said, count);
          else {
            assert(extra.tools && extra.tool_choice !== "none", "a call without tools");
            judgeCalls(said, tools);
          }
        }
      }
    }
  });
  assert(count.whole > 3 * count.cut, JSON.stringify(count));
});

Deno.test("formed answers: required calls are calls, with and without thinking, n and one at a time", async () => {
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
    for (const extra of extras) {
      for (const seed of SEEDS) {
        const request = {
          model: "random",
          messages,
          tools,
          tool_choice: "required",
          thinking_budget_tokens: 12,
          max_tokens: 900,
          seed,
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
      }
    }
  });
  assert(count.whole > 2 * count.cut, JSON.stringify(count));
});

Deno.test("formed answers: text before a call breaks nothing, and what looks like a mark in a text is text", async () => {
  let calls = 0;
  let texts = 0;
  await eachModel(async ({ client }) => {
    for (let seed = 0; seed < 40; seed++) {
      const request = { model: "random", messages, tools, thinking_budget_tokens: 10, max_tokens: 200, seed };
      // The marks of calls are made likelier, so that calls come.
      for (const said of await askBothWays(client, { ...request, logit_bias: { 260: 3 } } as never)) {
        judgeCalls(said, tools);
        calls += said.calls.length;
        texts += Number(said.content !== "" && said.calls.length > 0);
      }
    }
  });
  assert(calls > 20 && texts > 5, `${calls} calls, ${texts} after a text`);
});

Deno.test("formed answers: thinking is free, is not the form's, and ends when its budget is spent", async () => {
  await withChatModel("from the prompt", async ({ client }) => {
    for (const budget of [0, 1, 30]) {
      const request = { model: "random", messages, response_format, thinking_budget_tokens: budget };
      for (const said of await askBothWays(client, { ...request, n: 4, max_tokens: 600 })) {
        if (said.finish === "stop") judgeJson(said.content, schema);
      }
      const whole = await client.chat.completions.create({ ...request, max_tokens: 600 } as never);
      const answer = whole as OpenAI.ChatCompletion;
      const { reasoning } = saidWhole(answer.choices[0]);
      const thought = answer.usage!.completion_tokens_details!.reasoning_tokens!;
      assert(thought <= budget, `${thought} of ${budget}`);
      if (budget === 30) {
        assert(thought > 0 && reasoning !== "");
        // Free text of random bytes is no JSON.
        assert(!/^\s*\{/.test(reasoning), reasoning);
      }
    }
  });
});

Deno.test("formed answers: what max_tokens cuts says length, wherever that is", async () => {
  await eachModel(async ({ client }) => {
    for (let max_tokens = 1; max_tokens <= 40; max_tokens += 3) {
      for (const extra of [{ response_format }, { tools, tool_choice: "required" as const }]) {
        const request = { model: "random", messages, max_tokens, thinking_budget_tokens: 8, ...extra };
        for (const said of await askBothWays(client, request)) {
          if (said.finish !== "length") judgeCalls(said, tools);
          if (said.finish === "stop") judgeJson(said.content, schema);
        }
      }
    }
  });
});

Deno.test("formed answers: what cannot be completed is an error, whole, streamed and in batches", async () => {
  await withChatModel("by itself", async ({ client, engine }) => {
    // The brace that must come first is forbidden.
    const forbidden = Object.fromEntries(
      ["{", '"', "}", " ", "\n"].map((text) => [text.charCodeAt(0), -100]),
    );
    const grammar = 'root ::= "yes" | "no"';
    const stopped = { grammar, stop: ["e"] };
    for (const extra of [stopped]) {
      const request = { model: "random", messages, reasoning_effort: "none", seed: 3, ...extra };
      const bodies = Array.from({ length: 8 }, (_, seed) => ({ ...request, seed }));
      for (const body of bodies) {
        const answer = await execute(engine, { url: "/v1/chat/completions", body });
        if (answer.status === 200) {
          const { choices: [choice] } = answer.body as unknown as OpenAI.ChatCompletion;
          assertEquals([choice.message.content, choice.finish_reason], ["no", "stop"]);
        } else {
          assertEquals([answer.status, (answer.body.error as { code: string }).code], [
            422,
            "constraint_failed",
          ]);
          const stream = () => client.chat.completions.create({ ...body, stream: true } as never);
          await assertRejects(async () => {
            const chunks = await stream() as unknown as AsyncIterable<OpenAI.ChatCompletionChunk>;
            for await (const chunk of chunks) assertEquals(chunk.choices[0]?.finish_reason ?? null, null);
          }, OpenAI.APIError);
        }
      }
    }
    // Biases make tokens unlikely; they do not forbid what must come.
    const request = {
      model: "random",
      messages,
      response_format,
      logit_bias: forbidden,
      reasoning_effort: "none",
    };
    const answer = await client.chat.completions.create({ ...request, max_tokens: 600 } as never);
    const said = saidWhole((answer as OpenAI.ChatCompletion).choices[0]);
    if (said.finish === "stop") judgeJson(said.content, schema);
  });
});

Deno.test("formed answers: completions follow every kind of form, also several prompts and n", async () => {
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
      const request = { model: "random", prompt: ["Say:", "And:"], n: 3, max_tokens: 400, seed: 5, ...form };
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
    assert(whole > 30, `${whole}`);
  });
});
