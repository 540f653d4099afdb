import { assertEquals } from "@std/assert";
import { finish } from "../../pacing/pauses.ts";
import { randomIntegers } from "../testing.ts";
import { TokenFinder } from "./token_finder.ts";

function split(tokens: string[], text: string): (string | number)[] {
  const finder = new TokenFinder(new Map(tokens.entries()));
  return finish(finder.split(text)).map(({ start, end, token }) => token ?? text.slice(start, end));
}

Deno.test("token finder: finds tokens and the text between them", () => {
  assertEquals(split(["<a>", "<b>"], "x<a><b> y<a"), ["x", 0, 1, " y<a"]);
  assertEquals(split(["<a>"], "<a>"), [0]);
  assertEquals(split(["<a>"], ""), []);
  assertEquals(split([], "text"), ["text"]);
  assertEquals(split(["", "b"], "abc"), ["a", 1, "c"]);
  assertEquals(split(["中", "👍"], "a中👍👎"), ["a", 0, 1, "👎"]);
});

Deno.test("token finder: the longest of overlapping tokens wins, even if a shorter one begins first", () => {
  assertEquals(split(["ab", "bcd"], "abcd"), ["a", 1]);
  assertEquals(split(["a", "aa", "aaa"], "aaaaa"), [2, 1]);
  assertEquals(split(["ab", "ba"], "aba"), [0, "a"]); // lower id among equals
  assertEquals(split(["ba", "ab"], "aba"), ["a", 0]);
  assertEquals(split(["aa"], "aaa"), [0, "a"]); // leftmost among equals
});

/** Returns the text split by one token after another, longest first, each time in the remaining text. */
function oneByOne(tokens: string[], text: string): (string | number)[] {
  const utf8 = (id: number) => new TextEncoder().encode(tokens[id]).length;
  const order = tokens.map((_, id) => id).sort((a, b) => utf8(b) - utf8(a) || a - b);
  let fragments: (string | number)[] = [text];
  for (const id of order) {
    fragments = fragments.flatMap((fragment) => {
      if (typeof fragment === "number") return [fragment];
      return fragment.split(tokens[id]).flatMap((part, i) => i === 0 ? [part] : [id, part]);
    }).filter((fragment) => fragment !== "");
  }
  return fragments;
}

Deno.test("token finder: equals a search token by token, for random tokens and texts", () => {
  const random = randomIntegers(2);
  const word = (length: number) => Array.from({ length }, () => "ab中"[random(3)]).join("");
  for (let i = 0; i < 2000; i++) {
    const tokens = [...new Set(Array.from({ length: 1 + random(6) }, () => word(1 + random(4))))];
    const text = word(random(24));
    assertEquals(split(tokens, text), oneByOne(tokens, text), JSON.stringify({ tokens, text }));
  }
});

Deno.test("token finder: long runs of overlapping tokens take linear time", () => {
  const spaces = Array.from({ length: 30 }, (_, i) => " ".repeat(i + 2));
  const finder = new TokenFinder(new Map(spaces.entries()));
  assertEquals(finish(finder.split(" ".repeat(310_003))).length, 10_001);
});

Deno.test("token finder: finds every start of a token, overlapping or not", () => {
  const finder = new TokenFinder(new Map([[0, "aba"], [1, "b"]]));
  assertEquals(finish(finder.starts("ababa b")), [0, 1, 2, 3, 6]);
  assertEquals(finish(finder.split("aba")).length, 1);
});
