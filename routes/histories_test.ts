import { assertEquals } from "@std/assert";
import { execute } from "./execute.ts";
import { FakeEngine } from "./testing.ts";
import { withServer } from "./testing_server.ts";

/* Earlier turns as clients send them back, in every dialect. */

const ASK = { role: "user", content: "Time?" };

/**
 * Sends each request as a whole answer, with a stream, and as a batch line. Asserts that the model reads `expected`
 * each time.
 */
async function reads(path: string, requests: readonly (object | string)[], expected: unknown): Promise<void> {
  await withServer({}, async ({ engine, post }) => {
    for (const request of requests) {
      const json = typeof request === "string" ? request : JSON.stringify(request);
      for (const stream of [false, true]) {
        const body = json.replace("{", `{"model":"demo","max_tokens":9,"stream":${stream},`);
        const response = await post(path, undefined, { body });
        await response.text();
        assertEquals(response.status, 200, json);
        assertEquals(engine.chatForm.conversations.at(-1)?.messages, expected, json);
      }
      if (!path.startsWith("/v1/")) continue;
      const batch = new FakeEngine();
      const body = { model: "demo", max_tokens: 9, ...JSON.parse(json) };
      assertEquals((await execute(batch, { url: path, body })).status, 200, json);
      assertEquals(batch.chatForm.conversations.at(-1)?.messages, expected, json);
    }
  });
}

const id = (n: number) => `call_${String(n).padStart(24, "0")}`;
const made = (id: string, name: string, args = "{}") => ({
  id,
  type: "function",
  function: { name, arguments: args },
});

Deno.test('chat histories: beside calls, content may be [], null, "" or missing, with the same prompt', async () => {
  const call = made("a", "clock");
  const result = { role: "tool", tool_call_id: "a", content: "noon" };
  const said = (content: object) => ({
    messages: [ASK, { role: "assistant", tool_calls: [call], ...content }, result],
  });
  const requests = [said({ content: null }), said({}), said({ content: [] }), said({ content: "" })];
  await reads("/v1/chat/completions", requests, [
    ASK,
    { role: "assistant", content: null, tool_calls: [call] },
    result,
  ]);
});

Deno.test("chat histories: an image that a tool returned becomes a note in the prompt", async () => {
  const call = made("a", "look");
  const image = { type: "image_url", image_url: { url: "data:image/png;base64,AA==" } };
  const content = [{ type: "text", text: "seen" }, image];
  const turns = [ASK, { role: "assistant", content: null, tool_calls: [call] }];
  const result = { role: "tool", tool_call_id: "a" };
  await reads("/v1/chat/completions", [{ messages: [...turns, { ...result, content }] }], [
    ...turns,
    { ...result, content: "seen\n[image left out: this model reads text only]" },
  ]);
});

Deno.test("chat histories: calls and results without ids are matched by order, results with a tool name by that name", async () => {
  const expected = [
    ASK,
    { role: "assistant", content: null, tool_calls: [made(id(1), "clock"), made(id(2), "date")] },
    { role: "tool", tool_call_id: id(2), name: "date", content: "May" },
    { role: "tool", tool_call_id: id(1), content: "noon" },
    { role: "assistant", content: null, tool_calls: [made(id(3), "clock")] },
    { role: "tool", tool_call_id: id(3), content: "one" },
  ];
  const conversation = (call: object, result: object) => ({
    messages: [
      ASK,
      {
        role: "assistant",
        content: null,
        tool_calls: ["clock", "date"].map((name) => ({ ...call, function: { name, arguments: "{}" } })),
      },
      { role: "tool", ...result, name: "date", content: "May" },
      { role: "tool", ...result, content: "noon" },
      { role: "assistant", tool_calls: [{ ...call, function: { name: "clock", arguments: "{}" } }] },
      { role: "tool", ...result, content: "one" },
    ],
  });
  const empty = conversation({ id: "" }, { tool_call_id: "" });
  await reads("/v1/chat/completions", [empty, conversation({}, {})], expected);

  const plain = expected.map(({ name: _, ...message }: Record<string, unknown>) => message)
    .with(2, { role: "tool", tool_call_id: id(1), content: "noon" })
    .with(3, { role: "tool", tool_call_id: id(2), content: "May" });
  const use = (name: string) => ({ type: "tool_use", name, input: {} });
  const result = (content: string) => ({ type: "tool_result", content });
  await reads("/v1/messages", [{
    messages: [
      ASK,
      { role: "assistant", content: [use("clock"), { ...use("date"), id: "" }] },
      { role: "user", content: [result("noon"), { ...result("May"), tool_use_id: "" }] },
      { role: "assistant", content: [use("clock")] },
      { role: "user", content: [result("one")] },
    ],
  }], plain);
  const item = (name: string) => ({ type: "function_call", name, arguments: "{}" });
  const output = (output: string) => ({ type: "function_call_output", output });
  await reads("/v1/responses", [{
    input: [ASK, item("clock"), item("date"), output("noon"), output("May"), item("clock"), output("one")],
  }], plain);
  const ollama = (name: string) => ({ function: { name, arguments: {} } });
  await reads("/api/chat", [{
    messages: [
      ASK,
      { role: "assistant", tool_calls: [ollama("clock"), ollama("date")] },
      { role: "tool", content: "noon" },
      { role: "tool", content: "May" },
      { role: "assistant", tool_calls: [ollama("clock")] },
      { role: "tool", content: "one" },
    ],
  }], plain);
});

