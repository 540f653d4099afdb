import { assert, assertEquals } from "@std/assert";
import { createGrammars } from "../grammars.ts";
import { byteTokenizer, takes } from "../testing.ts";

/* A pattern must match the same characters in JSON as in ECMAScript. */

/**
 * Test characters: ASCII except characters that JSON spells with \u, and some others. DEL has a separate spelling,
 * which answers do not use.
 */
const CHARACTERS = [
  ...Array.from({ length: 127 }, (_, code) => String.fromCharCode(code)),
  ..."é中👍\u2028\xa0",
]
  .filter((character) => !JSON.stringify(character).includes("\\u"));

const CLASSES = [
  ...[
    '[^"]',
    "[^\\\\]",
    '[^<>:"/\\\\|?*]',
    "[^ -~]",
    '[^"\\n]',
    "[^\\n]",
    "[^a-z]",
    '[^\\s"]',
    "[^\\x00]",
    "[^\\x01-!]",
  ],
  ...[
    "[\\s\\S]",
    "[\\D]",
    '[\\W\\n"]',
    "[\\x00-!]",
    "[\\x00-\\x1f]",
    "[\\x00-\\t\\x0b-\\x1f]",
    "[\\t\\n]",
    '[\\\\"]',
    "[\\x01a]",
  ],
  ...[
    ".",
    "\\s",
    "\\S",
    "\\w",
    "\\W",
    "\\d",
    "\\D",
    '"',
    "\\\\",
    "\\n",
    "\\cJ",
    "\\p{Cc}",
    "\\P{L}",
    "\\P{Po}",
    "[\\P{Po}]",
  ],
  ...["(?:\\x01|a)", '(?:[^"]|\\x02)', '(?:\\t|[^\\t"])', "a\\x02*", "\\x02?b"],
];

Deno.test("rustPattern: a class matches the same characters as in ECMAScript when JSON spells them without \\u", async () => {
  const grammars = createGrammars(byteTokenizer);
  for (const one of CLASSES) {
    for (const [before, after] of [["", ""], ["x", "y"]]) {
      const pattern = `^${before}${one}${after}$`;
      const grammar = await grammars.compile({ kind: "json_schema", schema: { type: "string", pattern } });
      const expected = new RegExp(pattern, "u");
      for (const character of CHARACTERS) {
        const value = before + character + after;
        assertEquals(takes(grammar, JSON.stringify(value)), expected.test(value), `${pattern} ${value}`);
      }
      assert(!takes(grammar, `"${before}${after}"`) || expected.test(before + after), pattern);
    }
  }
  grammars.close();
});
