import { assertEquals } from "@std/assert";
import { SAMPLING_SETTINGS } from "../../engine/mod.ts";
import { FIELDS, problemOf, requestFields } from "./settings.js";

const problem = (name: string, typed: string) =>
  problemOf(FIELDS.find((field) => field.name === name)!, typed);

Deno.test("settings: the texts that a user types become request fields of the right types", () => {
  const schema = { type: "object", properties: { city: { type: "string" } } };
  const weather = { name: "weather", parameters: { type: "object" } };
  assertEquals(
    requestFields({
      temperature: " 0.5 ",
      top_k: "40",
      seed: "7",
      stop: "END\n\nSTOP",
      reasoning_effort: "low",
      response_format: JSON.stringify(schema),
      tools: JSON.stringify([weather, { type: "function", function: weather }]),
      system: "not a field",
      max_tokens: "",
      dry_sequence_breakers: '["\\n"]',
      logit_bias: '{"5":-100}',
    }),
    {
      temperature: 0.5,
      top_k: 40,
      seed: 7,
      dry_sequence_breakers: ["\n"],
      logit_bias: { 5: -100 },
      stop: ["END", "STOP"],
      reasoning_effort: "low",
      response_format: { type: "json_schema", json_schema: { name: "answer", schema } },
      tools: [{ type: "function", function: weather }, { type: "function", function: weather }],
    },
  );
});

Deno.test("settings: reports invalid text and does not send it", () => {
  assertEquals(problem("temperature", "warm"), "must be a number");
  assertEquals(problem("temperature", "3"), "must be 0 to 2");
  assertEquals(problem("top_k", "1.5"), "must be a whole number");
  assertEquals(problem("stop", "a\nb\nc\nd\ne"), "must be at most 4 lines");
  assertEquals(problem("response_format", "{"), "must be JSON");
  assertEquals(problem("response_format", "[]"), "must be a JSON object");
  assertEquals(problem("tools", "{}"), "must be a list, in [ ]");
  assertEquals(problem("tools", '[{"name":"a"},{}]'), "entry 2 has no name");
  assertEquals(problem("dry_sequence_breakers", "{}"), "must be a list, in [ ]");
  assertEquals(problem("logit_bias", "[]"), "must be a JSON object");
  for (const { name } of FIELDS) assertEquals(problem(name, " "), undefined);
  assertEquals(requestFields({ temperature: "3", response_format: "{" }), {});
});

Deno.test("settings: have every sampling setting of the table, with its own label", () => {
  for (const [, { api, label }] of SAMPLING_SETTINGS) {
    assertEquals(FIELDS.filter(({ name }) => name === api.name).map(({ label }) => label), [label]);
  }
});
