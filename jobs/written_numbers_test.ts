import { assertEquals } from "@std/assert";
import { parseRequest } from "./written_numbers.ts";

const INPUT = '{"n":12345678901234567890,"x":1.0}';
const USE = `{"messages":[{"role":"assistant","content":[{"type":"tool_use","input":${INPUT}}]}]}`;
const CALL = `{"messages":[{"content":null,"tool_calls":[{"function":{"arguments":${INPUT}}}]}]}`;

Deno.test("call arguments: numbers keep their digits as written, in a request and in a batch line", () => {
  for (const text of [USE, CALL, `{"custom_id":"a","body":${USE}}`, `{"body":${CALL}}`]) {
    assertEquals(JSON.stringify(parseRequest(text)), text);
    for (
      const number of [
        "-0",
        "1.50",
        "0.0000001",
        "1E5",
        "[-0.0]",
        "9007199254740993",
        "0.1000000000000000055",
      ]
    ) {
      const other = text.replace("1.0", number).replace("12345678901234567890", "7");
      assertEquals(JSON.stringify(parseRequest(other)), other);
    }
  }
});

Deno.test("call arguments: numbers elsewhere in the body become ordinary numbers", () => {
  const head =
    `{"temperature":1.0,"tool_calls":1.50,"input":{"x":1.0},"messages":[{"input":{"x":1.0}},null,1],`;
  const parsed = parseRequest(head + USE.slice(1).replace('"messages"', '"messages2"'));
  assertEquals(parsed, JSON.parse(head + USE.slice(1).replace('"messages"', '"messages2"')));
  for (const text of ['"tool_use": 1.0', "1.0", "null", '[{"body":{"messages":{}}}, "tool_calls", 1.0]']) {
    const json = text.startsWith('"') ? `{${text}}` : text;
    assertEquals(parseRequest(json), JSON.parse(json));
  }
});

Deno.test("call arguments: equal arguments of two calls each keep their own digits, and equal objects elsewhere have no effect", () => {
  const use = (input: string) => `{"type":"tool_use","input":${input}}`;
  const inputs = ['{"x":1}', '{"x":1.0}', '{"x":1.00}', '{"input":{"x":1.0},"a":"}\\"{"}', '{"x":1}', "{}"];
  const tools = '[{"input_schema":{"properties":{"input":{"type":"number"},"arguments":{"minimum":1.0}}}}]';
  for (const head of [`{"tools":${tools},`, "{"]) {
    const content = ["1", "null", '{"input":1.0,"arguments":[1.0]}', ...inputs.map(use)].join();
    const read = parseRequest(`${head}"messages":[{"content":[${content}]}]}`) as Record<string, never>;
    const blocks = read.messages[0]["content"] as { input: unknown }[];
    assertEquals(blocks.slice(3).map(({ input }) => JSON.stringify(input)), inputs);
    assertEquals(blocks[2], { input: 1, arguments: [1] } as never);
    assertEquals(read.tools, head === "{" ? undefined : JSON.parse(tools));
  }
});

Deno.test("call arguments: beyond the limits, numbers become ordinary numbers", () => {
  const text = USE.replace("1.0", `[${"1.0,".repeat(10_000)}1.0]`);
  assertEquals(parseRequest(text), JSON.parse(text));
  const many = `{"messages":[{"content":[${
    Array(5000).fill('{"type":"tool_use","input":{"x":1.0}}').join()
  }]}]}`;
  const written = JSON.stringify(parseRequest(many));
  assertEquals(written.split('{"x":1.0}').length - 1, 2048);
  assertEquals(written.split('{"x":1}').length - 1, 5000 - 2048);
});
