import { assert, assertEquals } from "@std/assert";
import { SAMPLING_SETTINGS } from "../engine/mod.ts";
import type { TestServer } from "./testing_server.ts";

/* Invalid requests: wrong values of each field, and checks of the refusals. */

export function json(fields: Record<string, string>): string {
  return `{${Object.entries(fields).map(([name, value]) => `"${name}":${value}`).join(",")}}`;
}

// JSON texts of values that are not numbers; as texts, because JSON.stringify cannot write 1e999.
export const notNumbers = ['"1"', '"NaN"', '""', "true", "[]", "[1]", "{}", '{"a":1}', "1e999", "-1e999"];
export const notBooleans = ['"true"', '""', "0", "1", "[]", "{}", "[true]"];
export const notTexts = ["1", "true", "[]", "{}", '[""]'];

export function notInt(min: number, max: number): string[] {
  return [
    ...notNumbers,
    "1.5",
    "1e-9",
    String(min - 1),
    String(max + 1),
    "-1e300",
    "1e300",
    "-9223372036854775809",
  ];
}

function notBetween(min: number, max: number): string[] {
  return [...notNumbers, String(min - 0.001), String(max + 0.001), "-1e300", "1e300"];
}

export const many = (count: number, item: string) => `[${new Array(count).fill(item).join(",")}]`;

/** Wrong values of the sampling fields that every generation has. */
export const badSampling: Record<string, string[]> = {
  ...Object.fromEntries(SAMPLING_SETTINGS.map(([, { kind, api: { name, min = 0, max = 0 } }]) => [
    name,
    kind === "whole" ? notInt(min, max) : notBetween(min, max),
  ])),
  dry_sequence_breakers: ["1", '"a"', '[""]', "[1]", "{}", many(65, '"a"'), `["${"b".repeat(41)}"]`],
  mirostat: ["1", "2", "-1", '"0"', "true", "{}"],
  seed: [...notNumbers, "1.5", "1e300", "-1e300", "9007199254740993"],
  stream: notBooleans,
  ignore_eos: notBooleans,
  logit_bias: [
    "1",
    '"x"',
    "[]",
    "[[1,2]]",
    '{"a":1}',
    '{"-1":1}',
    '{"1.5":1}',
    '{"1":"x"}',
    '{"1":101}',
    '{"1":-100.5}',
    '{"1":null}',
    '{"1":1e999}',
    '{"259":1}',
    '{"999999999":1}',
    '{"9999999999999":1}',
    '{"__proto__":1}',
    `{${Array.from({ length: 2000 }, (_, i) => `"${i % 250}${" ".repeat(i)}":1`).join(",")}}`,
  ],
};

export async function refused(
  response: Response,
  what: string,
): Promise<{ code: string | null; param: string | null }> {
  const text = await response.text();
  assert(
    response.status >= 400 && response.status < 500,
    `${what}: ${response.status} ${text.slice(0, 300)}`,
  );
  assert(response.headers.get("x-request-id"), what);
  const body = JSON.parse(text);
  // Ollama's errors have the message as text, and the other fields beside it.
  const error = typeof body.error === "string" ? { type: null, ...body, message: body.error } : body.error;
  for (const key of ["message", "type", "param", "code"]) assert(key in error, `${what}: ${key} is missing`);
  assert(error.message.length > 0 && error.message.length < 1000, `${what}: ${error.message.slice(0, 2000)}`);
  return error;
}

export async function stillServes({ post, errors }: TestServer, what: string): Promise<void> {
  const response = await post("/v1/completions", { model: "demo", prompt: "Hi", max_tokens: 1 });
  assertEquals((await response.json()).choices?.[0].text, "H", what);
  assertEquals(errors, [], what);
}

export function send(
  server: TestServer,
  path: string,
  body: BodyInit,
  headers: HeadersInit = {},
): Promise<Response> {
  return server.post(path, undefined, { body, headers: { "content-type": "application/json", ...headers } });
}

