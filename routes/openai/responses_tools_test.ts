import { assertEquals } from "@std/assert";
import type OpenAI from "openai";
import { execute } from "../execute.ts";
import { type TestServer, withServer } from "../testing_server.ts";

/* Tools of /v1/responses that are more than functions, as Codex sends them; whole, streamed and as a line of a batch. */

type Request = OpenAI.Responses.ResponseCreateParamsNonStreaming & { stream?: undefined };
type Event = OpenAI.Responses.ResponseStreamEvent;

const parameters = { type: "object", properties: { path: { type: "string" } }, required: ["path"] };
const readTool = { type: "function", name: "read", description: "Reads", parameters, strict: false };
const space = (name: string, ...tools: unknown[]) => ({ type: "namespace", name, description: name, tools });
const patch = { type: "custom", name: "apply_patch", description: "Edits files" };
const shell = { type: "local_shell" };

const reply = (text: string) => ({ reply: () => text });
const call = (name: string, value: unknown) =>
  `<|start|>call ${name}\n${typeof value === "string" ? value : JSON.stringify(value)}`;

/** Returns the output without the ids of its items, and the stream's events, after comparing all ways to ask. */
async function ask({ client, engine }: TestServer, body: Record<string, unknown>) {
  const request = { model: "demo", input: "Hi", ...body } as Request;
  const plain = (output: unknown[]) =>
    output.map((item) => {
      const { id: _, ...rest } = item as Record<string, unknown>;
      return rest;
    });
  const whole = await client.responses.create(request);
  const events: Event[] = await Array.fromAsync(await client.responses.create({ ...request, stream: true }));
  const { response } = events.at(-1) as OpenAI.Responses.ResponseCompletedEvent;
  const line = await execute(engine, { url: "/v1/responses", body: request });
  assertEquals(line.status, 200);
  const output = plain(whole.output);
  assertEquals(plain(response.output), output, "streamed and whole differ");
  assertEquals(plain(line.body.output as unknown[]), output, "a line of a batch differs");
  assertEquals(events.flatMap((event) => event.type === "response.output_item.done" ? event.item : []), [
    ...response.output,
  ]);
  const assembled = await client.responses.stream(request).finalResponse();
  assertEquals(assembled.output.map(({ type }) => type), whole.output.map(({ type }) => type));
  return { whole, output, events };
}

const callId = (i: number) => `call_${"x".repeat(23)}${i}`;

Deno.test("Responses tools: distinguishes tools with one name in two namespaces and without a namespace", async () => {
  const text = call("mcp__files__read", { path: "a" }) + call("disk__read", { path: "b" }) + call("read", {});
  await withServer(reply(text), async (server) => {
    const tools = [space("mcp__files__", readTool), space("disk", readTool, patch), readTool];
    const { whole, output } = await ask(server, { tools, tool_choice: "required" });
    const base = { type: "function_call", name: "read", status: "completed" };
    assertEquals(output, [
      { ...base, call_id: callId(0), namespace: "mcp__files__", arguments: '{"path":"a"}' },
      { ...base, call_id: callId(1), namespace: "disk", arguments: '{"path":"b"}' },
      { ...base, call_id: callId(2), arguments: "{}" },
    ]);
    assertEquals(whole.tools as unknown[], tools);
    const [{ tools: read, toolChoice }] = server.engine.chatForm.conversations;
    assertEquals(read?.map(({ name }) => name), [
      "mcp__files__read",
      "disk__read",
      "disk__apply_patch",
      "read",
    ]);
    assertEquals(toolChoice, "required");
    // The answer can be sent back, also when its tools are gone.
    for (const later of [tools, []]) {
      await server.client.responses.create({
        model: "demo",
        input: whole.output as never,
        tools: later as never,
      });
      const [{ tool_calls: calls }] = server.engine.chatForm.conversations.at(-1)!.messages;
      assertEquals((calls as { function: { name: string } }[]).map(({ function: { name } }) => name), [
        "mcp__files__read",
        "disk__read",
        "read",
      ]);
    }
  });
});

