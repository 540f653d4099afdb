import Anthropic from "@anthropic-ai/sdk";
import { assert, assertEquals, assertRejects } from "@std/assert";
import { EngineError } from "../../engine/mod.ts";
import { execute } from "../execute.ts";
import { bodyOf, clientOf, type ErrorBody, messages, PARIS, tools, usual } from "../testing_anthropic.ts";
import { until, withServer } from "../testing_server.ts";

/* Refusals, failures and cancelled requests of Messages, as Anthropic's unmodified client receives them. */

const HOSTED = { type: "web_search_20250305" as const, name: "web_search" as const, max_uses: 5 };
const replying = (text: string) => ({ reply: () => text });

Deno.test("Messages: every refusal has Anthropic's format", async () => {
  await withServer({ apiKeys: ["secret"] }, async (server) => {
    const client = clientOf(server, { apiKey: null, authToken: "secret" });
    const wrong = clientOf(server, { apiKey: null, authToken: "wrong" });
    const cases: [() => Promise<unknown>, number, string, string][] = [
      [() => wrong.messages.create(usual), 401, "authentication_error", "invalid_api_key"],
      [() => client.messages.create({ ...usual, model: "other" }), 404, "not_found_error", "model_not_found"],
      [
        () => client.messages.create({ ...usual, max_tokens: -1 }),
        400,
        "invalid_request_error",
        "invalid_value",
      ],
      [
        () => client.messages.create({ ...usual, messages: [{ role: "user", content: "x".repeat(2000) }] }),
        400,
        "invalid_request_error",
        "context_length_exceeded",
      ],
      [() => client.get("/v1/messages"), 405, "invalid_request_error", "method_not_allowed"],
      [
        () =>
          client.post("/v1/messages/count_tokens", { body: {}, headers: { "content-type": "text/html" } }),
        415,
        "invalid_request_error",
        "unsupported_media_type",
      ],
      [
        () => client.messages.create({ ...usual, system: "x".repeat(9 * 2 ** 20) }),
        413,
        "request_too_large",
        "request_too_large",
      ],
      [
        () => client.messages.create(usual, { headers: { origin: "https://elsewhere.example" } }),
        403,
        "permission_error",
        "cross_site_request",
      ],
    ];
    for (const [call, status, type, code] of cases) {
      const error = await assertRejects(call, Anthropic.APIError);
      const body = bodyOf(error);
      assertEquals([error.status, body.type, body.error.type, body.error.code], [
        status,
        "error",
        type,
        code,
      ]);
      assertEquals(error.type, type as never);
      assert(error.requestID?.startsWith("req_"));
      assertEquals(body.request_id, error.requestID);
    }
  });
});

