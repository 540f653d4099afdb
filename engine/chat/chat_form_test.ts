import { assertEquals, assertMatch, assertThrows } from "@std/assert";
import { ConstraintError } from "../grammar/types.ts";
import { ChatTemplateError } from "../tokenizer/types.ts";
import { readEveryWay, testModel, USER, WEATHER } from "./testing.ts";

const CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" +
  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const HERMES =
  '{% if tools %}{{ tools | tojson }} as <tool_call>{"name", "arguments"}</tool_call>{% endif %}' +
  CHATML;
const THINKING = HERMES + "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}";
const TURNS = ["<|im_start|>", "<|im_end|>"];
const MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>"];

const thinker = () => testModel({ template: THINKING, control: TURNS, userDefined: MARKS });
const call = (args: string, name = "get_weather") =>
  `<tool_call>\n{"name": "${name}", "arguments": ${args}}\n</tool_call>`;

Deno.test("chat form: separates thinking, content and calls", () => {
  const model = thinker();
  assertEquals(model.form.toolFormat, "hermes");
  const plan = model.form.plan({ messages: USER, tools: [WEATHER] });
  const text = `<think>\nLet me see.\n</think>\n\nI look.\n${call('{"city": "Köln"}')}\n${call("{}")}`;
  assertEquals(readEveryWay(model, plan, text), {
    reasoning: "Let me see.",
    content: "I look.",
    calls: [{ name: "get_weather", arguments: '{"city": "Köln"}' }, {
      name: "get_weather",
      arguments: "{}",
    }],
  });
});

Deno.test("chat form: finds marks in the text that are not tokens", () => {
  const model = testModel({ template: THINKING });
  const plan = model.form.plan({ messages: USER, tools: [WEATHER] });
  assertEquals(plan.markers.size, 0);
  const read = readEveryWay(
    model,
    plan,
    `<think>a < b</think>x <tool_ <b> ${call('{"city":"</tool_call>"}')}`,
  );
  assertEquals(read, {
    reasoning: "a < b",
    content: "x <tool_ <b>",
    calls: [{ name: "get_weather", arguments: '{"city":"</tool_call>"}' }],
  });
});

Deno.test("chat form: reads surrogate pairs as text, even if one half equals the character that stands for a marker", () => {
  const model = thinker();
  const plan = model.form.plan({ messages: USER, tools: [WEATHER] });
  const pairs = Array.from({ length: 8 }, (_, sign) => String.fromCodePoint(0x1f400 + sign, 0x20000 + sign));
  const text = pairs.join("");
  const called = call(`{"city": "${text}"}`);
  assertEquals(readEveryWay(model, plan, `<think>${text}</think>${text}${called}`), {
    reasoning: text,
    content: text,
    calls: [{ name: "get_weather", arguments: `{"city": "${text}"}` }],
  });
});

Deno.test("chat form: misplaced marks are text in constrained content and dropped from free text", () => {
  const model = thinker();
  const constraint = { kind: "json_schema", schema: { type: "string" } } as const;
  const formed = model.form.plan({ messages: USER, tools: [WEATHER], constraint });
  assertEquals(readEveryWay(model, formed, '"<tool_call></think>"').content, '"<tool_call></think>"');
  const free = model.form.plan({ messages: USER });
  assertEquals(readEveryWay(model, free, "a</think>b").content, "ab");
  const tools = model.form.plan({ messages: USER, tools: [WEATHER] });
  assertEquals(readEveryWay(model, tools, "a</think>b").content, "ab");
  const called = readEveryWay(model, formed, call('{"city": "<think></tool_call>"}'));
  assertEquals(called.calls[0].arguments, '{"city": "<think></tool_call>"}');
});

Deno.test("chat form: returns the parts of an answer that stops anywhere", () => {
  const model = thinker();
  const plan = model.form.plan({ messages: USER, tools: [WEATHER] });
  const reasoning = readEveryWay(model, plan, "<think>half a");
  assertEquals(reasoning, { reasoning: "half a", content: "", calls: [] });
  const cut = readEveryWay(model, plan, call('{"city": "Kö').slice(0, -14));
  assertEquals(cut.calls, [{ name: "get_weather", arguments: '{"city": "Kö' }]);
  assertEquals(readEveryWay(model, plan, "text \n").content, "text \n");
});

