import { assert, assertEquals, assertNotEquals } from "@std/assert";
import type { Engine } from "../../engine/api/engine.ts";
import { createApp } from "../../routes/app.ts";
import { withChatModel } from "../../testing/chat_model.ts";

/* /apply-template shows the prompt that the same body runs as a chat. */

/** Refuses system messages behind the first message, so that the server folds them. */
const TEMPLATE = `{% for m in messages %}{% if m.role == "system" and not loop.first -%}
{{ raise_exception("system first") }}{% endif %}{% endfor -%}
{% if tools %}{{ tools | tojson }} <tool_call>{"name", "arguments"}</tool_call>{% endif -%}
{% if reasoning_effort %}[{{ reasoning_effort }}]{% endif %}{% if colour %}({{ colour }}){% endif -%}
{% for m in messages %}{{ m.role }}: {{ m.content or "" }}{% for call in m.tool_calls or [] -%}
<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|endoftext|>{% endfor -%}
{% if add_generation_prompt %}assistant: {% if enable_thinking is false %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}{% endif %}`;

const user = { role: "user", content: "Weather?" };
const tool = {
  type: "function",
  function: {
    name: "weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};
const called = {
  role: "assistant",
  content: null,
  tool_calls: [{ id: "a", type: "function", function: { name: "weather", arguments: '{"city":"Bonn"}' } }],
};

const BODIES: Record<string, object> = {
  plain: { messages: [user] },
  "system messages": { messages: [{ role: "system", content: "Be brief." }, user] },
  "a late system message, which is folded": { messages: [user, { role: "system", content: "Now!" }, user] },
  tools: { messages: [user], tools: [tool] },
  "no choice of a tool": { messages: [user], tools: [tool], tool_choice: "none" },
  "a required call": { messages: [user], tools: [tool], tool_choice: "required" },
  functions: { messages: [user], functions: [tool.function] },
  "earlier calls": {
    messages: [user, called, { role: "tool", tool_call_id: "a", content: "sunny" }],
    tools: [tool],
  },
  "a form": { messages: [user], response_format: { type: "json_object" } },
  effort: { messages: [user], reasoning_effort: "high" },
  "no thinking": { messages: [user], reasoning_effort: "none" },
  "no thinking in Anthropic's words": { messages: [user], thinking: { type: "disabled" } },
  "a variable of the template": { messages: [user], chat_template_kwargs: { colour: "red" } },
  "its own variable": { messages: [user], chat_template_kwargs: { enable_thinking: false } },
  prefill: { messages: [user, { role: "assistant", content: "It is " }] },
  "a new answer": { messages: [user, { role: "assistant", content: "It is " }], add_generation_prompt: true },
};

/** Returns the engine, and the prompts that requests run on it. */
function recorded(engine: Engine): { engine: Engine; prompts: (readonly number[])[] } {
  const prompts: (readonly number[])[] = [];
  const proxy = new Proxy(engine, {
    get(target, name) {
      const value = Reflect.get(target, name);
      if (typeof value !== "function") return value;
      return (...args: unknown[]) => {
        if (name === "submit") prompts.push((args[0] as { prompt: readonly number[] }).prompt);
        return value.apply(target, args);
      };
    },
  });
  return { engine: proxy, prompts };
}

Deno.test("apply-template: prints the prompt that the same body runs", async () => {
  await withChatModel("by itself", async (model) => {
    const { engine, prompts } = recorded(model.engine);
    const app = createApp(engine);
    const post = async (path: string, body: object) => {
      const headers = { "content-type": "application/json" };
      const response = await app.request(path, { method: "POST", headers, body: JSON.stringify(body) });
      const text = await response.text();
      assertEquals(response.status, 200, text);
      return JSON.parse(text);
    };
    const texts = new Map<string, string>();
    for (const [name, body] of Object.entries(BODIES)) {
      const { prompt } = await post("/apply-template", body);
      await post("/v1/chat/completions", { ...body, max_tokens: 1 });
      assertEquals(engine.encodePrompt(prompt), prompts.pop(), name);
      await post("/completion", { prompt, n_predict: 1 });
      assertEquals(engine.encodePrompt(prompt), prompts.pop(), name);
      texts.set(name, prompt);
    }
    const plain = texts.get("plain")!;
    for (const name of ["no choice of a tool", "a form"]) assertEquals(texts.get(name), plain, name);
    for (const name of ["tools", "effort", "no thinking", "a variable of the template", "prefill"]) {
      assertNotEquals(texts.get(name), plain, name);
    }
    assert(texts.get("tools")!.includes('"city"'));
    assert(texts.get("prefill")!.endsWith("It is "));
    assertEquals(texts.get("no thinking"), texts.get("no thinking in Anthropic's words"));
  }, { template: TEMPLATE });
});
