import { assert, assertEquals, assertThrows } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { openGguf } from "../gguf/reader.ts";
import { createTokenizer } from "../tokenizer/tokenizer.ts";
import { contains } from "./character_set.ts";
import { type Gbnf, parseGbnf } from "./gbnf.ts";
import { larkOfGbnf } from "./gbnf_to_lark.ts";
import { createGrammars } from "./grammars.ts";
import { randomAnswer, randomFrom } from "./testing.ts";
import { ConstraintError } from "./types.ts";

const demo = fromFileUrl(new URL("../../models/demo.gguf", import.meta.url));
const tokenizer = createTokenizer((await openGguf(demo)).metadata);

const JSON_GRAMMAR = String.raw`
# any JSON
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
`;

const GRAMMARS: readonly { grammar: string; good: readonly string[]; bad: readonly string[] }[] = [
  { grammar: 'root ::= "yes" | "no"', good: ["yes", "no"], bad: ["", "y", "yesno", "maybe"] },
  { grammar: 'root ::= ("a" "b"?){2,3}', good: ["aa", "aba", "ababab", "aaa"], bad: ["a", "abb", "aaaa"] },
  { grammar: 'root ::= [a-z]* "end"', good: ["end", "endend", "xxend"], bad: ["en", "endx", "END"] },
  { grammar: "root ::= [^0-9\\]-]+", good: ["abc", "x y"], bad: ["a1", "]", "-", ""] },
  { grammar: 'root ::= "\\x41\\u00e9\\U0001F600\\t\\"\\\\"', good: ['Aé😀\t"\\'], bad: ["A"] },
  { grammar: "root ::= .{2}", good: ["ab", "é\n", "😀x"], bad: ["a", "abc"] },
  { grammar: 'root ::= x{,2} y{2,}\nx ::= "a"\ny ::= "b"', good: ["bb", "aabbb"], bad: ["aaabb", "ab"] },
  { grammar: 'root ::= "(" root ")" | ""', good: ["", "()", "((()))"], bad: ["(", "())"] },
  { grammar: 'root ::= "a" root "a" | "b"', good: ["b", "aba", "aabaa"], bad: ["aab", "ab"] },
  // A lexer would read all letters as the name.
  {
    grammar: 'root ::= "<" name root? "/" ">"\nname ::= [a-z]+ "x"',
    good: ["<ax/>", "<xxx/>", "<abx<qx/>/>"],
    bad: ["<x/>", "<ab/>"],
  },
  {
    grammar: 'root ::= item | "[" root "]"\nitem ::= [a-z]+ | "if" [0-9]',
    good: ["if", "if7", "[[iffy]]"],
    bad: ["if77", "[if"],
  },
  {
    grammar: 'root ::= e\ne ::= t ("+" e)?\nt ::= [0-9]+ | "(" e ")"',
    good: ["1", "1+22+(3+4)"],
    bad: ["1+", "()", "+1"],
  },
  {
    grammar: 'root ::= s s | "(" root ")"\ns ::= " "* [a-c]* " "*',
    good: ["", "a b", "  ab  c  ", "(a b)"],
    bad: ["a b c"],
  },
  {
    grammar: 'root ::= "a"* root2\nroot2 ::= "ab" | "x" root2 "y"',
    good: ["ab", "aaab", "axaby"],
    bad: ["a", "aa"],
  },
  {
    grammar: JSON_GRAMMAR,
    good: ['{"a": [1, -2.5e3, "x\\n\\u00e9", null], "b":{}}', "{}", '{ "": true}'],
    bad: ["[]", '{"a"}', '{"a": 01}', '{"a": "\\x"}'],
  },
  { grammar: 'root ::= a-b A_1 # names\na-b ::= "1" A_1 ::= "2"', good: ["12"], bad: ["1"] },
  { grammar: 'root ::= (\n"a" |\n"b"\n)\n\n# the end', good: ["a", "b"], bad: ["ab"] },
];

Deno.test("GBNF: accepts exactly the texts of the grammar", async () => {
  const grammars = createGrammars(tokenizer);
  for (const { grammar, good, bad } of GRAMMARS) {
    const compiled = await grammars.compile({ kind: "gbnf", grammar });
    for (const [texts, expected] of [[good, true], [bad, false]] as const) {
      for (const text of texts) {
        const matcher = compiled.matcher();
        const accepted = tokenizer.encode(text).every((token) => matcher.consume(token)) && matcher.mayEnd;
        assertEquals(accepted, expected, `${grammar}\n${JSON.stringify(text)}\n${larkOfGbnf(grammar)}`);
        matcher.close();
      }
    }
  }
  grammars.close();
});