/**
 * Sends bodies with one wrong field, by path and field. Each answer must be a 4xx that names the wrong field. Returns
 * the number of requests.
 */
export async function refuseFields(
  server: TestServer,
  required: Record<string, Record<string, string>>,
  fields: Record<string, Record<string, string[]>>,
): Promise<number> {
  let count = 0;
  for (const [path, table] of Object.entries(fields)) {
    for (const [field, values] of Object.entries(table)) {
      for (const value of values) {
        const what = `${path} ${field}: ${value.slice(0, 80)}`;
        const response = await send(server, path, json({ ...required[path], [field]: value }));
        const error = await refused(response, what);
        assert(error.param?.startsWith(field), `${what}: param ${error.param}`);
        if (count++ % 10 === 0) await stillServes(server, what);
      }
    }
    for (const field of Object.keys(required[path]).filter((name) => name !== "model")) {
      const missing = Object.fromEntries(Object.entries(required[path]).filter(([name]) => name !== field));
      const error = await refused(await send(server, path, json(missing)), `${path} without ${field}`);
      assertEquals({ code: error.code, param: error.param }, {
        code: "missing_required_parameter",
        param: field,
      });
      count++;
    }
  }
  await stillServes(server, "at the end");
  return count;
}

const nested = (open: string, close: string, depth: number) => `${open.repeat(depth)}1${close.repeat(depth)}`;

/** Returns invalid bodies, derived from the fields of a valid request. */
export const hostileBodies = (good: Record<string, string>): Record<string, BodyInit> => ({
  empty: "",
  space: "  ",
  text: "hello",
  null: "null",
  number: "1",
  string: '"demo"',
  array: "[]",
  "array of bodies": `[${json(good)}]`,
  "open object": "{",
  "open string": '{"model":"demo',
  "string that ends in a backslash": '{"model":"\\',
  "trailing comma": '{"model":"demo",}',
  "two values": `${json(good)}${json(good)}`,
  "single quotes": "{'model':'demo'}",
  comment: '{/* */"model":"demo"}',
  NaN: '{"model":"demo","n":NaN}',
  Infinity: '{"model":"demo","n":Infinity}',
  "bad escape": '{"model":"\\x"}',
  "raw control character": '{"model":"\u0001"}',
  "byte order mark of UTF-16": new Uint8Array([0xff, 0xfe, 0x7b, 0, 0x7d, 0]),
  "lone continuation byte": new Uint8Array([...new TextEncoder().encode('{"model":"'), 0x80, 0x22, 0x7d]),
  "overlong slash": new Uint8Array([...new TextEncoder().encode('{"model":"'), 0xc0, 0xaf, 0x22, 0x7d]),
  "surrogate in UTF-8": new Uint8Array([
    ...new TextEncoder().encode('{"model":"'),
    0xed,
    0xa0,
    0x80,
    0x22,
    0x7d,
  ]),
  "cut character": new Uint8Array([...new TextEncoder().encode('{"model":"'), 0xf0, 0x9f, 0x22, 0x7d]),
  zeros: new Uint8Array(1000),
  "gzip magic": new Uint8Array([0x1f, 0x8b, 8, 0, 0, 0, 0, 0]),
  "65 levels": json({ ...good, metadata: nested("[", "]", 64) }),
  "200,000 arrays": nested("[", "]", 200_000),
  "200,000 objects": nested('{"a":', "}", 200_000),
  "200,000 levels in an ignored field": json({ ...good, metadata: nested("[", "]", 200_000) }),
  "a million open brackets": "[".repeat(1_000_000),
  "a million empty arrays": json({ ...good, metadata: many(1_000_000, "[]") }),
  "three million zeros": json({ ...good, metadata: many(3_000_000, "0") }),
  "form data": new URLSearchParams({ model: "demo" }).toString(),
});
