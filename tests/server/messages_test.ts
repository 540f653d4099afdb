import Anthropic from "@anthropic-ai/sdk";
import { assert, assertEquals } from "@std/assert";
import { createApp } from "../../routes/app.ts";
import { planOf } from "../../routes/anthropic/request.ts";
import { execute } from "../../routes/execute.ts";
import { type ChatModel, withChatModel } from "../../testing/chat_model.ts";
import { run, withFolder } from "../../testing/commands.ts";
import { judgeCalls, judgeJson, type Tool } from "../../testing/tool_calls.ts";

/*
 * /v1/messages with the kernels, the grammar library and random weights, through everything except the network. All
 * features of a request must hold together, and the answer must be the same whole, streamed and as a batch line.
 */

type Request = Anthropic.MessageCreateParamsNonStreaming & Record<string, unknown>;

const schema = {
  type: "object" as const,
  properties: {
    city: { type: "string", maxLength: 12 },
    days: { type: "array", items: { type: "integer", minimum: 1, maximum: 9 }, maxItems: 3 },
  },
  required: ["city"],
  additionalProperties: false,
};
const tools = ["get_weather", "notes.add-one"].map((name) => ({ name, input_schema: schema }));
/** The tools of the request in the checker's format. */
const chatTools: Tool[] = tools.map(({ name, input_schema: parameters }) => {
  return { type: "function", function: { name, parameters } };
});
const output_config = { format: { type: "json_schema" as const, schema } };
const thinking = { type: "enabled" as const, budget_tokens: 12 };

function clientOf({ engine }: ChatModel): Anthropic {
  const app = createApp(engine);
  return new Anthropic({
    baseURL: "http://127.0.0.1",
    apiKey: "none",
    maxRetries: 0,
    fetch: async (url, init) => await app.request(url as string, init as RequestInit),
  });
}

/** Removes ids, times and figures that depend on earlier requests. */
function lasting({ content, stop_reason, stop_sequence, usage }: Anthropic.Message) {
  const blocks = JSON.parse(JSON.stringify(content)).map((block: object) => ({ ...block, id: "" }));
  const { input_tokens, cache_read_input_tokens, output_tokens, output_tokens_details } = usage;
  const read = input_tokens + (cache_read_input_tokens ?? 0);
  return { blocks, stop_reason, stop_sequence, tokens: [read, output_tokens, output_tokens_details] };
}

/** Asks whole, streamed and as a batch line. Throws if the answers differ. */
async function ask(model: ChatModel, body: Partial<Request>): Promise<Anthropic.Message> {
  const client = clientOf(model);
  const messages = [{ role: "user" as const, content: "Weather in Köln?" }];
  const request: Request = { model: "random", messages, seed: 1, max_tokens: 300, ...body };
  const whole = await client.messages.create(request);
  const streamed = await client.messages.stream(request as Anthropic.MessageStreamParams).finalMessage();
  if (whole.stop_reason !== "max_tokens") {
    assertEquals(lasting(streamed), lasting(whole), "streamed and whole differ");
  }
  const { status, body: line } = await execute(model.engine, { url: "/v1/messages", body: request });
  assertEquals(status, 200);
  assertEquals(lasting(line as unknown as Anthropic.Message), lasting(whole), "a line of a batch differs");
  return whole;
}

const MIXED: Partial<Request>[] = [
  { output_config },
  { output_config, thinking },
  { output_config, tools, thinking },
  { tools, tool_choice: { type: "none" }, output_config },
  { tools, tool_choice: { type: "any", disable_parallel_tool_use: true }, thinking, logit_bias: { 256: 4 } },
  { tools, tool_choice: { type: "tool", name: "notes.add-one" }, thinking },
  { output_config, temperature: 0, thinking: { type: "adaptive", display: "omitted" }, max_tokens: 600 },
  { tools, tool_choice: { type: "any" }, max_tokens: 40 },
  { stop_sequences: [..."aeiotns"], thinking },
  { stop_sequences: [..."aeiotns"] },
  {
    messages: [{ role: "user", content: "Weather?" }, { role: "assistant", content: "In Kö" }],
    max_tokens: 20,
  },
];

