import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod.js";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod.js";
import { assert, assertEquals, assertRejects } from "@std/assert";
import { z } from "zod";
import { inputLimits } from "../../jobs/check.ts";
import { refusalBody } from "../execute.ts";
import { GENERATION_URLS } from "../generations.ts";
import { createBatch, inDataFolder, linesOf, upload, waitFor, withBatches } from "../testing_batches.ts";
import { bodyOf, clientOf, messages, PARIS, tools, usual } from "../testing_anthropic.ts";
import { type TestServer, withServer } from "../testing_server.ts";

/* Messages through Anthropic's unmodified client; the fake model writes thoughts and calls in channels. */

const TEXT = "Hello, wörld 🙂!";
const THINK = "<|start|>think\nParis… and wörld 🙂";
const ROME = '<|start|>call time\n{"city": "Rome"}';
const SAID = "<|start|>text\nHere you are";

const replying = (text: string) => ({ reply: () => text });
const thinking = { type: "enabled" as const, budget_tokens: 1024 };

/** Returns the whole answer, after checking that the client assembles the same one from a stream. */
async function both(
  server: TestServer,
  body: Partial<Anthropic.MessageCreateParams> & Record<string, unknown> = {},
) {
  const client = clientOf(server);
  const { stream: _, ...request } = { ...usual, ...body };
  const whole = await client.messages.create(request);
  const stream = client.messages.stream(request as Anthropic.MessageStreamParams);
  const events = await Array.fromAsync(stream);
  assert(stream.request_id?.startsWith("req_"));
  const streamed = await stream.finalMessage();
  const { id: _id, ...rest } = whole;
  const { id: _other, parsed_output: _none, ...others } = JSON.parse(JSON.stringify(streamed));
  assertEquals(others, JSON.parse(JSON.stringify(rest)), "streamed and whole differ");
  return { whole, events };
}

Deno.test("Messages: answers in Anthropic's format and passes the body's fields to the engine", async () => {
  await withServer({}, async (server) => {
    const { whole, events } = await both(server, { system: [{ type: "text", text: "Be brief" }], top_k: 5 });
    assert(whole.id.startsWith("msg_"));
    assert(whole._request_id?.startsWith("req_"));
    assertEquals(whole.content, [{ type: "text", text: TEXT }]);
    assertEquals([whole.role, whole.model, whole.stop_reason, whole.stop_sequence], [
      "assistant",
      "demo",
      "end_turn",
      null,
    ]);
    const [request] = server.engine.requests;
    const prompt = [{ role: "system", content: "Be brief" }, {
      role: "user",
      content: messages[0].content as string,
    }];
    assertEquals(request.prompt, server.engine.encodeChat(prompt, { addGenerationPrompt: true }));
    assertEquals([request.maxTokens, request.sampling?.topK, request.stop], [400, 5, []]);
    assertEquals(whole.usage.input_tokens, request.prompt.length);
    assertEquals(whole.usage.output_tokens, new TextEncoder().encode(TEXT).length + 1);
    assertEquals([whole.usage.cache_read_input_tokens, whole.usage.cache_creation_input_tokens], [0, 0]);
    assertEquals(events.map(({ type }) => type).filter((type, i, all) => type !== all[i - 1]), [
      "message_start",
      "content_block_start",
      "content_block_delta",
      "content_block_stop",
      "message_delta",
      "message_stop",
    ]);
  });
});

Deno.test("Messages: names its events on the wire and ends without [DONE]", async () => {
  await withServer({ ...replying("ab"), chunk: 16 }, async ({ post }) => {
    const text = await (await post("/v1/messages", { ...usual, stream: true })).text();
    const events = text.trimEnd().split("\n\n").map((event) => {
      const [, name, data] = event.match(/^event: (\w+)\ndata: (.*)$/)!;
      assertEquals(JSON.parse(data).type, name);
      return name;
    });
    assertEquals(events[0], "message_start");
    assert(
      events.filter((name) => name === "ping").length === 2,
      "no signs of life while the prompt is read",
    );
    assertEquals(events.at(-1), "message_stop");
  });
});