/** Returns all places where an expression may end, by trying every way: slow, but plainly GBNF's definition. */
function ends(
  node: Gbnf,
  rules: ReadonlyMap<string, Gbnf>,
  text: readonly number[],
  at: number,
): Set<number> {
  switch (node.type) {
    case "class":
      return new Set(at < text.length && contains(node.set, text[at]) ? [at + 1] : []);
    case "rule":
      return ends(rules.get(node.name)!, rules, text, at);
    case "choice":
      return new Set(node.options.flatMap((option) => [...ends(option, rules, text, at)]));
    case "sequence":
      return node.items.reduce(
        (places, item) => new Set([...places].flatMap((place) => [...ends(item, rules, text, place)])),
        new Set([at]),
      );
    case "repeat": {
      const found = new Set<number>(node.least === 0 ? [at] : []);
      let places = new Set([at]);
      for (let i = 1; i <= Math.min(node.most, text.length + node.least + 1) && places.size > 0; i++) {
        places = new Set([...places].flatMap((place) => [...ends(node.item, rules, text, place)]));
        if (i >= node.least) places.forEach((place) => found.add(place));
      }
      return found;
    }
    case "token":
      return new Set();
  }
}

Deno.test("GBNF: random constrained answers are texts of the grammar", async () => {
  const grammars = createGrammars(tokenizer);
  const random = randomFrom(11);
  for (const { grammar } of GRAMMARS) {
    const rules = parseGbnf(grammar);
    for (let i = 0; i < 6; i++) {
      const { text, end } = await randomAnswer(grammars, tokenizer, { kind: "gbnf", grammar }, random, 24);
      assert(end !== "failed", `${grammar}\n${text}`);
      if (end !== "stop") continue;
      const codes = [...text].map((character) => character.codePointAt(0)!);
      assert(
        ends(rules.get("root")!, rules, codes, 0).has(codes.length),
        `${grammar}\n${JSON.stringify(text)}`,
      );
    }
  }
  grammars.close();
});

const REFUSED: readonly [grammar: string, message: string][] = [
  ['start ::= "a"', 'no rule named "root"'],
  ['root ::= "a" other', 'rule "root" uses "other", which is not defined'],
  ['root ::= root "a" | "b"', 'rule "root" begins with itself'],
  ['root ::= ws a\nws ::= " "*\na ::= ws root', "begins with itself"],
  ['root ::= "abc', "line 1, column 10: this text is never closed"],
  ['root ::= "a"\nb ::= [a-', "line 2, column 7: this class is never closed"],
  ["root ::= [z-a]", "ends before it begins"],
  ['root ::= ("a"', "line 1, column 10: this parenthesis is never closed"],
  ['root ::= "a")', 'a rule such as `name ::= "text"` must begin here'],
  ['root ::= "\\q"', "an escape must be one of"],
  ['root ::= "a"{3,2}', "second number must not be below its first"],
  ['root ::= "a"{999999999}', "number of repetitions must be at most"],
  ["root ::= <think>", "a token must be named by its number"],
  ['root ::= "a"\nroot ::= "b"', 'the rule "root" is defined twice'],
];

for (const [grammar, message] of REFUSED) {
  Deno.test(`GBNF: refuses an invalid grammar: ${message}`, () => {
    const error = assertThrows(() => larkOfGbnf(grammar), ConstraintError);
    assert(error.message.includes(message), error.message);
  });
}

Deno.test("GBNF: a token is matched by its number, an end token as the end of the answer", async () => {
  const [end] = tokenizer.endTokens;
  const marker = tokenizer.encode("e")[0];
  const grammars = createGrammars(tokenizer, [marker]);
  const matcher = (await grammars.compile({ kind: "gbnf", grammar: `root ::= <[${marker}]> "a" <[${end}]>` }))
    .matcher();
  assertEquals(matcher.forced()[0], marker);
  assert(matcher.consume(marker));
  assert(!matcher.consume(end));
  assert(matcher.consume(tokenizer.encode("a")[0]));
  assert(matcher.consume(end));
  assert(matcher.complete);
  matcher.close();
  grammars.close();
});