Deno.test("Messages: refuses content and fields that a text model cannot handle, and names them", async () => {
  const image = { type: "image", source: { type: "url", url: "https://a.example/b.png" } };
  const pdf = { type: "document", source: { type: "url", url: "https://a.example/b.pdf" } };
  const user = (...content: unknown[]) => ({ messages: [{ role: "user", content }] });
  const text = { type: "text", text: "What is it?" };
  const cases: [Record<string, unknown>, string][] = [
    [user(text, image), "messages[0].content[1].source"],
    [
      user(text, { type: "image", source: { type: "base64", media_type: "image/png", data: "AA==" } }),
      "messages[0].content[1].source",
    ],
    [user(pdf), "messages[0].content[0].source.type"],
    [
      user({ type: "tool_result", tool_use_id: "a", content: [{ type: "audio" }] }),
      "messages[0].content[0].content[0].type",
    ],
    [user({ type: "tool_use", id: "a", name: "f", input: {} }), "messages[0].content[0].type"],
    [
      { messages: [{ role: "assistant", content: [{ type: "tool_use", id: "a", name: "f", input: [] }] }] },
      "messages[0].content[0].input",
    ],
    [{ messages: [{ role: "tool", content: "a" }] }, "messages[0].role"],
    [{ system: [image] }, "system[0].type"],
    [{ tools: [HOSTED, { name: "f" }] }, "tools[1].input_schema"],
    [{ tools: [HOSTED, tools[0], tools[0]] }, "tools[2].name"],
    [{ tools: [HOSTED], tool_choice: { type: "any" } }, "tool_choice"],
    [{ tools: [{ name: "f" }] }, "tools[0].input_schema"],
    [{ tools: [tools[0], tools[0]] }, "tools[1].name"],
    [{ tool_choice: { type: "any" } }, "tool_choice"],
    [{ tools, tool_choice: { type: "tool", name: "other" } }, "tool_choice.name"],
    [{ thinking: { type: "enabled" } }, "thinking.budget_tokens"],
    [{ thinking: { type: "between_tools" } }, "thinking.type"],
    [{ max_tokens: undefined }, "max_tokens"],
    [{ stop_sequences: [""] }, "stop_sequences[0]"],
    [{ mcp_servers: [{ type: "url" }] }, "mcp_servers"],
    [{ thread: { id: "a" } }, "thread"],
  ];
  await withServer({}, async ({ post }) => {
    for (const [body, param] of cases) {
      const response = await post("/v1/messages", { ...usual, ...body });
      const { error }: ErrorBody = await response.json();
      assertEquals([response.status, error.param], [400, param], error.message);
      assert(error.message.includes(param.split(".").at(-1)!.replace(/\[\d+\]$/, "")), error.message);
    }
  });
});

Deno.test("Messages: a prompt that does not fit is refused in Anthropic's words, whole, streamed and in batches", async () => {
  const refusalOf = async (contextLength: number, trainedContext: number, length: number) => {
    const messages: string[] = [];
    await withServer({ contextLength, trainedContext }, async (server) => {
      const client = clientOf(server);
      const frame = server.engine.encodeChat([{ role: "user", content: "" }], { addGenerationPrompt: true });
      const body = {
        ...usual,
        messages: [{ role: "user" as const, content: "x".repeat(length - frame.length) }],
      };
      for (const stream of [false, true]) {
        const error = await assertRejects(
          () => client.messages.create({ ...body, stream }),
          Anthropic.BadRequestError,
        );
        const { code, message, type } = bodyOf(error).error;
        assertEquals([code, type], ["context_length_exceeded", "invalid_request_error"]);
        messages.push(message);
      }
      const line = await execute(server.engine, { url: "/v1/messages", body });
      messages.push((line.body as unknown as ErrorBody).error.message);
    });
    const [message, ...others] = new Set(messages);
    assertEquals(others, []);
    return message;
  };
  assertEquals(await refusalOf(512, 512, 2050), "prompt is too long: 2050 tokens > 512 maximum");
  assertEquals(
    await refusalOf(512, 4096, 2050),
    "prompt is too long: 2050 tokens > 512 maximum. " +
      "The model can hold 4096 tokens with a higher value of the server setting ctx.",
  );
  assertEquals(await refusalOf(512, 512, 512), "prompt is too long: 513 tokens > 512 maximum");
});

