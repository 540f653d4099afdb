import { assertEquals } from "@std/assert";
import {
  classAt,
  classOf,
  LETTER,
  MARK,
  NUMBER,
  PUNCTUATION,
  runOf,
  runWithout,
  SPACE,
  SYMBOL,
} from "./unicode.ts";

Deno.test("the classes are those of Unicode 15.1, whatever the runtime's version", () => {
  const counts = { LETTER: 0, NUMBER: 0, MARK: 0, PUNCTUATION: 0, SYMBOL: 0, SPACE: 0 };
  for (let code = 0; code < 0x110000; code++) {
    if (code >= 0xd800 && code < 0xe000) continue;
    const flags = classOf(code);
    if (flags & LETTER) counts.LETTER++;
    if (flags & NUMBER) counts.NUMBER++;
    if (flags & MARK) counts.MARK++;
    if (flags & PUNCTUATION) counts.PUNCTUATION++;
    if (flags & SYMBOL) counts.SYMBOL++;
    if (flags & SPACE) counts.SPACE++;
  }
  assertEquals(counts, {
    LETTER: 136726,
    NUMBER: 1831,
    MARK: 2450,
    PUNCTUATION: 842,
    SYMBOL: 7775,
    SPACE: 25,
  });
});

Deno.test("a character has its class wherever it stands", () => {
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
      ["\x85", SPACE],
      ["\u3000", SPACE],
      ["\ufeff", 0],
      ["\u200b", 0],
      ["\0", 0],
      ["\u{10d50}", 0], // a letter since Unicode 16
    ] as const
  ) assertEquals(classAt(text, 0, text.length), flags, JSON.stringify(text));
});

Deno.test("runs end at the first other character, or at the end", () => {
  assertEquals(runOf(LETTER, "a𐐀b1c", 0, 6), 4);
  assertEquals(runOf(LETTER, "a𐐀b1c", 0, 3), 3);
  assertEquals(runOf(NUMBER, "abc", 0, 3), 0);
  assertEquals(runWithout(SPACE | LETTER, "!👍 a", 0, 5), 3);
  assertEquals(classAt("a", 1, 1), 0);
});
