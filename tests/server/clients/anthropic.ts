import Anthropic from "@anthropic-ai/sdk";
import { assert, assertEquals, assertRejects } from "@std/assert";
import { type Call, isMood, MOOD, MOST, QUESTION, type Served } from "./calls.ts";

/* Calls of the npm package `@anthropic-ai/sdk`. */

const messages = [{ role: "user" as const, content: QUESTION }];
const tools = [{ name: "set_mood", description: "Sets the mood", input_schema: MOOD as never }];

function call(name: string, run: (client: Anthropic, model: string) => Promise<void>): Call {
  return {
    name,
    run: ({ base, model }: Served) =>
      run(new Anthropic({ baseURL: base, apiKey: "none", maxRetries: 0 }), model),
  };
}

/** Returns the answer without the fields that differ between calls. */
function said({ content, stop_reason, usage }: Anthropic.Message) {
  const blocks = content.map((block) => {
    if (block.type === "text") return block.text;
    if (block.type === "thinking") return block.thinking;
    return block.type === "tool_use" ? block.input : block.type;
  });
  return { blocks, stop_reason, tokens: usage.output_tokens };
}

export const ANTHROPIC_CALLS: readonly Call[] = [
  call("messages, whole and streamed", async (client, model) => {
    const request = { model, messages, system: "Be kind", max_tokens: MOST, temperature: 0 };
    const whole = await client.messages.create(request);
    const streamed = await client.messages.stream(request).finalMessage();
    assertEquals(said(streamed), said(whole));
    const counted = await client.messages.countTokens({ model, messages, system: "Be kind" });
    const { input_tokens, cache_read_input_tokens } = whole.usage;
    assertEquals(counted.input_tokens, input_tokens + (cache_read_input_tokens ?? 0));
  }),
  call("messages with thinking", async (client, model) => {
    const request = {
      model,
      messages,
      max_tokens: 1100,
      temperature: 0,
      stop_sequences: ["a"],
      thinking: { type: "enabled" as const, budget_tokens: 1024 },
    };
    const whole = await client.messages.create(request);
    assertEquals(whole.content[0].type, "thinking");
    assertEquals(said(await client.messages.stream(request).finalMessage()), said(whole));
  }),
  call("messages with tools, whose results go back", async (client, model) => {
    const request = {
      model,
      tools,
      tool_choice: { type: "any" as const, disable_parallel_tool_use: true },
      max_tokens: 300,
      temperature: 0,
    };
    const conversation: Anthropic.MessageParam[] = [...messages];
    for (let round = 0; round < 2; round++) {
      const asked = { ...request, messages: conversation };
      const answer = round === 0
        ? await client.messages.create(asked)
        : await client.messages.stream(asked).finalMessage();
      assertEquals(answer.stop_reason, "tool_use");
      const [use] = answer.content.filter((block) => block.type === "tool_use");
      assert(isMood(use.input));
      const result = { type: "tool_result" as const, tool_use_id: use.id, content: "done" };
      conversation.push({ role: "assistant", content: answer.content }, { role: "user", content: [result] });
    }
  }),
  call("refusals, by status", async (client, model) => {
    await assertRejects(
      () => client.messages.create({ model, messages, max_tokens: -1 }),
      Anthropic.BadRequestError,
    );
    await assertRejects(
      () => client.messages.create({ model: "none", messages, max_tokens: 1, stream: true }),
      Anthropic.NotFoundError,
    );
  }),
];
