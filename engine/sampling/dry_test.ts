import { assertAlmostEquals, assertEquals } from "@std/assert";
import { Dry } from "./dry.ts";
import { Random } from "./random.ts";
import { withSampling } from "../../testing/sampling.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import type { SamplingParams } from "../api/sampling.ts";

/** Returns a tokenizer whose tokens stand for the texts of `vocabulary`. */
function tokenizerOf(vocabulary: readonly string[]): Tokenizer {
  const bytes = (token: number) => new TextEncoder().encode(vocabulary[token] ?? "");
  return { bytes } as Tokenizer;
}

const LETTERS = tokenizerOf([..."abcdefgh", "\n"]);
const ON: Partial<SamplingParams> = { dryMultiplier: 0.8, dryBase: 1.75, dryAllowedLength: 2 };

function penalties(
  text: string,
  changes: Partial<SamplingParams> = {},
  tokenizer = LETTERS,
): [string, number][] {
  const letters = [..."abcdefgh\n"];
  const tokens = [...text].map((letter) => letters.indexOf(letter));
  const dry = new Dry(withSampling({ ...ON, ...changes }), tokenizer, tokens);
  return [...dry.penalties(Int32Array.from(tokens))].map(([token, value]) => [letters[token], value]);
}

Deno.test("DRY: the logit of a token that extends a repetition is lowered by multiplier * base^(n - allowed)", () => {
  assertEquals(penalties("abcdab"), [["c", 0.8]]); // "ab" occurs again: n = 2
  const [[token, value]] = penalties("abcdabc");
  assertEquals(token, "d");
  assertAlmostEquals(value, 0.8 * 1.75);
  assertEquals(penalties("abcda"), []); // a repetition of "a" alone is allowed
  assertEquals(penalties("abcda", { dryAllowedLength: 1 }), [["b", 0.8]]);
});

Deno.test("DRY: for each continuation, the longest match sets the penalty", () => {
  const got = new Map(penalties("cabdeabcab"));
  assertEquals([...got.keys()].sort(), ["c", "d"]);
  assertAlmostEquals(got.get("d")!, 0.8 * 1.75); // "cab" was followed by d
  assertAlmostEquals(got.get("c")!, 0.8); // "ab", but not "cab", by c
});

Deno.test("DRY: a repetition does not cross a breaker", () => {
  assertEquals(penalties("abcde\nabc\nab"), [["c", 0.8]]); // not "\nab"
  assertEquals(penalties("ab\ncab\n"), []);
  assertEquals(penalties("abcde\nab", { dryBreakers: ["b"] }), []);
});

Deno.test("DRY: a breaker may begin in an earlier token", () => {
  const tokenizer = tokenizerOf(["x", "STO", "P", "y", "z"]);
  const tokens = [0, 1, 2, 3, 4, 0, 1, 2, 3];
  const withBreaker = new Dry(withSampling({ ...ON, dryBreakers: ["STOP"] }), tokenizer, tokens);
  assertEquals([...withBreaker.penalties(Int32Array.from(tokens))], []); // only "y" follows the breaker
  const without = new Dry(withSampling({ ...ON, dryBreakers: [] }), tokenizer, tokens);
  assertEquals([...without.penalties(Int32Array.from(tokens)).keys()], [4]);
});

Deno.test("DRY: searches only the last tokens with dryLastN", () => {
  assertEquals(penalties("abcdab", { dryLastN: 5 }), []);
  assertEquals(penalties("abcdab", { dryLastN: 6 }), [["c", 0.8]]);
  assertEquals(penalties("abcdab", { dryLastN: 0 }), []);
});

Deno.test("DRY: penalties stay finite for long repetitions", () => {
  const [[, value]] = penalties("a".repeat(3000));
  assertEquals(Number.isFinite(value), true);
});

Deno.test("DRY: penalties match the definition on random texts", () => {
  const random = new Random(3);
  for (let run = 0; run < 300; run++) {
    const length = 1 + Math.floor(40 * random.next());
    const text = Array.from({ length }, () => "abc\n"[Math.floor(3.2 * random.next())]).join("");
    assertEquals(new Map(penalties(text)), defined(text), JSON.stringify(text));
  }
});

/** Returns the penalties by the definition, character by character. */
function defined(text: string): Map<string, number> {
  const run = text.length - 1 - text.lastIndexOf("\n");
  const result = new Map<string, number>();
  for (let i = 1; i < text.length; i++) {
    let n = 0;
    while (n < Math.min(i, run) && text[i - 1 - n] === text[text.length - 1 - n]) n++;
    const value = n < 2 ? 0 : Math.min(0.8 * Math.exp((n - 2) * Math.log(1.75)), Number.MAX_SAFE_INTEGER);
    if (value > (result.get(text[i]) ?? 0)) result.set(text[i], value);
  }
  return result;
}

Deno.test("DRY penalties: with() returns the penalties after a draft and changes no state, also for breakers that begin before the draft", () => {
  const tokenizer = tokenizerOf(["x", "STO", "P", "y", "z"]);
  const text = [0, 1, 2, 3, 4, 0, 1];
  const sampling = withSampling({ ...ON, dryBreakers: ["STOP"] });
  const dry = new Dry(sampling, tokenizer, text);
  for (const draft of [[2], [2, 3], [2, 3, 4], [0, 1, 2, 3]]) {
    const all = [...text, ...draft];
    const taken = new Dry(sampling, tokenizer, all).penalties(Int32Array.from(all));
    assertEquals(dry.with(Int32Array.from(draft)).penalties(Int32Array.from(all)), taken);
  }
  dry.push(2);
  assertEquals(dry.penalties(Int32Array.of(...text, 2)), new Map()); // the draft was not accepted
});
