import { assertEquals, assertStringIncludes } from "@std/assert";
import { type LineRules, parseInSlices, parseLine } from "./request.ts";
import { TEST_LIMITS } from "./testing.ts";

const TEST_RULES = { ...TEST_LIMITS, maxLineBytes: 100_000 };

function parse(content: string | Uint8Array, rules: LineRules = TEST_RULES) {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  return parseLine({ index: 3, number: 7, bytes, length: bytes.length }, rules);
}

const GOOD = { custom_id: "a", method: "POST", url: "/v1/completions", body: { prompt: "p" } };

Deno.test("parseLine: returns the request of a valid line", () => {
  assertEquals(parse(JSON.stringify(GOOD)).request, {
    customId: "a",
    url: "/v1/completions",
    body: { prompt: "p" },
  });
  assertEquals(parse(JSON.stringify({ ...GOOD, body: { stream: false }, extra: 1 })).refusal, undefined);
});

Deno.test("parseLine: numbers in the arguments of earlier calls keep their text", () => {
  const messages = '[{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{"n":1.0}}]}]';
  const line = `{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"messages":${messages}}}`;
  assertEquals(JSON.stringify(parse(line).request?.body), `{"messages":${messages}}`);
});

const BAD: [name: string, line: string | Uint8Array, code: string, customId: string | null, words: string][] =
  [
    ["cut JSON", '{"custom_id":"a"', "invalid_json", null, "not valid JSON"],
    ["an array", "[1]", "invalid_json", null, "must be a JSON object (got an array)"],
    ["a number", "12", "invalid_json", null, "(got a number)"],
    ["null", "null", "invalid_json", null, "(got null)"],
    ["two objects", "{} {}", "invalid_json", null, "not valid JSON"],
    ["Latin-1", new Uint8Array([0x7b, 0x22, 0xe9, 0x22, 0x7d]), "invalid_utf8", null, "not valid UTF-8"],
    ["UTF-16", new Uint8Array([0xff, 0xfe, 0x7b, 0x00]), "invalid_utf8", null, "not valid UTF-8"],
    [
      "a surrogate as UTF-8",
      new Uint8Array([0x22, 0xed, 0xa0, 0x80, 0x22]),
      "invalid_utf8",
      null,
      "not valid UTF-8",
    ],
    [
      "no custom_id",
      JSON.stringify({ ...GOOD, custom_id: undefined }),
      "invalid_custom_id",
      null,
      "(got nothing)",
    ],
    [
      "a number as custom_id",
      JSON.stringify({ ...GOOD, custom_id: 4 }),
      "invalid_custom_id",
      null,
      "(got 4)",
    ],
    ["an empty custom_id", JSON.stringify({ ...GOOD, custom_id: "" }), "invalid_custom_id", null, '(got "")'],
    [
      "a long custom_id",
      JSON.stringify({ ...GOOD, custom_id: "x".repeat(513) }),
      "invalid_custom_id",
      null,
      '(got 513: "xxx',
    ],
    [
      "half a character as custom_id",
      '{"custom_id":"\\ud800"}',
      "invalid_custom_id",
      null,
      '(got "\\ud800", which has half of a surrogate pair)',
    ],
    [
      "a second byte order mark",
      `\ufeff${JSON.stringify(GOOD)}`,
      "invalid_json",
      null,
      "not valid JSON: a byte order mark",
    ],
    ["no method", JSON.stringify({ ...GOOD, method: undefined }), "invalid_method", "a", "(got nothing)"],
    ["GET", JSON.stringify({ ...GOOD, method: "GET" }), "invalid_method", "a", '(got "GET")'],
    ["no url", JSON.stringify({ ...GOOD, url: undefined }), "invalid_url", "a", "(got nothing)"],
    ["another url", JSON.stringify({ ...GOOD, url: "/v1/files" }), "invalid_url", "a", '(got "/v1/files")'],
    ["no body", JSON.stringify({ ...GOOD, body: undefined }), "invalid_body", "a", "(got nothing)"],
    ["a text as body", JSON.stringify({ ...GOOD, body: "hi" }), "invalid_body", "a", "(got a string)"],
    ["stream", JSON.stringify({ ...GOOD, body: { stream: true } }), "stream_not_allowed", "a", "stream"],
    [
      "deep nesting",
      `{"custom_id":"a","body":${"[".repeat(90_000)}1${"]".repeat(90_000)}}`,
      "line_too_long",
      null,
      "bytes",
    ],
    [
      "nesting",
      `{"custom_id":"a","body":${"[".repeat(40_000)}1${"]".repeat(40_000)}}`,
      "too_deep",
      "a",
      "64 levels",
    ],
  ];

