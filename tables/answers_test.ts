import { assertEquals, assertThrows } from "@std/assert";
import { AnswerForm } from "./answers.ts";
import { resultColumns } from "./results.ts";

function answer(content: string, finish = "stop") {
  return {
    choices: [{ message: { role: "assistant", content }, finish_reason: finish }],
    usage: { total_tokens: 9 },
  };
}

Deno.test("answer columns: without a schema there is one text column", () => {
  const form = new AnswerForm();
  assertEquals(form.columns, [{ name: "answer", kind: "text" }]);
  assertEquals(form.read(answer("yes")), ["yes"]);
});

Deno.test("answer columns: the properties of an object schema become typed columns, also optional and referenced ones", () => {
  const form = new AnswerForm({
    $defs: { Label: { enum: ["a", "b"] } },
    type: "object",
    properties: {
      label: { $ref: "#/$defs/Label" },
      count: { anyOf: [{ type: "integer" }, { type: "null" }] },
      share: { type: ["number", "null"] },
      flag: { const: true },
      list: { type: "array" },
      mixed: { type: ["string", "integer"] },
    },
  });
  assertEquals(form.columns.map(({ kind }) => kind), [
    "text",
    "integer",
    "number",
    "boolean",
    "json",
    "json",
  ]);
  const body = answer('{"count":null,"label":"a","share":0.5,"flag":true,"list":[1],"mixed":2}');
  assertEquals(form.read(body), ["a", null, 0.5, true, [1], 2]);
  assertEquals(new AnswerForm({ enum: [1, 2] }).columns, [{ name: "answer", kind: "integer" }]);
});

Deno.test("answer columns: the error says why an answer does not match the schema", () => {
  const form = new AnswerForm({ type: "object", properties: { n: { type: "integer" } } });
  const refused = (content: string, message: string, finish?: string) =>
    assertThrows(() => form.read(answer(content, finish)), Error, message);
  refused('{"n": 1', "was truncated: raise max_tokens", "length");
  refused("no", "is not the JSON that the schema requires");
  refused("[1]", "is not an object");
  refused('{"n":1.5}', '"n" of the answer must be an integer (got 1.5)');
});

Deno.test("answer columns: an answer that does not match the schema fails its row, and its tokens are counted", () => {
  const form = new AnswerForm({ type: "object", properties: { n: { type: "integer" } } });
  const body = answer("{");
  const judged = form.judge({ status: 200, body, engine: "e" });
  assertEquals([judged.status, judged.final, judged.engine, judged.body.usage], [422, true, "e", body.usage]);
  const busy = { status: 503, body: {} };
  assertEquals(form.judge(busy), busy);
});

Deno.test("answer columns: a name that exists already gets a number", () => {
  const names = (taken: string[], prefix?: string) =>
    resultColumns(taken, new AnswerForm(), prefix).map(({ name }) => name);
  assertEquals(names(["text"]), ["answer", "error"]);
  assertEquals(names(["Answer", "answer_2", "ERROR"]), ["answer_3", "error_2"]);
  assertEquals(names(["answer"], "model_"), ["model_answer", "model_error"]);
});