Deno.test("Messages: thinking is requested, limited, shown, omitted and passed back", async () => {
  await withServer(replying(THINK + SAID), async (server) => {
    const { whole } = await both(server, { thinking });
    const [thought, said] = whole.content as [Anthropic.ThinkingBlock, Anthropic.TextBlock];
    assertEquals([thought.thinking, said.text], ["Paris… and wörld 🙂", "Here you are"]);
    assert(thought.signature.length > 0);
    assertEquals(whole.usage.output_tokens_details?.thinking_tokens, 24);
    assertEquals(server.engine.requests[0].thinking?.budget, 1024);
    assertEquals(server.engine.chatForm.conversations[0].effort, "medium");

    const { whole: omitted } = await both(server, { thinking: { type: "adaptive", display: "omitted" } });
    assertEquals((omitted.content[0] as Anthropic.ThinkingBlock).thinking, "");
    for (const content of [whole.content, omitted.content] as Anthropic.ContentBlockParam[][]) {
      await both(server, {
        messages: [...messages, { role: "assistant", content }, { role: "user", content: "And?" }],
      });
      const { messages: planned } = server.engine.chatForm.conversations.at(-1)!;
      assertEquals(planned[1].reasoning_content, "Paris… and wörld 🙂");
      assertEquals(planned[1].content, "Here you are");
    }

    // An answer to a request without thinking has no thinking, and the template turns thinking off.
    for (const none of [{}, { thinking: { type: "disabled" as const } }]) {
      const { whole } = await both(server, none);
      assertEquals(whole.content, [{ type: "text", text: "Here you are" }]);
      assertEquals(server.engine.chatForm.conversations.at(-1)!.effort, false);
    }
    await both(server, { thinking: { type: "adaptive" }, output_config: { effort: "xhigh" } });
    assertEquals(server.engine.chatForm.conversations.at(-1)!.effort, "xhigh");
  });
});

Deno.test("Messages: thinking, text and several calls are the same whole and streamed", async () => {
  await withServer(replying(THINK + SAID + PARIS + ROME), async (server) => {
    const { whole } = await both(server, { tools, thinking });
    assertEquals(whole.stop_reason, "tool_use");
    const caller = { type: "direct" };
    assertEquals(whole.content.slice(1), [
      { type: "text", text: "Here you are" },
      {
        type: "tool_use",
        id: `call_${"x".repeat(23)}0`,
        name: "weather",
        input: { city: "Paris 🙂" },
        caller,
      },
      { type: "tool_use", id: `call_${"x".repeat(23)}1`, name: "time", input: { city: "Rome" }, caller },
    ] as never);
    const [{ tools: planned, toolChoice, parallelToolCalls }] = server.engine.chatForm.conversations;
    assertEquals(planned?.map(({ name, parameters }) => [name, parameters]), [
      ["weather", tools[0].input_schema],
      ["time", tools[1].input_schema],
    ] as never);
    assertEquals([toolChoice, parallelToolCalls], ["auto", true]);
  });
});

Deno.test("Messages: each tool choice sets which calls the answer may or must have", async () => {
  await withServer(replying(PARIS), async (server) => {
    const cases: [Anthropic.ToolChoice, unknown, boolean][] = [
      [{ type: "auto" }, "auto", true],
      [{ type: "any", disable_parallel_tool_use: true }, "required", false],
      [{ type: "tool", name: "time" }, { name: "time" }, true],
      [{ type: "none" }, "none", true],
    ];
    for (const [tool_choice, choice, parallel] of cases) {
      await clientOf(server).messages.create({ ...usual, tools, tool_choice });
      const { toolChoice, parallelToolCalls } = server.engine.chatForm.conversations.at(-1)!;
      assertEquals([toolChoice, parallelToolCalls], [choice, parallel]);
    }
  });
});

Deno.test("Messages: reports which stop sequence ended the answer", async () => {
  await withServer(replying("Here you are"), async (server) => {
    const cases: [string[], string | null, string][] = [
      [["zzz", "you"], "you", "Here "],
      [["zzz"], null, "Here you are"],
      [["e", "re y"], "e", "H"],
    ];
    for (const [stop_sequences, found, text] of cases) {
      const { whole } = await both(server, { stop_sequences });
      assertEquals([whole.stop_reason, whole.stop_sequence], [found ? "stop_sequence" : "end_turn", found]);
      assertEquals(whole.content, [{ type: "text", text }]);
    }
  });
});