for (const [name, line, code, customId, words] of BAD) {
  Deno.test(`parseLine: ${name} is refused, and the error names the line`, () => {
    const size = typeof line === "string" ? line.length : line.length;
    const bytes = size > 100_000
      ? undefined
      : typeof line === "string"
      ? new TextEncoder().encode(line)
      : line;
    const { refusal } = parseLine({ index: 3, number: 7, bytes, length: size }, TEST_RULES);
    assertEquals([refusal?.code, refusal?.customId, refusal?.line], [code, customId, 7]);
    assertStringIncludes(refusal!.message, "Line 7: ");
    assertStringIncludes(refusal!.message, words);
  });
}

Deno.test("parseInSlices: parses and refuses large lines with the results of small ones", async () => {
  const image = "QUJD".repeat(100_000);
  const of = (text: string) => {
    const bytes = new TextEncoder().encode(text);
    return { index: 3, number: 7, bytes, length: bytes.length };
  };
  const message = { content: [{ type: "tool_use", id: "a", name: "b", input: { n: 1 } }] };
  const body = { messages: [{ content: [{ image_url: { url: image } }] }, message] };
  const line = { custom_id: "a", method: "POST", url: TEST_RULES.endpoints[0], body };
  const text = JSON.stringify(line).replace('"n":1', '"n":1.0');
  const parsed = await parseInSlices(of(text), TEST_RULES);
  assertEquals(JSON.stringify(parsed.request?.body), text.slice(text.indexOf('"body":') + 7, -1));
  for (const [bad, code] of [[`\ufeff${text}`, "invalid_json"], [text.slice(1), "invalid_json"]]) {
    assertEquals(parseLine(of(bad), TEST_RULES).refusal?.code, code);
  }
  const marks = { ...of(""), bytes: new Uint8Array(100_000).fill(0xef), length: 100_000 };
  assertEquals(parseLine(marks, TEST_RULES).refusal?.code, "invalid_utf8");
  const bytes = of(text).bytes;
  bytes[bytes.length / 2 | 0] = 0xff;
  const invalid = { index: 3, number: 7, bytes, length: bytes.length };
  assertEquals((await parseInSlices(invalid, TEST_RULES)).refusal?.code, "invalid_utf8");
});

Deno.test("parseLine: quotes only a short part of the line", () => {
  const { refusal } = parse(JSON.stringify({ ...GOOD, url: "u".repeat(5000) }));
  assertEquals(refusal!.message.length < 300, true);
});

Deno.test("parseLine: accepts a body as deep as the endpoint accepts, and no deeper", () => {
  const nested = (levels: number) => `${"[".repeat(levels - 1)}${"]".repeat(levels - 1)}`;
  const line = (levels: number) => `${JSON.stringify(GOOD).replace('"p"', nested(levels))}`;
  assertEquals(parse(line(64)).refusal, undefined);
  assertEquals(parse(line(65)).refusal?.code, "too_deep");
});

Deno.test("parseLine: refuses an endpoint that the job does not have, and lists the valid ones", () => {
  const { refusal } = parse(JSON.stringify({ ...GOOD, url: "/v1/embeddings" }));
  assertEquals(refusal?.code, "invalid_url");
  const allowed = `"url" must be one of ${TEST_RULES.endpoints.join(", ")} (got "/v1/embeddings")`;
  assertEquals(refusal!.message, `Line 7: ${allowed}`);
});

Deno.test("parseLine: refuses a line for another endpoint than the batch's", () => {
  const rules = { ...TEST_RULES, endpoint: "/v1/chat/completions" };
  const { refusal } = parse(JSON.stringify(GOOD), rules);
  assertEquals([refusal?.code, refusal?.param], ["endpoint_mismatch", "url"]);
  assertEquals(parse(JSON.stringify({ ...GOOD, url: rules.endpoint }), rules).refusal, undefined);
});
