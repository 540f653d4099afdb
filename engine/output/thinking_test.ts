import { assertEquals } from "@std/assert";
import { Thinking } from "./thinking.ts";
import type { ThinkingBounds } from "../chat/types.ts";

/** The text of each token. The empty one is a special token without text. */
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

/** Returns which tokens of an answer are thinking, and the number of counted tokens. */
function follow(open: boolean, words: string[], more: Partial<ThinkingBounds> = {}): [string, number] {
  const thinking = new Thinking({ ...MARKS, ...more, open, budget: Infinity }, spell);
  const took = tokens(...words).map((token) => {
    thinking.take(token);
    return thinking.took ? "t" : ".";
  });
  return [took.join(""), thinking.tokens];
}

Deno.test("Thinking: finds text marks however they are split into tokens", () => {
  assertEquals(follow(true, ["hm", "hm", "</", "think", ">", "hm"]), ["ttttt.", 2]);
  assertEquals(follow(true, ["hm", "</th", "ink>Hello", "hm"]), ["ttt.", 1]);
  assertEquals(follow(true, ["hm", "<", "<", "/", "t", "h", "i", "n", "k", ">", "hm"]), ["tttttttttt.", 2]);
  assertEquals(
    follow(false, ["\n", " ", "<th", "ink>\n", "hm", "</", "think", ">", "hm"])[0].slice(4),
    "tttt.",
  );
  assertEquals(follow(false, ["<", "think", ">", "hm", "</th", "ink>\n", "hm"])[1], 1);
  // A possible beginning of the end mark is thinking if the mark is not completed.
  assertEquals(follow(true, ["hm", "</t", "hm", "hm"]), ["tttt", 4]);
  assertEquals(follow(true, ["hm", "</t", "h"]), ["ttt", 1]);
});

Deno.test("Thinking: a begin mark in the middle of an answer, or with other text inside, does not begin thinking", () => {
  assertEquals(follow(false, ["hm", "<", "think", ">", "hm"]), [".....", 0]);
  assertEquals(follow(false, ["a<", "think", ">", "hm"]), ["....", 0]);
  assertEquals(follow(false, ["<th", "ink", ">", "</", "think", ">", "<", "think", ">"])[1], 0);
  assertEquals(follow(true, ["</th", "", "ink", ">", "hm"]), ["ttttt", 5]);
});

Deno.test("Thinking: a begin token begins thinking only after blanks", () => {
  const token = { begin: tokens("["), end: tokens("]") };
  assertEquals(follow(false, ["\n", " ", "[", "hm", "]", "hm"], token), ["..ttt.", 1]);
  assertEquals(follow(false, ["hm", "[", "hm", "]", "hm"], token), [".....", 0]);
  assertEquals(follow(false, ["", "[", "hm"], token), ["...", 0]);
  assertEquals(follow(false, ["[", "]", "[", "hm", "]"], token), ["tt...", 0]);
  assertEquals(follow(true, ["hm", "]", "[", "hm", "]"], token), ["tt...", 1]);
  assertEquals(follow(true, ["]", ..."<think>", "hm"], { end: token.end })[0], "t........");
  // An answer with channels; some channels are thinking.
  const channels = { ...token, anywhere: true };
  assertEquals(follow(false, ["hm", "[", "hm", "]", "hm", "[", "hm"], channels), [".ttt.tt", 2]);
});

Deno.test("Thinking: a budget forces the whole end mark, whatever was being written", () => {
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
