import { assertEquals } from "@std/assert";
import {
  baseOf,
  classAt,
  classOf,
  CONTROL,
  LETTER,
  lowerOf,
  MARK,
  NUMBER,
  PUNCTUATION,
  runOf,
  runWithout,
  SPACE,
  SYMBOL,
} from "./unicode.ts";

Deno.test("unicode: classes are those of Unicode 15.1, whatever the runtime's version", () => {
  const counts = { LETTER: 0, NUMBER: 0, MARK: 0, PUNCTUATION: 0, SYMBOL: 0, SPACE: 0, CONTROL: 0 };
  for (let code = 0; code < 0x110000; code++) {
    if (code >= 0xd800 && code < 0xe000) continue;
    const flags = classOf(code);
    if (flags & LETTER) counts.LETTER++;
    if (flags & NUMBER) counts.NUMBER++;
    if (flags & MARK) counts.MARK++;
    if (flags & PUNCTUATION) counts.PUNCTUATION++;
    if (flags & SYMBOL) counts.SYMBOL++;
    if (flags & SPACE) counts.SPACE++;
    if (flags & CONTROL) counts.CONTROL++;
  }
  assertEquals(counts, {
    LETTER: 136726,
    NUMBER: 1831,
    MARK: 2450,
    PUNCTUATION: 842,
    SYMBOL: 7775,
    SPACE: 25,
    CONTROL: 137703,
  });
});

Deno.test("unicode: returns the class of a character", () => {
  for (
    const [text, flags] of [
      ["a", LETTER],
      ["é", LETTER],
      ["中", LETTER],
      ["𐐀", LETTER],
      ["7", NUMBER],
      ["½", NUMBER],
      ["\u0301", MARK],
      ["!", PUNCTUATION],
      ["，", PUNCTUATION],
      ["$", SYMBOL],
      ["👍", SYMBOL],
      ["\x85", SPACE | CONTROL],
      ["\u3000", SPACE],
      ["\ufeff", CONTROL],
      ["\u200b", CONTROL],
      ["\0", CONTROL],
      ["\u{10d50}", 0], // a letter since Unicode 16
    ] as const
  ) assertEquals(classAt(text, 0, text.length), flags, JSON.stringify(text));
});

Deno.test("unicode: a run ends at the first other character, or at the end", () => {
  assertEquals(runOf(LETTER, "a𐐀b1c", 0, 6), 4);
  assertEquals(runOf(LETTER, "a𐐀b1c", 0, 3), 3);
  assertEquals(runOf(NUMBER, "abc", 0, 3), 0);
  assertEquals(runWithout(SPACE | LETTER, "!👍 a", 0, 5), 3);
  assertEquals(classAt("a", 1, 1), 0);
});

Deno.test("unicode: lower case and accent removal follow Unicode 15.1's simple mappings", () => {
  const mapped = (map: (code: number) => number, text: string) =>
    String.fromCodePoint(...[...text].map((character) => map(character.codePointAt(0)!)));
  assertEquals(mapped(lowerOf, "AÉΣИ𐐀İßǅ1中"), "aéσи𐐨ißǆ1中");
  assertEquals(mapped(baseOf, "éǞが각İ1中"), "eAか\u1100I1中");
  // A capital since Unicode 16, which llama.cpp's tables lack.
  assertEquals(lowerOf(0x1c89), 0x1c89);
});