Deno.test("messages: constraints, tools, thinking and stop sequences hold whole, streamed and in batches", async () => {
  for (const thinks of ["by itself", "from the prompt"] as const) {
    const ended: string[] = [];
    await withChatModel(thinks, async (model) => {
      await Promise.all(MIXED.map(async (body) => {
        const answer = await ask(model, body);
        const { content, stop_reason, stop_sequence, usage } = answer;
        const calls = content.filter((block) => block.type === "tool_use");
        const text = content.map((block) => block.type === "text" ? block.text : "").join("");
        const thoughts = content.filter((block) => block.type === "thinking");
        if (calls.length > 0) assert(body.tools && body.tool_choice?.type !== "none", "a call without tools");
        assertEquals(stop_reason === "stop_sequence", stop_sequence !== null);
        if (stop_sequence !== null) assert(body.stop_sequences!.includes(stop_sequence));
        // Random weights write thinking markers anywhere, and stop texts do not apply after one.
        const watched = text.split("<think>")[0];
        for (const stop of body.stop_sequences ?? []) assert(!watched.includes(stop), text);
        if (!body.thinking) assertEquals(thoughts, []);
        else if (thinks === "from the prompt") assert(thoughts.length > 0, "nothing was thought");
        if (body.thinking === thinking) assert(usage.output_tokens_details!.thinking_tokens <= 16);
        if (stop_reason === "max_tokens") return;
        ended.push(stop_reason!);
        judgeCalls({
          content: text,
          reasoning: "",
          calls: calls.map(({ id, name, input }) => ({ id, name, arguments: JSON.stringify(input) })),
          finish: calls.length > 0 ? "tool_calls" : "stop",
        }, chatTools);
        assertEquals(stop_reason === "tool_use", calls.length > 0);
        if (body.output_config && calls.length === 0) judgeJson(text, schema);
        if (body.tool_choice?.type === "tool") assertEquals(calls.map(({ name }) => name), ["notes.add-one"]);
      }));
    });
    assert(
      ended.length >= 6 && ended.includes("stop_sequence") && ended.includes("tool_use"),
      `${thinks}: ${ended}`,
    );
  }
});

Deno.test("messages: cached tokens are counted apart from the input, and count_tokens predicts the sum", async () => {
  await withChatModel("from the prompt", async (model) => {
    const client = clientOf(model);
    const prompt = {
      model: "random",
      system: "Be kind. ".repeat(30),
      messages: [{ role: "user" as const, content: "Weather?" }],
      tools,
    };
    const request = { ...prompt, max_tokens: 8, temperature: 0 };
    const { input_tokens } = await client.messages.countTokens(prompt);
    const first = await client.messages.create(request);
    assertEquals([first.usage.input_tokens, first.usage.cache_read_input_tokens], [input_tokens, 0]);
    const again = await client.messages.create(request);
    assertEquals(lasting(again), lasting(first));
    assert(again.usage.cache_read_input_tokens! > 200, JSON.stringify(again.usage));
    const read = await client.messages.create({ ...request, max_tokens: 0 });
    assertEquals([read.content, read.stop_reason, read.usage.output_tokens], [[], "max_tokens", 0]);
  });
});

/**
 * A small version of Claude Code's request: its billing block differs per conversation, and its last message
 * is a system message.
 */
function agentRequest(conversation: number, question: string): Request {
  const text = (text: string) => ({ type: "text" as const, text });
  const suffix = ["a1f", "c92"][conversation];
  return {
    model: "random",
    max_tokens: 4,
    temperature: 0,
    system: [
      text(`x-anthropic-billing-header: cc_version=2.1.0.${suffix}; cc_entrypoint=cli;`),
      { ...text("You are a coding agent. Read files before you edit them. ".repeat(20)), ...EPHEMERAL },
    ],
    tools,
    messages: [
      { role: "user", content: question },
      { role: "system", content: `Today is ${question}.` } as never,
    ],
  };
}
const EPHEMERAL = { cache_control: { type: "ephemeral" as const } };
/** Refuses system messages after the first message, as many published templates do. */
const STRICT_TEMPLATE = `{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages -%}
{% if m.role == "system" and not loop.first %}{{ raise_exception("System message must be first") }}{% endif -%}
{{ m.role }}: {{ m.content }}<|endoftext|>{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}`;

