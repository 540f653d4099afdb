import { assert, assertEquals, assertRejects } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { openGguf } from "../gguf/reader.ts";
import { createTokenizer } from "../tokenizer/tokenizer.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import { createGrammars } from "./grammars.ts";
import { type Constraint, ConstraintError, type Grammars, type Matcher } from "./types.ts";

const demo = createTokenizer(
  (await openGguf(fromFileUrl(new URL("../../models/demo.gguf", import.meta.url)))).metadata,
);

/** A generator of numbers from 0 to below 1, from a seed. */
function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function allowed(mask: Uint32Array, size: number): number[] {
  return Array.from({ length: size }, (_, token) => token).filter((t) =>
    (mask[t >> 5] >>> (t & 31) & 1) === 1
  );
}

/** An answer of random tokens among those that may come. */
async function answer(
  grammars: Grammars,
  tokenizer: Tokenizer,
  constraint: Constraint,
  random: () => number,
  most = 400,
): Promise<{ text: string; tokens: number[]; finished: boolean }> {
  const matcher = (await grammars.compile(constraint)).matcher();
  const tokens: number[] = [];
  try {
    while (tokens.length < most) {
      const forced = matcher.forced();
      for (const token of forced) {
        assert(matcher.consume(token), `forced token ${token} is refused`);
        tokens.push(token);
      }
      if (matcher.complete) {
        return { text: tokenizer.decode(tokens, { continuation: true }), tokens, finished: true };
      }
      const [mask] = await grammars.masks([matcher]);
      const choices = allowed(mask, tokenizer.vocabSize);
      assert(choices.length > 0, "nothing may follow");
      const token = choices[Math.floor(random() * choices.length)];
      assert(matcher.consume(token), `token ${token} is in the mask and is refused`);
      if (tokenizer.endTokens.has(token)) {
        return { text: tokenizer.decode(tokens, { continuation: true }), tokens, finished: true };
      }
      tokens.push(token);
    }
    return { text: tokenizer.decode(tokens, { continuation: true }), tokens, finished: false };
  } finally {
    matcher.close();
  }
}

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
    const { text, finished } = await answer(grammars, demo, { kind: "json_schema", schema: person }, random);
    assert(finished, text);
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