Deno.test("Responses tools: a namespace's joined name never collides with another tool's name", async () => {
  await withServer(reply(call("a__b_2", { path: "x" })), async (server) => {
    const tools = [space("a", { ...readTool, name: "b" }), { ...readTool, name: "a__b" }];
    const { output } = await ask(server, {
      tools,
      tool_choice: { type: "function", name: "b", namespace: "a" },
    });
    assertEquals(server.engine.chatForm.conversations[0].toolChoice, { name: "a__b_2" });
    assertEquals([output[0].name, output[0].namespace], ["b", "a"]);
    // A name that only one namespace has needs no namespace.
    await ask(server, { tools, tool_choice: { type: "function", name: "b" } });
    assertEquals(server.engine.chatForm.conversations.at(-1)!.toolChoice, { name: "a__b_2" });
  });
});

Deno.test("Responses tools: a custom tool is a function with one text and answered with its input", async () => {
  const input = 'a "quoted"\n\\ wörld 🙂';
  const escaped = JSON.stringify({ input }).replace("🙂", "\\ud83d\\ude42").replace("ö", "\\u00f6");
  for (const text of [JSON.stringify({ input }), escaped, `{ "input" :\n${JSON.stringify(input)} }`]) {
    await withServer(reply(call("apply_patch", text)), async (server) => {
      const tools = [patch];
      const { output, events } = await ask(server, {
        tools,
        tool_choice: { type: "custom", name: "apply_patch" },
      });
      assertEquals(output, [
        { type: "custom_tool_call", call_id: callId(0), name: "apply_patch", input, status: "completed" },
      ]);
      const deltas = events.flatMap((event) =>
        event.type === "response.custom_tool_call_input.delta" ? event.delta : []
      );
      assertEquals(deltas.join(""), input);
      assertEquals(deltas.length > 5, true);
      assertEquals(deltas.every((delta) => delta.isWellFormed()), true);
      const kinds = events.map(({ type }) => type).filter((type, i, all) => type !== all[i - 1]);
      assertEquals(kinds as string[], [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
        "response.completed",
      ]);
      const [{ tools: read, toolChoice }] = server.engine.chatForm.conversations;
      assertEquals(toolChoice, { name: "apply_patch" });
      assertEquals(read, [{
        name: "apply_patch",
        description: "Edits files",
        parameters: {
          type: "object",
          properties: { input: { type: "string" } },
          required: ["input"],
          additionalProperties: false,
        },
        strict: true,
      }]);
    });
  }
});

Deno.test("Responses tools: a cut custom tool call has the input so far", async () => {
  const text = call("apply_patch", '{"input": "abc\\ud83d\\ude42"}');
  await withServer(reply(text), async (server) => {
    // The cut is in the escape of the emoji's second half.
    const max_output_tokens = text.length - "<|start|>".length + 1 - 4;
    const { whole, output } = await ask(server, { tools: [patch], max_output_tokens });
    assertEquals(whole.status, "incomplete");
    assertEquals([output[0].input, output[0].status], ["abc", "incomplete"]);
  });
});

Deno.test("Responses tools: the model reads a custom tool's grammar in its description", async () => {
  await withServer({}, async (server) => {
    const format = { type: "grammar", syntax: "lark", definition: 'start: "a"' };
    await ask(server, { tools: [{ ...patch, format }] });
    const [{ tools: [read] = [] }] = server.engine.chatForm.conversations;
    assertEquals(read.description, 'Edits files\n\nThe input must follow this Lark grammar:\nstart: "a"');
  });
});

Deno.test("Responses tools: local_shell is answered as local_shell_call", async () => {
  const text = call("local_shell", { command: ["ls", "-l"], working_directory: "/a", timeout_ms: 5 });
  await withServer(reply(text), async (server) => {
    const { output } = await ask(server, { tools: [shell], tool_choice: shell });
    assertEquals(output, [{
      type: "local_shell_call",
      call_id: callId(0),
      action: { type: "exec", command: ["ls", "-l"], env: {}, working_directory: "/a", timeout_ms: 5 },
      status: "completed",
    }]);
    assertEquals(server.engine.chatForm.conversations[0].toolChoice, { name: "local_shell" });
  });
});

