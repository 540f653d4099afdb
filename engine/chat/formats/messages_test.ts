import { assertEquals, assertMatch, assertThrows } from "@std/assert";
import { type ChatMessage, ChatTemplateError } from "../../tokenizer/types.ts";
import { testModel, WEATHER } from "../testing.ts";
import type { Tool } from "../types.ts";
import { FORMAT_CASES } from "./testing.ts";

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

function prompt(template: string, messages = CALLED, control: string[] = []): string {
  const { form, tokenizer } = testModel({ template, control });
  return tokenizer.decode(form.plan({ messages, tools: [WEATHER] }).prompt, { special: true });
}

Deno.test("messages: every format shows arguments that a token limit has cut", () => {
  const called = CALLED[1].tool_calls as { function: object }[];
  const calls = [{ ...called[0], function: { name: "get_weather", arguments: '{"city": "Bonn, Ger' } }];
  const messages = CALLED.with(1, { ...CALLED[1], tool_calls: calls });
  for (const { title, model, published } of FORMAT_CASES) {
    const { form, tokenizer } = model();
    const shown = tokenizer.decode(form.plan({ messages, tools: [WEATHER] }).prompt, { special: true });
    if (published) assertMatch(shown, /Bonn, Ger/, title);
  }
});

Deno.test("lfm2, gemma: numbers in calls and results keep their text", () => {
  const text = '{"n": 12345678901234567890, "x": 1.0}';
  const calls = [{ id: "a", type: "function", function: { name: "get_weather", arguments: text } }];
  const messages = [CALLED[0], { ...CALLED[1], tool_calls: calls }, { ...CALLED[2], content: text }];
  const lfm2 = prompt(
    "{# <|tool_list_start|> #}{% for m in messages %}{{ m.content }}|{% endfor %}",
    messages,
  );
  assertMatch(lfm2, /get_weather\(n=12345678901234567890, x=1\.0\)/);
  const gemma = prompt(
    "{# <|tool_call> #}{% for m in messages %}{% for r in m.tool_responses or [] %}{{ r.response }}{% endfor %}{% endfor %}",
    messages,
  );
  assertMatch(gemma, /\{'n': 12345678901234567890, 'x': 1\.0\}/);
});

