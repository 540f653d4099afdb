import { assert, assertEquals } from "@std/assert";
import { OutputText, StopMatcher } from "./stop.ts";
import { ByteTokenizer, EOS } from "../../testing/engine.ts";

/** Returns the result of the rule on the whole text: the match that ends first, the longest of those. */
function expected(text: string, stops: string[]): { text: string; found: string | undefined } {
  for (let end = 1; end <= text.length; end++) {
    const found = stops.filter((stop) =>
      text.slice(0, end).endsWith(stop)
    ).sort((a, b) => b.length - a.length)[0];
    if (found) return { text: text.slice(0, end - found.length), found };
  }
  return { text, found: undefined };
}

function streamed(pieces: string[], stops: string[]): { text: string; found: string | undefined } {
  const matcher = new StopMatcher(stops);
  let text = "";
  for (const piece of pieces) text += matcher.push(piece);
  text += matcher.end();
  return { text, found: matcher.found };
}

/** Yields all ways to cut a text into pieces. */
function* splits(text: string): Iterable<string[]> {
  for (let mask = 0; mask < 2 ** Math.max(0, text.length - 1); mask++) {
    const pieces: string[] = [];
    let start = 0;
    for (let i = 1; i <= text.length; i++) {
      if (i < text.length && !(mask & (1 << (i - 1)))) continue;
      pieces.push(text.slice(start, i));
      start = i;
    }
    yield pieces;
  }
}

Deno.test("StopMatcher: the result does not depend on how the text is cut", () => {
  const cases: [string, string[]][] = [
    ["hello world", ["o w"]],
    ["hello world", ["xyz"]],
    ["aaaaab", ["aab"]],
    ["abababac", ["ababac"]],
    ["abcd", ["abcd", "bc"]],
    ["abcd", ["bcd", "abcd"]],
    ["abcdabce", ["abce", "dab"]],
    ["one\n\ntwo", ["\n\n"]],
    ["almost sto", ["stop"]],
    ["stop", ["stop"]],
    ["", ["stop"]],
    ["no stops", []],
    ["zażółć", ["żó"]],
  ];
  for (const [text, stops] of cases) {
    const wanted = expected(text, stops);
    for (const pieces of splits(text)) {
      assertEquals(streamed(pieces, stops), wanted, JSON.stringify({ pieces, stops }));
    }
  }
});

Deno.test("StopMatcher: is correct for all short texts and stop strings over two letters", () => {
  const words = (length: number) =>
    Array.from(
      { length: 2 ** length },
      (_, bits) => Array.from({ length }, (_, i) => "ab"[(bits >> i) & 1]).join(""),
    );
  const stops = [1, 2, 3].flatMap(words);
  for (const text of words(7)) {
    for (const first of stops) {
      for (const second of stops) {
        const wanted = expected(text, [first, second]);
        assertEquals(streamed([text], [first, second]), wanted);
        assertEquals(streamed([...text], [first, second]), wanted);
        assertEquals(streamed([text.slice(0, 3), text.slice(3)], [first, second]), wanted);
      }
    }
  }
});

Deno.test("StopMatcher: holds back only text that can still become a stop string", () => {
  const matcher = new StopMatcher(["STOP"]);
  assertEquals(matcher.push("go on"), "go on");
  assertEquals(matcher.push(" S"), " ");
  assertEquals(matcher.push("TO"), "");
  assertEquals(matcher.push("RE S"), "STORE ");
  assertEquals(matcher.end(), "S");
});

Deno.test("StopMatcher: returns no text after a stop string", () => {
  const matcher = new StopMatcher(["."]);
  assertEquals(matcher.push("a.b"), "a");
  assertEquals(matcher.push("c"), "");
  assertEquals(matcher.end(), "");
  assertEquals(matcher.found, ".");
});

Deno.test("StopMatcher: a long list gives the same result, and its length costs nothing per character", () => {
  const stops = Array.from({ length: 1024 }, (_, i) => `${"ab".repeat(i % 5)}-${i}`);
  for (const text of ["abab-ab-1023, ababab-3", "aabababab-4", "ab-6ab-60", "-0", "ababab"]) {
    assertEquals(streamed([...text], stops), expected(text, stops), text);
  }
  const matcher = new StopMatcher(stops);
  const text = "ab".repeat(500_000);
  const start = performance.now();
  for (let i = 0; i < text.length; i += 4) matcher.push(text.slice(i, i + 4));
  // Following every stop string separately takes over ten seconds.
  assert(performance.now() - start < 3000);
});

Deno.test("StopMatcher: a long stop string takes time linear in the text", () => {
  const matcher = new StopMatcher(["a".repeat(10_000) + "b"]);
  let length = 0;
  for (let i = 0; i < 30_000; i++) length += matcher.push("a").length;
  assertEquals(length + matcher.end().length, 30_000);
});

Deno.test("OutputText: finds stop strings across tokens that end inside characters", () => {
  const tokenizer = new ByteTokenizer();
  for (
    const [text, stop, wanted] of [["grün 😀!", "😀", "grün "], ["a😀b", "😁", "a😀b"], ["żółw", "łw", "żó"]]
  ) {
    const output = new OutputText(tokenizer.streamDecoder(), [stop]);
    let streamed = "";
    for (const token of tokenizer.encode(text)) {
      const piece = output.push(token);
      assert(piece.isWellFormed());
      streamed += piece;
    }
    assertEquals(streamed + output.end(), wanted);
    assertEquals(output.stopped, wanted !== text);
  }
});

Deno.test("OutputText: incomplete characters come once, at the end", () => {
  const output = new OutputText(new ByteTokenizer().streamDecoder(), []);
  assertEquals(output.push(0xf0) + output.push(0x9f), "");
  assertEquals(output.push(EOS), "");
  assertEquals(output.end(), "\ufffd");
  const stopping = new OutputText(new ByteTokenizer().streamDecoder(), ["\ufffd"]);
  assertEquals(stopping.push(0xf0) + stopping.end(), "");
  assert(stopping.stopped);
});
