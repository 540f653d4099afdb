import { assert, assertEquals } from "@std/assert";
import { cellsOf, WordWrap } from "./word_wrap.ts";

/** Wraps the text as one part, and checks that every other split into parts shows the same text. */
function wrapped(text: string, columns: number): string {
  const shown = (parts: readonly string[]) => {
    const wrap = new WordWrap(() => columns);
    return parts.map((part) => wrap.add(part)).join("") + wrap.end();
  };
  const whole = shown([text]);
  assertEquals(shown([...text]), whole, "by characters");
  for (let at = 1; at < text.length; at++) assertEquals(shown([text.slice(0, at), text.slice(at)]), whole);
  return whole;
}

Deno.test("word wrap: breaks lines at words and drops the space there", () => {
  assertEquals(wrapped("a small hen sat on the red barn", 10), "a small\nhen sat on\nthe red\nbarn");
  assertEquals(wrapped("one\ntwo\n\nthree", 10), "one\ntwo\n\nthree");
  assertEquals(wrapped("  - an item in a list", 10), "  - an\nitem in a\nlist");
});

Deno.test("word wrap: starts a word that is longer than a line on its own line", () => {
  assertEquals(wrapped("see https://example.org/a/b c d", 10), "see\nhttps://example.org/a/b c d");
});

Deno.test("word wrap: counts two cells for wide characters and breaks between them", () => {
  assertEquals(wrapped("天地玄黃宇宙洪荒", 8), "天地玄黃\n宇宙洪荒");
  assertEquals(wrapped("ab 天地玄", 6), "ab 天\n地玄");
  assertEquals(wrapped("天地玄。黃", 6), "天地\n玄。黃", "no line begins with a full stop");
  assertEquals(wrapped("👩‍👩‍👧‍👦 👩‍👩‍👧‍👦 ❤️ 🇺🇳", 5), "👩‍👩‍👧‍👦 👩‍👩‍👧‍👦\n❤️ 🇺🇳");
  assertEquals(["天", "👩‍👩‍👧‍👦", "🇺🇳", "❤️", "e\u0301", "ｶ", "é"].map(cellsOf), [2, 2, 2, 2, 1, 1, 1]);
});

Deno.test("word wrap: leaves code blocks as they are", () => {
  const code = "```js title=x\nconst hens = [1, 2, 3, 4]; // and more\n```";
  assertEquals(wrapped(`a b c d e f\n${code}\na b c d e f`, 9), `a b c d e\nf\n${code}\na b c d e\nf`);
  const tildes = "~~~~\n~~~\na b c d e f\n~~~~";
  assertEquals(wrapped(`${tildes}\na b c d e f`, 9), `${tildes}\na b c d e\nf`);
  assertEquals(wrapped("```a``` c d e f", 9), "```a``` c\nd e f");
});

Deno.test("word wrap: holds a word back only while it may have to move", () => {
  const wrap = new WordWrap(() => 10);
  const shown = ["hens", " are b", "i", "rds", "\n", "x", "y z"].map((text) => wrap.add(text));
  assertEquals(shown, ["hen", "s are", "\nb", "ird", "s\n", "", "xy"]);
  assertEquals([wrap.end(), wrap.end()], [" z", ""]);
});

Deno.test("word wrap: measures and shows control characters escaped", () => {
  assertEquals(wrapped("ab \x1b]0;t\x07 c", 16), "ab\n\\u001b]0;t\\u0007\nc");
});

Deno.test("word wrap: follows a terminal that is resized", () => {
  let columns = 20;
  const wrap = new WordWrap(() => columns);
  const wide = wrap.add("a small hen sat on ");
  columns = 8;
  assertEquals(wide + wrap.add("the red barn") + wrap.end(), "a small hen sat on\nthe red\nbarn");
});

Deno.test("word wrap: loses nothing and stays within the width for random texts", () => {
  const words = ["a", "hen", "barn,", "天地", "(玄)", "🙂", "\n", "  ", "\t", "`x`", "https://a.b"];
  for (let seed = 1; seed < 200; seed++) {
    let state = seed;
    const random = () => (state = state * 48271 % 2147483647) / 2147483647;
    const text = Array.from({ length: 30 }, () => words[Math.floor(random() * words.length)] + " ").join("");
    const columns = 12 + Math.floor(random() * 20);
    const wrap = new WordWrap(() => columns);
    let shown = "";
    for (let at = 0; at < text.length;) {
      const length = 1 + Math.floor(random() * 6);
      shown += wrap.add(text.slice(at, at += length));
    }
    shown += wrap.end();
    assertEquals(shown.replace(/\s+/g, ""), text.replace(/\s+/g, ""));
    for (const line of shown.split("\n")) {
      // With indentation, a long word may exceed the width.
      if (!/\t|^ /.test(line)) assert(cellsOf(line.trimEnd()) <= columns, JSON.stringify([seed, line]));
    }
  }
});