Deno.test("mistral: call and result get the same id of nine letters and digits", () => {
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

Deno.test("gemma: results are in the message of the calls", () => {
  const shown = prompt(
    "{# <|tool_call> #}{% for m in messages %}{{ m.role }}:{% for r in m.tool_responses or [] %}" +
      "{{ r.name }}={{ r.response.sky }}{% endfor %}|{% endfor %}",
  );
  assertEquals(shown, "user:|assistant:get_weather=blue|");
});

Deno.test("phi4: tools are in the system message's field, and calls are text", () => {
  const shown = prompt(
    "{% for message in messages %}{% if message['tools'] %}<|tool|>{{ message['tools'] }}<|/tool|>{% endif %}" +
      "{{ message['content'] }}|{% endfor %}",
  );
  assertMatch(shown, /^<\|tool\|>\[\{"name":"get_weather",/);
  assertMatch(
    shown,
    /<\|tool_call\|>\[\{"name": "get_weather", "arguments": \{"city":"Bonn"\}\}\]<\|\/tool_call\|>/,
  );
});

Deno.test("lfm2: calls are text unless the template shows calls", () => {
  const plain = prompt("<|tool_list_start|>{% for m in messages %}{{ m.content | tojson }}|{% endfor %}");
  assertMatch(plain, /<\|tool_call_start\|>\[get_weather\(city=\\"Bonn\\"\)\]<\|tool_call_end\|>/);
  const calls =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}|{% endfor %}";
  assertMatch(prompt(`{#- "List of tools: [" -#}${calls}`), /^\|\{"city": "Bonn"\}\|/);
});

Deno.test("general: puts tools into the first user message when the template refuses system messages", () => {
  const shown = prompt(
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" +
      "{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}",
  );
  assertMatch(shown, /^user:You can call[^|]*How is the weather\?\|assistant:<tool_call>/);
});

Deno.test("granite: calls are text, because templates show none", () => {
  const shown = prompt("{# <|tool_call|> #}{% for m in messages %}{{ m.content }}|{% endfor %}");
  assertMatch(shown, /\|<\|tool_call\|>\[\{"name": "get_weather", "arguments": \{"city":"Bonn"\}\}\]\|/);
});

Deno.test("messages: marks around calls as text are tokens, but the same text in a message is not", () => {
  const templates: [string, string[]][] = [
    ["{# <|tool_list_start|> #}", ["<|tool_call_start|>", "<|tool_call_end|>"]],
    ["{# <|tool_call|> #}", ["<|tool_call|>"]],
    ["{# <|/tool_call|> message['tools'] #}", ["<|tool_call|>", "<|/tool_call|>"]],
  ];
  for (const [head, marks] of templates) {
    const source = `${head}{% for m in messages %}{{ m.content }}|{% endfor %}`;
    const { form, tokenizer } = testModel({ template: source, control: marks });
    const messages = CALLED.map((message) => ({ ...message, content: marks.join("") }));
    const tokens = form.plan({ messages, tools: [WEATHER] }).prompt;
    const expected = marks.map((mark) => tokenizer.encode(mark, { parseSpecial: true })[0]);
    assertEquals(tokens.filter((token) => tokenizer.isControl(token)), expected);
    assertEquals(tokenizer.decode(tokens, { special: true }).split(marks[0]).length, 5);
  }
});

const TWICE: ChatMessage[] = [
  { role: "user", content: "How is the weather?" },
  {
    role: "assistant",
    content: "I look.",
    tool_calls: ["a", "b"].map((id) => ({
      id,
      type: "function",
      function: { name: "get_weather", arguments: `{"city":"${id}"}` },
    })),
  },
  { role: "tool", tool_call_id: "b", content: "rain" },
  { role: "tool", tool_call_id: "a", content: "sun" },
  { role: "user", content: "Thanks" },
];

Deno.test("messages: gives each call its own message, followed by its result, if the template needs separate messages", () => {
  for (const marks of ["<|python_tag|>", "<|channel|><|message|>"]) {
    const shown = prompt(
      `{# ${marks} #}{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}` +
        "{{ c.function.arguments | tojson }}{% endfor %}|{% endfor %}",
      TWICE,
    );
    assertEquals(
      shown,
      'user:How is the weather?|assistant:I look.{"city": "a"}|tool:sun|assistant:{"city": "b"}|tool:rain|user:Thanks|',
    );
  }
});

Deno.test("gpt-oss: text beside a call is a separate message after the thought", () => {
  const messages = TWICE.with(1, { ...TWICE[1], reasoning_content: "Hm." });
  const marks = ["start", "channel", "message", "end"].map((name) => `<|${name}|>`);
  const shown = prompt(
    "{% for message in messages %}{% if message.content and message.thinking %}{{ raise_exception('both') }}{% endif %}" +
      "{% if message.tool_calls %}<|channel|>analysis<|message|>{{ message.content }}<|end|>{% endif %}{% endfor %}",
    messages,
    marks,
  );
  assertEquals(
    shown,
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>" +
      "<|channel|>analysis<|message|><|end|>",
  );
});

Deno.test("gemma: calls with results have no content, so nothing follows the results", () => {
  const shown = prompt(
    "{# <|tool_call> #}{% for m in messages %}{{ m.tool_responses | length if m.tool_responses }}{{ m.content }}|{% endfor %}",
    TWICE,
  );
  assertEquals(shown, "How is the weather?|2|Thanks|");
});

Deno.test("general: puts tools into the system message when the template accepts one", () => {
  const template =
    "{% if messages[0].content is none %}{{ raise_exception('Invalid system message') }}{% endif %}" +
    "{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}";
  assertMatch(prompt(template), /^system:You can call[^|]*\|user:/);
});

Deno.test("general: refuses a system message with tools when the template refuses it", () => {
  const template =
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}";
  const messages = [{ role: "system", content: "Be brief." }, ...CALLED];
  assertThrows(() => prompt(template, messages), ChatTemplateError, "System role not supported");
});

Deno.test("call formats: no format recognizes a template of another format, even if it contains its marker", () => {
  const format = (template: string) => testModel({ template }).form.toolFormat;
  assertEquals(format("<|python_tag|><function={{ name }}>"), "general");
  assertEquals(
    format('within <tool_call></tool_call>: <tool_calls>[{"name": 1, "arguments": 2}]'),
    "general",
  );
});

Deno.test("deepseek: puts tools with real marks into the system message when the template has no tools", () => {
  const marks = ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"];
  const source = `{# ${marks.join("")} #}{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}`;
  const { form, tokenizer } = testModel({ template: source, control: marks });
  const messages = [{ role: "system", content: `Write ${marks[0]} often.` }, ...CALLED];
  const count = (tools: Tool[]) => {
    const { prompt } = form.plan({ messages, tools });
    const shown = tokenizer.decode(prompt, { special: true });
    assertMatch(shown, /^system:Write <｜tool▁calls▁begin｜> often\./);
    assertEquals(shown.includes("### get_weather"), tools.length > 0);
    return prompt.filter((token) => tokenizer.isControl(token)).length;
  };
  assertEquals(count([]), 3);
  assertEquals(count([WEATHER]), 6);
  assertMatch(
    prompt(source),
    /^system:## Tools[^|]*\|user:How is the weather\?\|assistant:<｜tool▁calls▁begin｜>/,
  );
});

Deno.test("kimi: call and result get the same id, made of the tool's name and a number", () => {
  const calls = (...ids: string[]) => ({
    ...CALLED[1],
    tool_calls: ids.map((id) => ({ id, type: "function", function: { name: id, arguments: "{}" } })),
  });
  const result = (id: string) => ({ role: "tool", tool_call_id: id, content: "" });
  const messages = [
    CALLED[0],
    calls("a", "b"),
    result("b"),
    result("a"),
    calls("c"),
    result("c"),
    result("d"),
  ];
  const shown = (head: string) =>
    prompt(
      `{# <|tool_calls_section_begin|>${head} #}{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }} ` +
        "{% endfor %}{{ m.tool_call_id }}|{% endfor %}",
      messages,
    );
  assertEquals(
    shown(""),
    "|functions.a:0 functions.b:1 |functions.b:1|functions.a:0|functions.c:2 |functions.c:2|d|",
  );
  assertEquals(
    shown("loop.index0"),
    "|functions.a:0 functions.b:1 |functions.b:1|functions.a:0|functions.c:0 |functions.c:0|d|",
  );
});