Deno.test("Messages: hosted tools are left out, and a choice of one is refused", async () => {
  const warnings: string[] = [];
  await withServer({ warn: (message) => warnings.push(message), ...replying(PARIS) }, async (server) => {
    const { messages } = clientOf(server);
    const bash = { type: "bash_20250124" as const, name: "bash" as const };
    const mixed = { ...usual, tools: [HOSTED, tools[0], bash, tools[1]] };
    const whole = await messages.create(mixed);
    const streamed = await messages.stream(mixed).finalMessage();
    for (const { content, stop_reason } of [whole, streamed]) {
      const [call] = content as [Anthropic.ToolUseBlock];
      assertEquals([call.name, call.input, stop_reason], ["weather", { city: "Paris 🙂" }, "tool_use"]);
    }
    const planned = server.engine.chatForm.conversations;
    assertEquals(planned.map(({ tools }) => tools?.map(({ name }) => name)), [
      ["weather", "time"],
      ["weather", "time"],
    ]);
    await messages.create({ ...usual, tools: [HOSTED] });
    assertEquals(planned.at(-1)!.tools, undefined);
    // A tool of the client may have the name of a hosted one.
    const own = { ...tools[0], name: "web_search" };
    const tool_choice = { type: "tool" as const, name: "web_search" };
    await messages.create({ ...usual, tools: [HOSTED, own], tool_choice });
    assertEquals(planned.at(-1)!.toolChoice, { name: "web_search" });
    for (const stream of [false, true]) {
      const error = await assertRejects(
        () => messages.create({ ...mixed, tool_choice, stream }),
        Anthropic.BadRequestError,
      );
      assertEquals(bodyOf(error).error.param, "tool_choice.name");
      assertEquals(
        bodyOf(error).error.message,
        'Invalid "tool_choice.name": the server cannot run tools of the type "web_search_20250305", ' +
          'so no answer can call "web_search"',
      );
    }
  });
  assertEquals([...new Set(warnings)], [
    'The server cannot run tools of the type "web_search_20250305" and leaves them out of prompts',
    'The server cannot run tools of the type "bash_20250124" and leaves them out of prompts',
  ]);
});

Deno.test("Messages: a failure in mid-stream is an event, and an early one is a refusal without retry", async () => {
  const failure = new EngineError("engine_failed", "It broke");
  await withServer({ failure, chunk: 16 }, async (server) => {
    const stream = clientOf(server).messages.stream(usual);
    const error = await assertRejects(() => stream.finalMessage(), Anthropic.APIError);
    assertEquals(bodyOf(error).error, {
      type: "api_error",
      message: "It broke",
      code: "engine_failed",
      param: null,
      details: { error_code: "engine_failed" },
    } as never);
    assertEquals(error.status, undefined);
  });
  await withServer({ failure }, async (server) => {
    const client = clientOf(server, { maxRetries: 2 });
    await assertRejects(() => client.messages.create(usual), Anthropic.InternalServerError);
    assertEquals(server.engine.requests.length, 1);
  });
});

Deno.test("Messages: a full queue is a rate limit with retry-after", async () => {
  await withServer({ slots: 1, queue: 0, tokenMs: 10, ...replying("abc") }, async (server) => {
    const patient = clientOf(server, { maxRetries: 5 });
    const first = patient.messages.create(usual);
    await until(() => server.engine.stats().running === 1);
    const error = await assertRejects(
      () => clientOf(server).messages.create(usual),
      Anthropic.RateLimitError,
    );
    assertEquals(error.type, "rate_limit_error");
    assert(Number(error.headers.get("retry-after")) >= 1);
    const second = patient.messages.create(usual);
    assertEquals((await first).stop_reason, "end_turn");
    assertEquals((await second).stop_reason, "end_turn");
  });
});

Deno.test("Messages: a client that leaves a stream cancels it", async () => {
  await withServer({ tokenMs: 5, reply: () => "a".repeat(500) }, async (server) => {
    const stream = clientOf(server).messages.stream(usual);
    stream.on("text", () => stream.abort());
    await assertRejects(() => stream.finalMessage(), Anthropic.APIUserAbortError);
    await until(() => server.engine.stats().running === 0);
  });
});

Deno.test("Messages: accepts x-api-key, and different keys share no cached prompts", async () => {
  await withServer({ apiKeys: ["one", "two"] }, async (server) => {
    for (const apiKey of ["one", "two", "one"]) {
      await clientOf(server, { apiKey }).messages.create(usual);
      await clientOf(server, { apiKey }).messages.countTokens({ model: "demo", messages });
    }
    const [one, two, again] = server.engine.requests.map(({ cacheSalt }) => cacheSalt);
    assert(one !== undefined && one !== two && one === again);
    await assertRejects(
      () => clientOf(server, { apiKey: "three" }).messages.create(usual),
      Anthropic.AuthenticationError,
    );
  });
});
