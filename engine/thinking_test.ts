import { assertEquals } from "@std/assert";
import { Thinking } from "./thinking.ts";
import type { ThinkingBounds } from "./types.ts";

/** What tokens spell; the empty one is a mark of another kind. */
const WORDS = [
  ..."<think>/ \n",
  "think",
  "</",
  "<th",
  "ink",
  "ink>\n",
  "hm",
  "</th",
  "ink>Hello",
  "a<",
  "</t",
  "",
  "[",
  "]",
];
const spell = (token: number) => new TextEncoder().encode(WORDS[token]);
const tokens = (...words: string[]) => words.map((word) => WORDS.indexOf(word));
const MARKS = { anywhere: false, begin: tokens("<", "think", ">"), end: tokens("</", "think", ">") };

/** What a thinking says of an answer: which tokens it took, and how many it counts in the end. */
function follow(open: boolean, words: string[], more: Partial<ThinkingBounds> = {}): [string, number] {
  const thinking = new Thinking({ ...MARKS, ...more, open, budget: Infinity }, spell);
  const took = tokens(...words).map((token) => {
    thinking.take(token);
    return thinking.took ? "t" : ".";
  });
  return [took.join(""), thinking.tokens];
}

Deno.test("marks that are text are found in whichever tokens they are written", () => {
  assertEquals(follow(true, ["hm", "hm", "</", "think", ">", "hm"]), ["ttttt.", 2]);
  assertEquals(follow(true, ["hm", "</th", "ink>Hello", "hm"]), ["ttt.", 1]);
  assertEquals(follow(true, ["hm", "<", "<", "/", "t", "h", "i", "n", "k", ">", "hm"]), ["tttttttttt.", 2]);
  assertEquals(
    follow(false, ["\n", " ", "<th", "ink>\n", "hm", "</", "think", ">", "hm"])[0].slice(4),
    "tttt.",
  );
  assertEquals(follow(false, ["<", "think", ">", "hm", "</th", "ink>\n", "hm"])[1], 1);
  // What might be the beginning of the end is thinking if it is none.
  assertEquals(follow(true, ["hm", "</t", "hm", "hm"]), ["tttt", 4]);
  assertEquals(follow(true, ["hm", "</t", "h"]), ["ttt", 1]);
});

Deno.test("text that looks like a mark in the midst of an answer begins no thinking, and nothing stands inside a mark", () => {
  assertEquals(follow(false, ["hm", "<", "think", ">", "hm"]), [".....", 0]);
  assertEquals(follow(false, ["a<", "think", ">", "hm"]), ["....", 0]);
  assertEquals(follow(false, ["<th", "ink", ">", "</", "think", ">", "<", "think", ">"])[1], 0);
  assertEquals(follow(true, ["</th", "", "ink", ">", "hm"]), ["ttttt", 5]);
});

Deno.test("a token that begins thinking does so where nothing but blanks comes before, as the answer is read", () => {
  const token = { begin: tokens("["), end: tokens("]") };
  assertEquals(follow(false, ["\n", " ", "[", "hm", "]", "hm"], token), ["..ttt.", 1]);
  assertEquals(follow(false, ["hm", "[", "hm", "]", "hm"], token), [".....", 0]);
  assertEquals(follow(false, ["", "[", "hm"], token), ["...", 0]);
  assertEquals(follow(false, ["[", "]", "[", "hm", "]"], token), ["tt...", 0]);
  assertEquals(follow(true, ["hm", "]", "[", "hm", "]"], token), ["tt...", 1]);
  assertEquals(follow(true, ["]", ..."<think>", "hm"], { end: token.end })[0], "t........");
  // Where messages have channels, some of which are thinking.
  const channels = { ...token, anywhere: true };
  assertEquals(follow(false, ["hm", "[", "hm", "]", "hm", "[", "hm"], channels), [".ttt.tt", 2]);
});

Deno.test("a budget ends thinking whose marks are text, whatever was being written", () => {
  for (const written of [[], ["hm"], ["hm", "</t"], ["hm", "hm", "</th", "ink"]]) {
    const thinking = new Thinking({ ...MARKS, open: true, budget: written.length }, spell);
    for (const token of tokens(...written)) thinking.take(token);
    const forced: number[] = [];
    for (let due; (due = thinking.due) !== undefined; thinking.take(due)) forced.push(due);
    assertEquals(forced, MARKS.end);
    assertEquals(thinking.tokens, written.length);
    thinking.take(tokens("hm")[0]);
    assertEquals([thinking.took, thinking.due], [false, undefined]);
  }
});
