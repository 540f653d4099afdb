import { assertEquals, assertMatch } from "@std/assert";
import type { ChatMessage } from "../../tokenizer/types.ts";
import { testModel, WEATHER } from "../testing.ts";

const CALLED: ChatMessage[] = [
  { role: "user", content: "How is the weather?" },
  {
    role: "assistant",
    content: null,
    tool_calls: [{
      id: "call_abcdefghijklmnopqrstuvwx",
      type: "function",
      function: { name: "get_weather", arguments: '{"city":"Bonn"}' },
    }],
  },
  { role: "tool", tool_call_id: "call_abcdefghijklmnopqrstuvwx", content: '{"sky":"blue"}' },
];

function prompt(template: string, messages = CALLED): string {
  const { form, tokenizer } = testModel({ template });
  return tokenizer.decode(form.plan({ messages, tools: [WEATHER] }).prompt, { special: true });
}

Deno.test("Mistral's templates get ids of nine letters and digits, the same in call and result", () => {
  const shown = prompt(
    "{# [TOOL_CALLS] #}{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }}{% endfor %}" +
      "{{ m.tool_call_id }}|{% endfor %}",
  );
  assertEquals(shown, "|pqrstuvwx|pqrstuvwx|");
  const short = CALLED.map((message) =>
    message.role === "tool" ? { ...message, tool_call_id: "1" } : message
  );
  assertMatch(prompt("{# [TOOL_CALLS] #}{{ messages[2].tool_call_id }}", short), /^000000001$/);
});

Deno.test("Gemma's templates get results in the message of the calls", () => {
  const shown = prompt(
    "{# <|tool_call> #}{% for m in messages %}{{ m.role }}:{% for r in m.tool_responses or [] %}" +
      "{{ r.name }}={{ r.response.sky }}{% endfor %}|{% endfor %}",
  );
  assertEquals(shown, "user:|assistant:get_weather=blue|");
});

Deno.test("Phi's templates get tools in the system message's field, and calls as text", () => {
  const shown = prompt(
    "{% for message in messages %}{% if message['tools'] %}<|tool|>{{ message['tools'] }}<|/tool|>{% endif %}" +
      "{{ message['content'] }}|{% endfor %}",
  );
  assertMatch(shown, /^<\|tool\|>\[\{"name":"get_weather",/);
  assertMatch(
    shown,
    /<\|tool_call\|>\[\{"name":"get_weather","arguments":\{"city":"Bonn"\}\}\]<\|\/tool_call\|>/,
  );
});

Deno.test("LFM2's templates, which show no calls, get them as text, and those of LFM2.5 that do get them as calls", () => {
  const plain = prompt("<|tool_list_start|>{% for m in messages %}{{ m.content | tojson }}|{% endfor %}");
  assertMatch(plain, /<\|tool_call_start\|>\[get_weather\(city=\\"Bonn\\"\)\]<\|tool_call_end\|>/);
  const calls =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}|{% endfor %}";
  assertMatch(prompt(`{#- "List of tools: [" -#}${calls}`), /^\|\{"city": "Bonn"\}\|/);
});

Deno.test("templates that refuse system messages get the tools in the first message of the user", () => {
  const shown = prompt(
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" +
      "{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}",
  );
  assertMatch(shown, /^user:You can call[^|]*How is the weather\?\|assistant:<tool_call>/);
});