Deno.test("chat form: gives each call a unique id of 24 letters", () => {
  const model = thinker();
  const plan = model.form.plan({ messages: USER, tools: [WEATHER] });
  const tokens = model.tokenizer.encode(call("{}").repeat(3), { parseSpecial: true });
  const reader = plan.reader();
  const parts = tokens.flatMap((token) =>
    plan.markers.has(token) ? reader.marker(token) : reader.text(model.tokenizer.decode([token]))
  );
  const ids = parts.flatMap((part) => part.type === "call" ? [part.id] : []);
  for (const id of ids) assertMatch(id, /^call_[A-Za-z]{24}$/);
  assertEquals(new Set(ids).size, 3);
});

Deno.test("chat form: disabling thinking reaches the template and the grammar", () => {
  const model = thinker();
  const constraint = { kind: "json_schema", schema: { type: "object" } } as const;
  const plan = model.form.plan({ messages: USER, constraint, effort: false });
  assertEquals(plan.constraint, constraint);
  assertEquals(plan.thinking?.open, false);
  assertMatch(model.tokenizer.decode(plan.prompt, { special: true }), /assistant\n<think>\n\n<\/think>\n\n$/);
});

Deno.test("chat form: reads a thought that the prompt opens, and closes it at once when thinking is disabled", () => {
  const model = testModel({
    template: CHATML.replace("assistant\n", "assistant\n<think>\n"),
    control: TURNS,
    userDefined: MARKS,
  });
  const plan = model.form.plan({ messages: [{ role: "user", content: "<think>" }] });
  assertEquals(plan.thinking?.open, true);
  assertEquals(readEveryWay(model, plan, "so\n</think>\n\nyes").reasoning, "so");
  const without = model.form.plan({ messages: USER, effort: false });
  assertMatch(model.tokenizer.decode(without.prompt, { special: true }), /<think>\n\n<\/think>\n\n$/);
  assertEquals(readEveryWay(model, without, "yes").content, "yes");
});

Deno.test("chat form: a thinking marker in the user's message does not start thinking in the answer", () => {
  const model = thinker();
  assertEquals(model.form.plan({ messages: [{ role: "user", content: "<think>" }] }).thinking?.open, false);
});

Deno.test("chat form: puts tools into the system message for templates without tools", () => {
  const model = testModel({ template: CHATML, control: TURNS });
  assertEquals(model.form.toolFormat, "general");
  const messages = [
    { role: "system", content: "Be kind." },
    ...USER,
    {
      role: "assistant",
      content: null,
      tool_calls: [{ id: "1", function: { name: "get_weather", arguments: '{"city":"Bonn"}' } }],
    },
    { role: "tool", tool_call_id: "1", content: "sun" },
    { role: "tool", tool_call_id: "2", content: "rain" },
  ];
  const prompt = model.tokenizer.decode(model.form.plan({ messages, tools: [WEATHER] }).prompt);
  assertMatch(
    prompt,
    /Be kind\.\n\nYou can call[^]*"get_weather"[^]*\{"name": "get_weather", "arguments": \{"city":"Bonn"\}\}/,
  );
  assertMatch(
    prompt,
    /user\n<tool_response>\nsun\n<\/tool_response>\n<tool_response>\nrain\n<\/tool_response>\n/,
  );
});

Deno.test("chat form: hides tools that may not be called, and reads their marks as text", () => {
  const model = thinker();
  const plan = model.form.plan({ messages: USER, tools: [WEATHER], toolChoice: "none" });
  assertEquals(plan.constraint, undefined);
  assertEquals(model.tokenizer.decode(plan.prompt).includes("get_weather"), false);
  assertEquals(readEveryWay(model, plan, call("{}")).calls, []);
});

