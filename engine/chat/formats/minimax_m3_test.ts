/** MiniMax M3's calls: values without a schema, blanks between tags, and values nested too deeply. */
import { assertEquals } from "@std/assert";
import { put, readEveryWay, testModel, USER } from "../testing.ts";
import { M3_CALLS, showing } from "./testing_templates.ts";
import { M3_TOKEN } from "./testing_writers.ts";

const MODEL = testModel(showing(M3_CALLS, [M3_TOKEN]));
const TOOLS = [{ name: "f", parameters: { type: "object" } }, {
  name: "g",
  parameters: {
    type: "object",
    properties: {
      list: { type: "array", items: { type: "integer" } },
      box: { type: "object", properties: { x: { type: "integer" } } },
    },
  },
}];
const PLAN = MODEL.form.plan({ messages: USER, tools: TOOLS });

/** Returns the text of a call. In `body`, "|" stands for the token. */
const written = (name: string, body: string) =>
  `|<tool_call>\n|<invoke name="${name}">${body}|</invoke>\n|</tool_call>`.replaceAll("|", M3_TOKEN);

const argumentsOf = (text: string) => JSON.parse(readEveryWay(MODEL, PLAN, text).calls[0].arguments);

Deno.test("minimax-m3: reads lists and objects by their tags if a parameter has no schema", () => {
  const body =
    "|<a>|<item>1|</item>|<item>two|</item>|</a>|<b>|<c>true|</c>|<d>|<e>|</e>|</d>|</b>|<f>[1, 2]|</f>";
  const expected = { a: [1, "two"], b: { c: true, d: { e: "" } }, f: [1, 2] };
  assertEquals(argumentsOf(written("f", body)), expected);
});

Deno.test("minimax-m3: reads an object without a schema whose first property is named item", () => {
  const body = "|<a>|<item>1|</item>|<k>|<item>2|</item>|<item>3|</item>|</k>|</a>|<b>4|</b>";
  assertEquals(argumentsOf(written("f", body)), { a: { item: 1, k: [2, 3] }, b: 4 });
  const many = "|<a>|<item>1|</item>|<item>2|</item>|<k>3|</k>|</a>|<b>4|</b>";
  assertEquals(argumentsOf(written("f", many)), { a: { item: [1, 2], k: 3 }, b: 4 });
  const cut = written("f", "|<a>|<item>1|</item>|<item>two").split("two")[0];
  assertEquals(readEveryWay(MODEL, PLAN, cut).calls[0].arguments, '{"a": [1, ');
});

Deno.test("minimax-m3: reads values with a schema if they are tags, JSON or empty, or have blanks between tags", () => {
  const tagged = written(
    "g",
    "\n |<list>\n|<item>1|</item> |<item>2|</item>\n|</list>|<box> |<x>3|</x> |</box>\n",
  );
  assertEquals(argumentsOf(tagged), { list: [1, 2], box: { x: 3 } });
  assertEquals(argumentsOf(written("g", "|<list>[4]|</list>|<box>{}|</box>")), { list: [4], box: {} });
  assertEquals(argumentsOf(written("g", "|<list>|</list>|<box>|</box>")), { list: [], box: {} });
});

Deno.test("minimax-m3: checks the texts of a choice once for all items of a list", () => {
  let checks = 0;
  const choices = Object.assign(["a", "b"], {
    every(check: (text: string) => boolean) {
      checks++;
      return Array.prototype.every.call(this, check);
    },
  });
  const list = { type: "array", items: { type: "string", enum: choices } };
  const tools = [{ name: "g", parameters: { type: "object", properties: { list } } }];
  const plan = MODEL.form.plan({ messages: USER, tools });
  const checked = checks;
  const items = "|<item>a|</item>".repeat(20);
  const { calls } = readEveryWay(MODEL, plan, written("g", `|<list>${items}|</list>`));
  assertEquals(JSON.parse(calls[0].arguments), { list: Array(20).fill("a") });
  assertEquals(checks, checked);
});

Deno.test("minimax-m3: stops reading a call whose values are nested too deeply", () => {
  const reader = PLAN.reader();
  const { tokenizer } = MODEL;
  const text = written("f", "|<a>".repeat(10_000) + "|</a>".repeat(10_000));
  const parts = tokenizer.encode(text, { parseSpecial: true }).flatMap((token) =>
    PLAN.markers.has(token) ? reader.marker(token) : reader.text(tokenizer.decode([token]))
  );
  const { content, calls } = put([...parts, ...reader.end()]);
  assertEquals([content, calls.length], ["", 1]);
  assertEquals(calls[0].arguments, '{"a": '.repeat(65));
});

/** Returns the parts of a call of `g` by a model whose vocabulary lacks the format's token. */
function readAsText(body: string) {
  const reader = testModel(showing(M3_CALLS, [])).form.plan({ messages: USER, tools: TOOLS }).reader();
  return [...reader.text(written("g", body)), ...reader.end()];
}

Deno.test("minimax-m3: parses a JSON value once if its string contains many closing tags", () => {
  const tags = `${M3_TOKEN}</box>`.repeat(500);
  const { parse } = JSON;
  const parsed: string[] = [];
  JSON.parse = (text) => (parsed.push(text), parse(text));
  let parts;
  try {
    parts = readAsText(`|<box>{"x": "${tags}"}|</box>`);
  } finally {
    JSON.parse = parse;
  }
  assertEquals(parsed.filter((text) => text.includes(tags.slice(0, 10))).length, 1);
  assertEquals(JSON.parse(put(parts).calls[0].arguments), { box: { x: tags } });
});

Deno.test("minimax-m3: reads a value as text if it is not JSON and nested too deeply", () => {
  const text = "[".repeat(10_000);
  assertEquals(JSON.parse(put(readAsText(`|<box>${text}|</box>`)).calls[0].arguments), { box: text });
});