Deno.test("chat histories: missing arguments become {}, and arguments that were cut stay text", async () => {
  for (
    const [given, shown] of [["", "{}"], [null, "{}"], ["null", "{}"], ['{"zone": "U', '{"zone": "U'], [{
      zone: 1,
    }, '{"zone":1}']]
  ) {
    const expected = [ASK, {
      role: "assistant",
      content: null,
      tool_calls: [made("a", "f", shown as string)],
    }];
    const called = { name: "f", arguments: given };
    await reads("/v1/chat/completions", [{
      messages: [ASK, { role: "assistant", content: null, tool_calls: [{ id: "a", function: called }] }],
    }], expected);
    await reads("/v1/messages", [{
      messages: [ASK, {
        role: "assistant",
        content: [{ type: "tool_use", id: "a", name: "f", input: given }],
      }],
    }], expected);
    await reads("/v1/responses", [{
      input: [ASK, { type: "function_call", call_id: "a", ...called }],
    }], expected);
    await reads("/api/chat", [{
      messages: [ASK, { role: "assistant", tool_calls: [{ id: "a", function: called }] }],
    }], expected);
  }
});

Deno.test("chat histories: reasoning is another name of reasoning_content, which wins if both are given", async () => {
  const said = (thought: object) => ({
    messages: [ASK, { role: "assistant", content: "Noon", ...thought }, ASK],
  });
  const expected = [ASK, { role: "assistant", content: "Noon", reasoning_content: "Hm" }, ASK];
  const both = { reasoning: "Well", reasoning_content: "Hm" };
  await reads("/v1/chat/completions", [
    said({ reasoning: "Hm" }),
    said({ reasoning: null, reasoning_content: "Hm" }),
    said(both),
  ], expected);
});

Deno.test("chat histories: the template gets system messages at their places", async () => {
  const rule = { role: "system", content: "Be brief." };
  const messages = [rule, ASK, rule, { role: "assistant", content: "Noon" }, rule, ASK];
  for (const path of ["/v1/chat/completions", "/v1/messages", "/api/chat"]) {
    await reads(path, [{ messages }], messages);
  }
  const said = { type: "message", role: "assistant", content: [{ type: "output_text", text: "Noon" }] };
  await reads("/v1/responses", [{ input: messages.with(3, said as never) }], messages);
});

Deno.test("chat histories: numbers in objects of arguments keep their digits as written", async () => {
  const args = '{"n":12345678901234567890,"x":1.0,"list":[2.50,{"e":1e3}]}';
  const expected = [ASK, { role: "assistant", content: null, tool_calls: [made("a", "f", args)] }];
  const turn = `[{"role":"user","content":"Time?"},{"role":"assistant","content":`;
  await withServer({}, async ({ engine, post }) => {
    const bodies = [
      ["/v1/messages", `${turn}[{"type":"tool_use","id":"a","name":"f","input":${args}}]}]`],
      ["/api/chat", `${turn}null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":${args}}}]}]`],
      [
        "/v1/chat/completions",
        `${turn}null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":${args}}}]}]`,
      ],
    ];
    for (const [path, messages] of bodies) {
      const body = `{"model":"demo","max_tokens":9,"temperature":1.0,"messages":${messages}}`;
      const response = await post(path, undefined, { body });
      await response.text();
      assertEquals(response.status, 200, path);
      assertEquals(engine.chatForm.conversations.at(-1)?.messages, expected, path);
    }
  });
});

Deno.test("chat histories: where an answer's arguments are an object, their numbers keep their digits as written", async () => {
  const reply = () => '<|start|>call f\n{"n": 12345678901234567890, "x": 1.0}';
  const parameters = { type: "object", properties: { n: { type: "integer" }, x: { type: "number" } } };
  await withServer({ reply }, async ({ post }) => {
    const ask = { model: "demo", max_tokens: 100, stream: false, messages: [ASK] };
    const whole = await post("/v1/messages", { ...ask, tools: [{ name: "f", input_schema: parameters }] });
    assertEquals((await whole.text()).includes('"input":{"n":12345678901234567890,"x":1.0}'), true);
    const tools = [{ type: "function", function: { name: "f", parameters } }];
    const ollama = await post("/api/chat", { ...ask, tools });
    assertEquals((await ollama.text()).includes('"arguments":{"n":12345678901234567890,"x":1.0}'), true);
  });
});