Deno.test("messages: a second conversation of Claude Code finds the shared part in the cache, whole and streamed", async () => {
  const templates = [[undefined, "system: Today is"], [STRICT_TEMPLATE, "user: Fix it\n\nToday is"]] as const;
  for (const [template, reminder] of templates) {
    await withChatModel("by itself", async (model) => {
      const { messages } = clientOf(model);
      const first = await messages.create(agentRequest(0, "Fix it"));
      assertEquals(first.usage.cache_read_input_tokens, 0);
      const request = agentRequest(1, "Go on");
      const [one, other] = await Promise.all(
        [agentRequest(0, "Fix it"), request].map((body) => planOf(model.engine, body as never, {})),
      );
      const shared = one.prompt.findIndex((token, i) => token !== other.prompt[i]);
      assert(shared > 1000, `${shared} shared tokens`);
      const text = model.engine.tokenizer.decode(one.prompt);
      assert(!text.includes("billing") && text.includes(reminder), text);
      const whole = await messages.create(request);
      const read = whole.usage.cache_read_input_tokens!;
      assert(read >= 0.95 * shared, `${read} of ${shared} shared tokens were read from the cache`);
      assertEquals(whole.usage.input_tokens, other.prompt.length - read);
      const stream = messages.stream(request as Anthropic.MessageStreamParams);
      for await (const event of stream) {
        if (event.type !== "message_start" && event.type !== "message_delta") continue;
        const usage = event.type === "message_start" ? event.message.usage : event.usage;
        const { input_tokens, cache_read_input_tokens, cache_creation_input_tokens } = usage;
        assert(cache_read_input_tokens! >= 0.95 * shared, JSON.stringify(event));
        assertEquals(input_tokens! + cache_read_input_tokens!, other.prompt.length);
        assertEquals(cache_creation_input_tokens, 0);
      }
      // The next turn finds the whole prompt: the system message has kept its place.
      const next: Anthropic.MessageParam[] = [{ role: "assistant", content: "Done" }, {
        role: "user",
        content: "More",
      }];
      const { usage } = await messages.create({ ...request, messages: [...request.messages, ...next] });
      const again = usage.cache_read_input_tokens!;
      assert(again >= 0.95 * other.prompt.length, `${again} of ${other.prompt.length} tokens`);
    }, { template });
  }
});

Deno.test("messages: batch prefill stores prompts and reports the stored tokens", () =>
  withFolder(async (folder) => {
    const lines = [1, 2].map((n) => ({
      custom_id: `d${n}`,
      method: "POST",
      url: "/v1/messages",
      body: {
        system: `Document ${n}. `.repeat(30),
        messages: [{ role: "user", content: "Hi" }],
        max_tokens: 9,
      },
    }));
    const at = (name: string) => `${folder}/${name}`;
    await Deno.writeTextFile(at("in.jsonl"), lines.map((line) => JSON.stringify(line)).join("\n"));
    const { code, stderr } = await run([
      "batch",
      "prefill",
      at("in.jsonl"),
      "--cache-disk",
      at("prompts"),
      "--threads",
      "1",
    ]);
    assertEquals(code, 0, stderr);
    const answers = (await Deno.readTextFile(at("in.prefilled.jsonl"))).trimEnd().split("\n");
    for (const { response: { body } } of answers.map((line) => JSON.parse(line))) {
      const { input_tokens, output_tokens, stored_tokens, stored_in } = body.usage;
      assertEquals([body.content, output_tokens], [[], 0]);
      assert(stored_tokens > input_tokens - 40 && stored_in !== "", JSON.stringify(body.usage));
    }
  }));
