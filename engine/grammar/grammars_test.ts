import { assert, assertEquals, assertRejects } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { openGguf } from "../gguf/reader.ts";
import { createTokenizer } from "../tokenizer/tokenizer.ts";
import { createGrammars } from "./grammars.ts";
import { allowed, randomAnswer, randomFrom } from "./testing.ts";
import { ConstraintError, type Matcher } from "./types.ts";

const demo = createTokenizer(
  (await openGguf(fromFileUrl(new URL("../../models/demo.gguf", import.meta.url)))).metadata,
);

const person = {
  type: "object",
  properties: { name: { type: "string", maxLength: 10 }, age: { type: "integer", minimum: 0, maximum: 99 } },
  required: ["name", "age"],
  additionalProperties: false,
};

Deno.test("random tokens under a schema's masks make JSON that the schema accepts", async () => {
  const grammars = createGrammars(demo);
  const random = randomFrom(1);
  for (let i = 0; i < 20; i++) {
    const { text, end } = await randomAnswer(grammars, demo, { kind: "json_schema", schema: person }, random);
    assertEquals(end, "stop", text);
    const value = JSON.parse(text);
    assertEquals(Object.keys(value), ["name", "age"]);
    assert(Number.isInteger(value.age) && value.age >= 0 && value.age <= 99, text);
    assert([...value.name].length <= 10, text);
  }
  grammars.close();
});

Deno.test("a token that the grammar refuses changes nothing, and an end is taken only where the answer may end", async () => {
  const grammars = createGrammars(demo);
  const matcher: Matcher = (await grammars.compile({ kind: "choice", choices: ["yes", "no"] })).matcher();
  const [end] = demo.endTokens;
  assert(!matcher.consume(end));
  assert(!matcher.consume(demo.encode("x")[0]));
  for (const token of demo.encode("yes")) assert(matcher.consume(token));
  assert(matcher.complete);
  assertEquals(
    allowed((await grammars.masks([matcher]))[0], demo.vocabSize),
    [...demo.endTokens].sort((a, b) => a - b),
  );
  assert(matcher.consume(end));
  matcher.close();
  grammars.close();
});

Deno.test("what cannot be compiled is a ConstraintError", async () => {
  const grammars = createGrammars(demo);
  await assertRejects(() => grammars.compile({ kind: "regex", pattern: "(" }), ConstraintError);
  await assertRejects(
    () => grammars.compile({ kind: "lark", grammar: "start: nothing" }),
    ConstraintError,
    "nothing",
  );
  grammars.close();
});