Deno.test("chat form: refuses a tool choice that names no tool, and tool parameters that are not an object", () => {
  const { form } = thinker();
  const plan = (tools: typeof WEATHER[], toolChoice?: "required" | { name: string }) => () =>
    form.plan({ messages: USER, tools, toolChoice });
  assertThrows(plan([], "required"), ChatTemplateError, "there are no tools");
  assertThrows(plan([WEATHER], { name: "other" }), ChatTemplateError, '"other"');
  assertThrows(
    plan([{ name: "f", parameters: { type: "string" } }]),
    ConstraintError,
    '"type" must be "object" (got "string")',
  );
});

Deno.test("chat form: accepts Python's spelling of values outside JSON", () => {
  const schema = {
    flag: { type: "boolean" },
    list: { type: "array" },
    where: { type: "object" },
    some: { type: ["string", "number"] },
  };
  const tool = { name: "f", parameters: { type: "object", properties: schema } };
  const model = testModel({ template: "{# <tool_call><function=f><parameter=p> #}" });
  const plan = model.form.plan({ messages: USER, tools: [tool] });
  const parameter = (name: string, value: string) => `<parameter=${name}>\n${value}\n</parameter>\n`;
  const text = parameter("flag", "True") + parameter("list", "['it\\'s', None, 1.5]") +
    parameter("where", "{'a': {'b': False}}") + parameter("some", "{'a'} or b");
  const { calls } = readEveryWay(model, plan, `<tool_call>\n<function=f>\n${text}</function>\n</tool_call>`);
  assertEquals(JSON.parse(calls[0].arguments), {
    flag: true,
    list: ["it's", null, 1.5],
    where: { a: { b: false } },
    some: "{'a'} or b",
  });
});

const GLM = "{# <tool_call>f<arg_key>p</arg_key><arg_value>v</arg_value> #}";

Deno.test("chat form: reads text between tags unchanged and other values as JSON, which may contain tags", () => {
  const properties = {
    text: { type: "string" },
    unit: { enum: ["C", "F"] },
    list: { type: "array", items: { type: "string" } },
    some: { type: ["string", "number"] },
  };
  const tool = { name: "f", parameters: { type: "object", properties } };
  const argument = (name: string, value: string) =>
    `<arg_key>${name}</arg_key><arg_value>${value}</arg_value>`;
  const read = (written: string, userDefined: string[] = []) => {
    const model = testModel({ template: GLM, userDefined });
    const plan = model.form.plan({ messages: USER, tools: [tool] });
    const { content, calls } = readEveryWay(model, plan, `<tool_call>f${written}</tool_call>`);
    assertEquals(content, "");
    return JSON.parse(calls[0].arguments);
  };
  const text = ' {"a": 1}\n</arg_key></tool_call><arg_value>"\n';
  const written = argument("text", text) + argument("unit", "C") + argument("some", "1.5");
  for (const marks of [[], MARKS, ["<arg_value>", "</arg_value>", "<arg_key>", "</arg_key>"]]) {
    assertEquals(read(written, marks), { text, unit: "C", some: 1.5 });
  }
  const list = ["</arg_value>", '"</arg_value>\\'];
  assertEquals(read(argument("list", JSON.stringify(list)) + argument("some", '"1.5"')), {
    list,
    some: "1.5",
  });
  assertEquals(read(argument("text", "1") + argument("some", "one")), { text: "1", some: "one" });
});

Deno.test("chat form: leaves out a parameter whose name the format cannot write, unless the parameter is required", () => {
  const { form } = testModel({ template: GLM });
  for (const name of ["a</arg_key>", ""]) {
    const parameters = { type: "object", properties: { [name]: { type: "string" }, b: { type: "boolean" } } };
    const plan = (more: object, strict = false) => () =>
      form.plan({ messages: USER, tools: [{ name: "f", parameters: { ...parameters, ...more }, strict }] });
    const message = "this model's calls cannot write the parameter's name";
    assertThrows(plan({}, true), ConstraintError, message);
    assertThrows(plan({ required: [name] }), ConstraintError, message);
    const { constraint } = plan({})();
    assertEquals(constraint?.kind === "lark" && constraint.loosened, [
      { tool: "f", keywords: [`/properties/${name}`] },
    ]);
  }
});
