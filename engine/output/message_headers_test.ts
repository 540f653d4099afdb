import { assertEquals } from "@std/assert";
import { HeaderTracker } from "./message_headers.ts";

/** Tokens of the test: marks, which have no text, then texts. */
const WORDS = ["<channel>", "<message>", "<end>", " to", "final", "hm"];
const MARKS = 3;
const spell = (token: number) => new TextEncoder().encode(token < MARKS ? "" : WORDS[token]);
const token = (word: string) => WORDS.indexOf(word);

function follow(open: boolean, words: string[]): string {
  const headers = new HeaderTracker({
    open,
    begin: ["<channel>", "<end>"].map(token),
    end: token("<message>"),
  }, spell);
  return words.map((word) => {
    headers.take(token(word));
    return headers.inside ? "h" : ".";
  }).join("");
}

Deno.test("message headers: tokens before a message's text belong to its header", () => {
  assertEquals(follow(true, ["<channel>", "final", "<message>", "final", "hm"]), "hh...");
  assertEquals(follow(true, [" to", "hm", "<channel>", "hm", "<message>", "hm"]), "hhhh..");
  assertEquals(
    follow(true, ["<channel>", "<message>", "hm", "<end>", "final", "<message>", "hm"]),
    "h..hh..",
  );
});

Deno.test("message headers: an answer that starts with text, or continues one, has no header", () => {
  assertEquals(follow(true, ["final", " to", "hm"]), "...");
  assertEquals(follow(false, [" to", "final", "<end>", "final", "<message>", "hm"]), "..hh..");
});
