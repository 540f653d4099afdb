import { assertEquals } from "@std/assert";
import { parseRequest } from "./written_numbers.ts";

const INPUT = '{"n":12345678901234567890,"x":1.0,"z":-0}';
const USE = `{"messages":[{"role":"assistant","content":[{"type":"tool_use","input":${INPUT}}]}]}`;
const CALL = `{"messages":[{"content":null,"tool_calls":[{"function":{"arguments":${INPUT}}}]}]}`;

Deno.test("request: numbers in arguments of calls keep their text, in a request and in a line", () => {
  for (const text of [USE, CALL, `{"custom_id":"a","body":${USE}}`, `{"body":${CALL}}`]) {
    assertEquals(JSON.stringify(parseRequest(text)), text);
  }
});

Deno.test("request: all other numbers are plain numbers", () => {
  const head =
    `{"temperature":1.0,"tool_calls":1.50,"input":{"x":1.0},"messages":[{"input":{"x":1.0}},null,1],`;
  const parsed = parseRequest(head + USE.slice(1).replace('"messages"', '"messages2"'));
  assertEquals(parsed, JSON.parse(head + USE.slice(1).replace('"messages"', '"messages2"')));
  for (const text of ['"tool_use": 1.0', "1.0", "null", '[{"body":{"messages":{}}}, "tool_calls", 1.0]']) {
    const json = text.startsWith('"') ? `{${text}}` : text;
    assertEquals(parseRequest(json), JSON.parse(json));
  }
});

Deno.test("request: a text of very many values is parsed without keeping numbers", () => {
  const text = USE.replace('"z":-0', `"z":[${"1.0,".repeat(30_000)}1.0]`);
  assertEquals(parseRequest(text), JSON.parse(text));
});
