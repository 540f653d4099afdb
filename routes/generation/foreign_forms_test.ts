import { assertEquals } from "@std/assert";
import { execute } from "../execute.ts";
import { FakeEngine } from "../testing.ts";
import { withServer } from "../testing_server.ts";

/* A form or call that is requested in another endpoint's or server's field is refused, never ignored. */

const schema = { type: "object" };
const messages = [{ role: "user", content: "Hi" }];
const infill = { prefix: 1, suffix: 2, middle: 3, repo: undefined, file: undefined };

/** Each field, with a value that asks for a form and a value that asks for nothing. */
const WAYS: Record<string, [asks: unknown, nothing: unknown]> = {
  ebnf: ["root ::= [a-z]", null],
  functions: [[{ name: "f" }], []],
  grammar: ['root ::= "a"', ""],
  guided_choice: [["a"], null],
  guided_grammar: ['root ::= "a"', null],
  guided_json: [schema, null],
  guided_json_object: [true, null],
  guided_regex: ["a", null],
  json_schema: [schema, null],
  output_config: [{ format: { type: "json_schema", schema } }, { effort: "low" }],
  output_format: [{ type: "json_schema", schema }, null],
  regex: ["a", null],
  response_format: [{ type: "json_object" }, { type: "text" }],
  structural_tag: ["{}", null],
  structured_outputs: [{ json: schema }, null],
  text: [{ format: { type: "json_object" } }, { format: { type: "text" }, verbosity: "low" }],
  tools: [[{ type: "function", function: { name: "f" } }], []],
};

const OPENAI = [
  ...["response_format", "grammar", "json_schema", "guided_json", "guided_regex", "guided_choice"],
  ...["guided_grammar", "structured_outputs"],
];

/** Batches cannot use this endpoint. */
const COUNT = "/v1/messages/count_tokens";

/** Each endpoint with a valid body and the fields that it supports. */
const ENDPOINTS: Record<string, [body: object, own: string[]]> = {
  "/v1/chat/completions": [{ messages }, [...OPENAI, "tools", "functions"]],
  "/v1/completions": [{ prompt: "Hi" }, OPENAI],
  "/v1/responses": [{ input: "Hi" }, [...OPENAI, "text", "tools"]],
  "/v1/messages": [{ messages, max_tokens: 9 }, ["output_config", "output_format", "tools"]],
  [COUNT]: [{ messages }, ["output_config", "output_format", "tools"]],
  "/completion": [{ prompt: "Hi" }, ["grammar", "json_schema"]],
  "/infill": [{ input_prefix: "a", input_suffix: "b" }, ["grammar", "json_schema"]],
};

Deno.test("foreign forms: an unsupported form field is a 400 that names it, whole, streamed and in batches", async () => {
  await withServer({ infill }, async ({ engine, post }) => {
    for (const [path, [least, own]] of Object.entries(ENDPOINTS)) {
      for (const [field, [asks]] of Object.entries(WAYS)) {
        if (own.includes(field)) continue;
        const body = { model: "demo", ...least, [field]: asks };
        for (const stream of [false, true]) {
          const response = await post(path, { ...body, stream });
          const { error } = await response.json();
          const refused = [response.status, error.code, error.param];
          assertEquals(refused, [400, "unsupported_parameter", field], `${path} ${error.message}`);
        }
        const { status } = await execute(new FakeEngine({ infill }), { url: path, body });
        assertEquals(status, path === COUNT ? 404 : 400, `${path} ${field}`);
      }
    }
    assertEquals(engine.requests, []);
  });
});

Deno.test("foreign forms: accepts values that ask for no form", async () => {
  await withServer({ infill }, async ({ post }) => {
    for (const [path, [least, own]] of Object.entries(ENDPOINTS)) {
      const entries = Object.entries(WAYS).filter(([field]) => !own.includes(field));
      for (const choose of [([, nothing]: [unknown, unknown]) => nothing, () => null]) {
        const fields = entries.map(([field, values]) => [field, choose(values)]);
        const response = await post(path, { model: "demo", ...least, ...Object.fromEntries(fields) });
        assertEquals(response.status, 200, `${path} ${await response.text()}`);
      }
    }
  });
});