Deno.test("Responses tools: hosted tools are left out, and a warning tells the operator", async () => {
  const told: string[] = [];
  const warn = (message: string) => told.push(message);
  await withServer({ ...reply("<|start|>text\nHi"), warn }, async (server) => {
    const hosted = [
      { type: "web_search", external_web_access: true },
      { type: "mcp", server_label: "a", server_url: "http://a" },
    ];
    const { whole } = await ask(server, { tools: [...hosted, readTool] });
    assertEquals(whole.tools as unknown[], [readTool]);
    const [{ tools: read }] = server.engine.chatForm.conversations;
    assertEquals(read?.map(({ name }) => name), ["read"]);
    assertEquals(
      [...new Set(told)],
      ["web_search", "mcp"].map((type) =>
        `The server cannot run tools of the type "${type}" and leaves them out of prompts`
      ),
    );
    await ask(server, { tools: hosted });
    assertEquals(server.engine.chatForm.conversations.at(-1)!.tools, undefined);
  });
});

Deno.test("Responses tools: allowed_tools takes tools of every kind and leaves hosted ones out", async () => {
  await withServer(reply(call("a__read", { path: "x" })), async (server) => {
    const tools = [space("a", readTool), space("b", readTool), patch, shell, { type: "web_search" }];
    const allowed = [{ type: "function", name: "read", namespace: "a" }, { type: "web_search" }, shell];
    for (const mode of ["auto", "required"]) {
      await ask(server, { tools, tool_choice: { type: "allowed_tools", mode, tools: allowed } });
      const { tools: read, toolChoice } = server.engine.chatForm.conversations.at(-1)!;
      assertEquals(read?.map(({ name }) => name), ["a__read", "local_shell"]);
      assertEquals(toolChoice, mode);
    }
  });
});

Deno.test("Responses tools: histories of an agent become calls and their outputs", async () => {
  await withServer({}, async ({ client, engine, post }) => {
    const input = [
      { type: "message", role: "developer", content: [{ type: "input_text", text: "One" }] },
      { type: "message", role: "developer", content: [{ type: "input_text", text: "Two" }] },
      { type: "message", role: "user", content: [{ type: "input_text", text: "Go" }] },
      { type: "reasoning", id: "rs_1", summary: [], content: null, encrypted_content: "sealed" },
      { type: "web_search_call", id: "ws_1", status: "completed", action: { type: "search", query: "a" } },
      { type: "custom_tool_call", id: "ctc_1", call_id: "c1", name: "apply_patch", input: "a\nb" },
      { type: "custom_tool_call_output", call_id: "c1", output: [{ type: "input_text", text: "done" }] },
      {
        type: "local_shell_call",
        id: "lsh_1",
        call_id: "c2",
        status: "completed",
        action: { type: "exec", command: ["ls"], timeout_ms: null, env: {} },
      },
      { type: "local_shell_call_output", id: "lsh_1", output: "a.txt" },
      { type: "function_call", call_id: "c3", name: "read", namespace: "a", arguments: "{}" },
      {
        type: "function_call_output",
        call_id: "c3",
        output: [{ type: "input_text", text: "x" }, { type: "input_text", text: "y" }],
      },
    ];
    await client.responses.create({ model: "demo", input: input as never });
    const called = (id: string, name: string, text: string) => {
      const tool_calls = [{ id, type: "function", function: { name, arguments: text } }];
      return { role: "assistant", content: null, tool_calls };
    };
    assertEquals(engine.chatForm.conversations[0].messages, [
      { role: "developer", content: "One" },
      { role: "developer", content: "Two" },
      { role: "user", content: "Go" },
      called("c1", "apply_patch", '{"input":"a\\nb"}'),
      { role: "tool", tool_call_id: "c1", content: "done" },
      called("c2", "local_shell", '{"command":["ls"],"env":{}}'),
      { role: "tool", tool_call_id: "c2", content: "a.txt" },
      called("c3", "a__read", "{}"),
      { role: "tool", tool_call_id: "c3", content: "x\ny" },
    ]);
    const { error } = await (await post("/v1/responses", { input: [{ type: "odd_call" }] })).json();
    assertEquals(
      [error.param, /\(got "odd_call"\)$/.test(error.message)],
      ["input[0].type", true],
      error.message,
    );
  });
});