Deno.test("Messages: reports whether max_tokens or the context ended an answer", async () => {
  await withServer({ contextLength: 128 }, async (server) => {
    const { whole } = await both(server, { max_tokens: 3 });
    assertEquals([whole.stop_reason, whole.usage.output_tokens], ["max_tokens", 3]);
    const { whole: nothing } = await both(server, { max_tokens: 0 });
    assertEquals([nothing.stop_reason, nothing.content], ["max_tokens", []]);
    const { whole: full } = await both(server, { max_tokens: 1000, ignore_eos: true });
    assertEquals(full.stop_reason, "model_context_window_exceeded");
  });
});

Deno.test("Messages: an answer cut inside a call reports its tokens and has an empty input", async () => {
  await withServer(replying(PARIS), async (server) => {
    const whole = await clientOf(server).messages.create({ ...usual, tools, max_tokens: 26 });
    assertEquals(whole.stop_reason, "max_tokens");
    assertEquals((whole.content[0] as Anthropic.ToolUseBlock).input, {});
  });
});

Deno.test("Messages: the answer continues a last message of the assistant", async () => {
  await withServer({}, async (server) => {
    const prefilled: Anthropic.MessageParam[] = [...messages, {
      role: "assistant",
      content: [{ type: "text", text: "It is" }],
    }];
    await both(server, { messages: prefilled });
    const { continueFinal, messages: planned } = server.engine.chatForm.conversations[0];
    assertEquals([continueFinal, planned.at(-1)], [true, { role: "assistant", content: "It is" }]);
    const schema = { type: "object" };
    for (
      const bound of [
        { output_config: { format: { type: "json_schema" as const, schema } } },
        { tools, tool_choice: { type: "any" as const } },
      ]
    ) {
      const error = await assertRejects(
        () => clientOf(server).messages.create({ ...usual, messages: prefilled, ...bound }),
        Anthropic.BadRequestError,
      );
      assertEquals(bodyOf(error).error.code, "conflicting_parameters");
    }
  });
});

Deno.test("Messages: accepts an answer schema in its current field, its older field and from zod", async () => {
  await withServer(replying('<|start|>text\n{"city":"Rome"}'), async (server) => {
    const schema = { type: "object", properties: { city: { type: "string" } } };
    const format = { type: "json_schema" as const, schema };
    for (const body of [{ output_config: { format } }, { output_format: format }]) {
      await both(server, body);
      assertEquals(server.engine.requests.at(-1)!.constraint, { kind: "json_schema", schema });
    }
    const parsed = await clientOf(server).messages.parse({
      ...usual,
      output_config: { format: zodOutputFormat(z.object({ city: z.string() })) },
    });
    assertEquals(parsed.parsed_output, { city: "Rome" });
    const beta = await clientOf(server).beta.messages.create({
      ...usual,
      messages: messages as Anthropic.Beta.BetaMessageParam[],
      output_format: format,
      betas: ["structured-outputs-2025-11-13"],
      context_management: { edits: [{ type: "clear_tool_uses_20250919" }] },
    });
    assertEquals(beta.content[0].type, "text");
  });
});

Deno.test("Messages: the client's tool runner sends results and failures, then gets the answer", async () => {
  const reply = (prompt: string) => prompt.includes("sunny") ? "<|start|>text\nIt is sunny" : PARIS + ROME;
  await withServer({ reply }, async (server) => {
    const inputSchema = z.object({ city: z.string() });
    const asked: string[] = [];
    const runner = clientOf(server).beta.messages.toolRunner({
      model: "demo",
      max_tokens: 400,
      messages: [{ role: "user", content: "Weather?" }],
      tools: [
        betaZodTool({
          name: "weather",
          description: "Weather",
          inputSchema,
          run: ({ city }) => (asked.push(city), [{ type: "text", text: `sunny in ${city}` }]),
        }),
        betaZodTool({
          name: "time",
          description: "Time",
          inputSchema,
          run: () => {
            throw new Error("no clock");
          },
        }),
      ],
    });
    const last = await runner.runUntilDone();
    assertEquals(asked, ["Paris 🙂"]);
    assertEquals(last.content, [{ type: "text", text: "It is sunny" }] as never);
    const { messages: planned } = server.engine.chatForm.conversations.at(-1)!;
    assertEquals(planned.map(({ role }) => role), ["user", "assistant", "tool", "tool"]);
    assertEquals(planned[2].content, "sunny in Paris 🙂");
    assert((planned[3].content as string).startsWith("Error: "));
    assertEquals(planned[1].tool_calls, [
      {
        id: `call_${"x".repeat(23)}0`,
        type: "function",
        function: { name: "weather", arguments: '{"city":"Paris 🙂"}' },
      },
      {
        id: `call_${"x".repeat(23)}1`,
        type: "function",
        function: { name: "time", arguments: '{"city":"Rome"}' },
      },
    ]);
  });
});

