import { assert, assertEquals, assertRejects } from "@std/assert";
import { Ollama } from "ollama";
import { type Call, isMood, MOOD, MOST, QUESTION, type Served } from "./calls.ts";

/* Calls of the npm package `ollama`. */

const messages = [{ role: "user", content: QUESTION }];
const tools = [{
  type: "function",
  function: { name: "set_mood", description: "Sets the mood", parameters: MOOD as never },
}];
const options = { temperature: 0, num_predict: MOST };

function call(name: string, run: (client: Ollama, model: string) => Promise<void>): Call {
  return { name, run: ({ base, model }: Served) => run(new Ollama({ host: base }), model) };
}

export const OLLAMA_CALLS: readonly Call[] = [
  call("chat, whole and streamed", async (client, model) => {
    const request = { model, messages, options };
    const whole = await client.chat(request);
    const parts = await Array.fromAsync(await client.chat({ ...request, stream: true }));
    assertEquals(parts.map(({ message }) => message.content).join(""), whole.message.content);
    assertEquals(parts.map(({ message }) => message.thinking ?? "").join(""), whole.message.thinking ?? "");
    const { done_reason, eval_count } = parts.at(-1)!;
    assertEquals({ done_reason, eval_count }, {
      done_reason: whole.done_reason,
      eval_count: whole.eval_count,
    });
    assert(whole.eval_duration > 0 && whole.prompt_eval_count > 0);
  }),
  call("chat with and without thinking", async (client, model) => {
    const request = { model, messages, options };
    assert((await client.chat({ ...request, think: true })).message.thinking);
    assertEquals((await client.chat({ ...request, think: false })).message.thinking, undefined);
  }),
  call("chat in a form", async (client, model) => {
    const request = { model, messages, format: MOOD, think: false, options: { temperature: 0 } };
    assert(isMood(JSON.parse((await client.chat(request)).message.content)));
  }),
  call("chat with tools, whose results go back", async (client, model) => {
    const request = { model, messages, tools, think: false, options };
    const first = await client.chat(request);
    const history = [
      ...messages,
      {
        role: "assistant",
        content: "",
        tool_calls: [{ function: { name: "set_mood", arguments: { mood: "calm" } } }],
      },
      { role: "tool", content: "done", tool_name: "set_mood" },
    ];
    const second = await client.chat({ ...request, messages: history });
    assert(second.prompt_eval_count > first.prompt_eval_count);
  }),
  call("generate, whole and streamed", async (client, model) => {
    const request = { model, prompt: "Once", raw: true, options };
    const whole = await client.generate(request);
    const parts = await Array.fromAsync(await client.generate({ ...request, stream: true }));
    assertEquals(parts.map(({ response }) => response).join(""), whole.response);
  }),
  call("embeddings", async (client, model) => {
    const { embeddings: [row, ...others] } = await client.embed({ model, input: ["a", "b"] });
    assertEquals(others.length, 1);
    assertEquals((await client.embeddings({ model, prompt: "a" })).embedding, row);
  }),
  call("models and refusals", async (client, model) => {
    const name = `${model}:latest`;
    assertEquals((await client.list()).models.map(({ name }) => name), [name]);
    assertEquals((await client.ps()).models.map(({ name }) => name), [name]);
    const { capabilities } = await client.show({ model: name });
    assertEquals(capabilities, ["completion", "tools", "thinking"]);
    await assertRejects(() => client.show({ model: "none" }), Error, "no model");
  }),
];
