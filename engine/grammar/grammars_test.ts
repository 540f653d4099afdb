import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { openGguf } from "../gguf/reader.ts";
import { bpeMetadata } from "../tokenizer/testing.ts";
import { TOKEN_TYPE } from "../tokenizer/token_types.ts";
import { createTokenizer } from "../tokenizer/tokenizer.ts";
import { createGrammars } from "./grammars.ts";
import { allowed, randomAnswer, randomFrom } from "./testing.ts";
import { type Constraint, ConstraintError, type Matcher } from "./types.ts";

const demo = createTokenizer(
  (await openGguf(fromFileUrl(new URL("../../models/demo.gguf", import.meta.url)))).metadata,
);

const person = {
  type: "object",
  properties: { name: { type: "string", maxLength: 10 }, age: { type: "integer", minimum: 0, maximum: 99 } },
  required: ["name", "age"],
  additionalProperties: false,
};

Deno.test("grammars: random tokens under a schema's masks form JSON that the schema accepts", async () => {
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

Deno.test("grammars: an answer never drops characters that JSON can only spell with \\u", async () => {
  const grammars = createGrammars(demo);
  const random = randomFrom(4);
  const patterns = [
    "^(a|\\x01)b$",
    "^a(\\x01|\\x7f|c)b?$",
    "^a[\\x01\\n]b$",
    "^a\\x02*b$",
    "^[^ -\\u{10ffff}]b$",
  ];
  for (const pattern of patterns) {
    const constraint: Constraint = { kind: "json_schema", schema: { type: "string", pattern } };
    const { text, end } = await randomAnswer(grammars, demo, constraint, random);
    assertEquals(end, "stop", text);
    assertMatch(JSON.parse(text), new RegExp(pattern, "u"));
  }
  for (const pattern of ["^a\\x01b$", "^a[\\x7f]b$", "^x*\\vy$", "^[\\x01-\\x03]b$"]) {
    const constraint: Constraint = { kind: "json_schema", schema: { type: "string", pattern } };
    await assertRejects(() => grammars.compile(constraint), ConstraintError, "empty");
  }
  const some = await randomAnswer(
    grammars,
    demo,
    { kind: "json_schema", schema: { enum: ["x\x01", "y"] } },
    random,
  );
  assertEquals(some.text, '"y"');
  grammars.close();
});

Deno.test("matcher: a refused token changes nothing, and an end token is taken only where the answer may end", async () => {
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

Deno.test("grammars: draft masks equal the masks after taking the drafts, and leave the matcher unchanged", async () => {
  const grammars = createGrammars(demo);
  const random = randomFrom(9);
  const schema = { type: "object", properties: { said: { type: "string" }, n: { type: "integer" } } };
  const constraints: Constraint[] = [
    { kind: "json_schema", schema },
    { kind: "regex", pattern: "(ab|b[a-z ]*;)+" },
    { kind: "gbnf", grammar: 'root ::= "(" root ")" | [a-z]+ root | "."' },
  ];
  for (const constraint of constraints) {
    const grammar = await grammars.compile(constraint);
    const [matcher, plain] = [grammar.matcher(), grammar.matcher()];
    const taken: number[] = [];
    for (let round = 0; round < 12 && !matcher.complete; round++) {
      const drafted = grammar.matcher();
      // The tokens that a third matcher takes at random, followed by a token that is not allowed.
      const draft: number[] = [];
      const wanted: number[][] = [];
      for (const token of taken) assert(drafted.consume(token));
      while (draft.length < 5 && !drafted.complete) {
        const choice = allowed((await grammars.masks([drafted]))[0], demo.vocabSize);
        const token = choice[Math.floor(random() * choice.length)];
        assert(drafted.consume(token));
        draft.push(token);
        wanted.push(allowed((await grammars.masks([drafted]))[0], demo.vocabSize));
      }
      drafted.close();
      const wrong = demo.encode("\u0001")[0];
      const masks = await grammars.draftMasks(matcher, Int32Array.of(...draft, wrong, draft[0]));
      assertEquals(masks.map((mask) => allowed(mask, demo.vocabSize)), [...wanted, [], []]);
      const [mine, others] = await grammars.masks([matcher, plain]);
      assertEquals(mine, others);
      for (const one of [matcher, plain]) assert(one.consume(draft[0]));
      taken.push(draft[0]);
      assertEquals(matcher.forced(), plain.forced());
    }
    matcher.close();
    plain.close();
  }
  grammars.close();
});

Deno.test("grammars: compile throws ConstraintError for an invalid constraint", async () => {
  const grammars = createGrammars(demo);
  await assertRejects(() => grammars.compile({ kind: "regex", pattern: "(" }), ConstraintError);
  await assertRejects(
    () => grammars.compile({ kind: "lark", grammar: "start: nothing" }),
    ConstraintError,
    "nothing",
  );
  grammars.close();
});

Deno.test("grammars: a refusal is one line about the constraint as it was sent", async () => {
  const grammars = createGrammars(demo);
  const refusals: [Constraint, string][] = [
    [{ kind: "regex", pattern: "[unclosed" }, 'Invalid regex "[unclosed": unclosed character class'],
    [
      { kind: "regex", pattern: "(?=a)b" },
      'Invalid regex "(?=a)b": look-around, including look-ahead and look-behind, is not supported',
    ],
  ];
  for (const [constraint, message] of refusals) {
    const error = await assertRejects(() => grammars.compile(constraint), ConstraintError);
    assertEquals(error.message, message);
  }
  const lark = { kind: "lark", grammar: "start: a\na: nothing_here" } as const;
  const { message } = await assertRejects(() => grammars.compile(lark), ConstraintError);
  assert(/nothing_here/.test(message) && !/[\n\t]| {2}/.test(message), message);
  grammars.close();
});

Deno.test("grammars: a constraint is compiled once, and an evicted grammar still gives matchers", async () => {
  const grammars = createGrammars(demo, [], { cacheBytes: 1 });
  const constraint = { kind: "choice", choices: ["one", "two"] } as const;
  const [first, second] = await Promise.all([
    grammars.compile(constraint),
    grammars.compile({ ...constraint }),
  ]);
  assert(first === second);
  // Evicts the first grammar.
  await grammars.compile({ kind: "choice", choices: ["three"] });
  assert(await grammars.compile(constraint) !== first);
  const matcher = first.matcher();
  for (const token of demo.encode("two")) assert(matcher.consume(token));
  assert(matcher.complete);
  matcher.close();
  matcher.close();
  grammars.close();
});

Deno.test("grammars: a marker is never text, but its text may be written with other tokens", async () => {
  const mark = "<mark>";
  const tokenizer = createTokenizer(
    bpeMetadata({ extra: [[mark, TOKEN_TYPE.USER_DEFINED], ["<end>", TOKEN_TYPE.CONTROL]] }),
  );
  const [marker] = tokenizer.encode(mark);
  assertEquals(tokenizer.encode(mark).length, 1);
  for (const [markers, first] of [[[], marker], [[marker], "<".charCodeAt(0)]] as const) {
    const grammars = createGrammars(tokenizer, markers);
    const matcher = (await grammars.compile({ kind: "regex", pattern: "<mark>[a-z]" })).matcher();
    const [mask] = await grammars.masks([matcher]);
    assertEquals(allowed(mask, tokenizer.vocabSize).includes(marker), markers.length === 0);
    const forced = matcher.forced();
    if (forced.length > 0) assertEquals(forced[0], first);
    for (const byte of new TextEncoder().encode(`${mark}x`)) assert(matcher.consume(byte));
    assert(matcher.complete);
    matcher.close();
    const marked = (await grammars.compile({ kind: "lark", grammar: `start: <[${marker}]> "a"` })).matcher();
    assertEquals(marked.forced(), [marker, "a".charCodeAt(0)]);
    marked.close();
    grammars.close();
  }
});

Deno.test("matcher: nothing may follow once a pattern's lexer exceeds its limit", async () => {
  const grammars = createGrammars(demo);
  const random = randomFrom(4);
  // Each of the last 24 characters matters: each one doubles the states.
  const grammar = await grammars.compile({ kind: "regex", pattern: "(a|b)*a(a|b){24}" });
  const [a, b] = [demo.encode("a")[0], demo.encode("b")[0]];
  const before = Deno.memoryUsage().rss;
  const matcher = grammar.matcher();
  let taken = 0;
  while (taken < 100_000 && matcher.consume(random() < 0.5 ? a : b)) taken++;
  assert(taken < 100_000, "no limit was reached");
  assertEquals(allowed((await grammars.masks([matcher]))[0], demo.vocabSize), []);
  assertEquals([matcher.forced(), matcher.complete, matcher.mayEnd], [[], false, false]);
  matcher.close();
  assert(Deno.memoryUsage().rss - before < 128 << 20);
  // A new answer is not affected by the earlier failure.
  const other = grammar.matcher();
  assert(other.consume(a));
  other.close();
  grammars.close();
});

Deno.test("matcher: an ambiguous grammar fails with a reason before its tokens stall the thread", async () => {
  const grammars = createGrammars(demo);
  const grammar = await grammars.compile({ kind: "lark", grammar: "start: s\ns: /[a-z]/ | s s" });
  const [a] = demo.encode("a");
  const matcher = grammar.matcher();
  let taken = 0;
  while (taken < 400 && matcher.consume(a)) taken++;
  assert(taken >= 20 && taken < 400, `${taken} tokens were taken`);
  assertMatch(
    matcher.failure ?? "",
    /^parsing its tokens took more than 2 ms each .*; make the grammar unambiguous/,
  );
  assertEquals(allowed((await grammars.masks([matcher]))[0], demo.vocabSize), []);
  assertEquals([matcher.forced(), matcher.complete, matcher.mayEnd], [[], false, false]);
  matcher.close();
  const other = grammar.matcher();
  assert(other.consume(a));
  assertEquals(other.failure, undefined);
  other.close();
  grammars.close();
});

Deno.test("grammars: compile fails without file descriptors, and works when descriptors are free again", async () => {
  const code = `
    import { describeModel } from "./engine/load/describe.ts";
    import { createGrammars } from "./engine/grammar/grammars.ts";
    const grammars = createGrammars((await describeModel({ model: "models/demo.gguf" })).tokenizer);
    const compile = () => grammars.compile({ kind: "regex", pattern: "a+" }).then(() => "compiled", String);
    const held = [];
    try { for (;;) held.push(Deno.openSync("/dev/null")); } catch { /* none is left */ }
    const without = await compile();
    for (const file of held) file.close();
    console.log([without, await compile()].join("\\n"));`;
  const { stdout, stderr } = await new Deno.Command("sh", {
    args: ["-c", `ulimit -n 128; exec "$0" eval -q '${code}'`, Deno.execPath()],
    env: { NO_COLOR: "1" },
  }).output();
  const said = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
  const [, without, after] = said.match(/^([^]*)\n(.*)\n$/)!;
  assertMatch(
    without,
    /^LibraryNotFound: Cannot load the grammar library[^]*too many files are open[^]*raise the limit \(ulimit -n\)$/,
  );
  assertEquals(after, "compiled");
});