Deno.test("Messages client: lists models page by page and retrieves one", async () => {
  await withServer({}, async (server) => {
    const client = clientOf(server);
    const listed = await Array.fromAsync(client.models.list());
    const { created } = server.engine.model;
    assertEquals(
      listed.map(({ id, type, display_name, created_at }) => [id, type, display_name, created_at]),
      [
        ["demo", "model", "demo", new Date(1000 * created).toISOString()],
      ] as never,
    );
    assertEquals((await client.models.retrieve("demo")).display_name, "demo");
    await assertRejects(() => client.models.retrieve("other"), Anthropic.NotFoundError);
  });
});

Deno.test("count_tokens: returns the number of input tokens that /v1/messages reports for the same request", async () => {
  await withServer({}, async (server) => {
    const client = clientOf(server);
    const bodies: Partial<Anthropic.MessageCountTokensParams>[] = [
      {},
      { system: "Be brief", tools, tool_choice: { type: "any" } },
      { messages: [...messages, { role: "assistant", content: "It" }] },
      { thinking: { type: "enabled", budget_tokens: 2000 } },
    ];
    for (const body of bodies) {
      const { input_tokens } = await client.messages.countTokens({ model: "demo", messages, ...body });
      const { usage } = await client.messages.create({ ...usual, ...body });
      assertEquals(input_tokens, usage.input_tokens);
    }
    assertEquals(server.engine.requests.length, bodies.length, "counting generates nothing");
    await assertRejects(
      () => client.messages.countTokens({ model: "demo", messages: [] }),
      Anthropic.BadRequestError,
    );
  });
});

Deno.test("Messages: batch lines get the same answers and refusals as over HTTP", async () => {
  const bodies = [
    { ...usual, tools },
    { ...usual, max_tokens: -1 },
    { ...usual, messages: [{ role: "user", content: [{ type: "image" }] }] },
  ];
  await inDataFolder((path) =>
    withBatches(
      path,
      { ...replying(PARIS), lineLimits: { ...inputLimits(GENERATION_URLS), refusalBody } },
      async ({ client }) => {
        const lines = bodies.map((body, i) => {
          return JSON.stringify({ custom_id: `${i}`, method: "POST", url: "/v1/messages", body });
        });
        lines.push(
          "{",
          lines[0],
          JSON.stringify({ ...JSON.parse(lines[0]), custom_id: "3", body: { stream: true } }),
        );
        const input = await upload(client, lines);
        const { id } = await createBatch(client, input, {
          endpoint: "/v1/messages" as never,
          ...{ strict: false },
        });
        const batch = await waitFor(client, id, "completed");
        assertEquals(batch.request_counts, { total: 6, completed: 1, failed: 5 });
        const [{ response }] = await linesOf(client, batch.output_file_id);
        assertEquals([response.body.type, response.body.stop_reason], ["message", "tool_use"]);
        assertEquals(batch.usage?.input_tokens, response.body.usage.input_tokens);
        const refusals = await linesOf(client, batch.error_file_id);
        assertEquals(
          refusals.map(({ response: { status_code, body } }) => [status_code, body.type, body.error.param]),
          [
            [400, "error", "max_tokens"],
            [400, "error", "messages[0].content[0].source"],
            [400, "error", null],
            [400, "error", "custom_id"],
            [400, "error", "body.stream"],
          ],
        );
        assertEquals(refusals[3].response.body.error.details, { error_code: "duplicate_custom_id", line: 5 });
      },
    )
  );
});
