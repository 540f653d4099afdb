import { assertEquals, assertThrows } from "@std/assert";
import { GgufError } from "../gguf/errors.ts";
import type { MetadataValue } from "../gguf/types.ts";
import { characterMap, unigramMetadata } from "./testing.ts";
import { createTokenizer } from "./tokenizer.ts";

const UNK = 2;
const PIECES = { "▁": -3, a: -2, b: -2, ab: -3.5, "▁ab": -8, abc: -5, c: -9, "▁a": -2.5, "１": -4 };
const names = Object.keys(PIECES);
const ids = (...pieces: (keyof typeof PIECES)[]) => pieces.map((piece) => 3 + names.indexOf(piece));
const t5 = (values: Record<string, MetadataValue> = {}) =>
  createTokenizer(unigramMetadata(PIECES, { "ggml.add_space_prefix": true, ...values }));

Deno.test("unigram: takes the most likely split of the text", () => {
  assertEquals(t5().encode("ab"), ids("▁a", "b"));
  assertEquals(t5().encode("aab"), ids("▁a", "ab"));
  assertEquals(t5().encode("babc"), ids("▁", "b", "abc"));
  assertEquals(t5().encode(""), []);
});

Deno.test("unigram: prefers the longer last token among equally likely splits", () => {
  const tokenizer = createTokenizer(unigramMetadata({ x: -1, xx: -2, xxx: -3 }));
  assertEquals(tokenizer.encode("xxx"), [5]);
  assertEquals(tokenizer.encode("xxxx"), [3, 5]);
});

Deno.test("unigram: adjacent unknown characters become one unknown token", () => {
  assertEquals(t5().encode("a中👍b"), [...ids("▁a"), UNK, ...ids("b")]);
  assertEquals(t5().encode("中".repeat(10_000), { atMost: 2 }), [...ids("▁"), UNK]);
  assertEquals(t5().encode("a 中 中"), [...ids("▁a", "▁"), UNK, ...ids("▁"), UNK]);
});

Deno.test("unigram: the file decides whether blanks are merged and whether a blank is added before the text", () => {
  assertEquals(t5().encode(" a  b "), ids("▁", "▁a", "▁", "▁", "b", "▁"));
  assertEquals(t5({ "ggml.add_space_prefix": false }).encode("a b"), ids("a", "▁", "b"));
  const merging = t5({ "ggml.remove_extra_whitespaces": true });
  assertEquals(merging.encode("  a  b "), ids("▁a", "▁", "b"));
  assertEquals(merging.encode("   "), []);
});

Deno.test("unigram: adds EOS after a whole text, and BOS before it if the file says so", () => {
  assertEquals(t5().encode("a", { addSpecial: true }), [...ids("▁a"), 1]);
  const both = { "ggml.add_bos_token": true, "ggml.bos_token_id": 0, "ggml.add_eos_token": false };
  assertEquals(t5(both).encode("a", { addSpecial: true }), [0, ...ids("▁a")]);
});

Deno.test('unigram: finds user-defined tokens before all others, and may use tokens of type "unused"', () => {
  const types = Int32Array.from([3, 3, 2, 1, 4, 5]);
  const tokenizer = createTokenizer(
    unigramMetadata({ "▁": -1, "<x>": -50, b: -1 }, { "ggml.token_type": types }),
  );
  assertEquals(tokenizer.encode("b<x>b"), [5, 4, 5]);
});

Deno.test("unigram: the character map replaces the longest known text", () => {
  const map = characterMap({ A: "a", AB: "b", "ｃ": "c", "\u3000": " ", "\t": "", "１": "1" });
  const tokenizer = t5({ "ggml.precompiled_charsmap": map });
  assertEquals(tokenizer.encode("aA"), t5().encode("aa"));
  assertEquals(tokenizer.encode("aABA"), t5().encode("aba"));
  assertEquals(tokenizer.encode("a\tｃ\u3000b"), t5().encode("ac b"));
  assertEquals(tokenizer.encode("１"), [...ids("▁"), UNK]);
});

Deno.test("unigram: decodes tokens to the original text", () => {
  const tokens = t5().encode("ab a");
  assertEquals(t5().decode(tokens), "ab a");
  const stream = t5().streamDecoder();
  assertEquals([...tokens.map((token) => stream.push(token)), stream.end()].join(""), "ab a");
});

/** Returns a map of these bytes after the length of its array. */
function broken(array: number[], replacements: number[]): Uint8Array {
  const words = Uint32Array.of(4 * array.length, ...array);
  return Uint8Array.of(...new Uint8Array(words.buffer), ...replacements);
}

Deno.test("unigram: refuses a broken character map, or ignores its bad entries", () => {
  const refused = [
    Uint8Array.of(1, 2, 3),
    Uint8Array.of(8, 0, 0, 0, 1),
    Uint8Array.of(0, 0, 0, 0, 1, 0),
    Uint8Array.of(255, 255, 255, 255, 0, 0, 0, 0, 0),
    broken([0], [65]),
    broken([0], [...new Uint8Array(300).fill(65), 0]),
  ];
  for (const map of refused) {
    const create = () => t5({ "ggml.precompiled_charsmap": map });
    assertThrows(create, GgufError, "tokenizer.ggml.precompiled_charsmap");
  }
  // Children beyond the array, and a replacement beyond the others.
  const far = t5({ "ggml.precompiled_charsmap": broken([0xfffffdff], [0]) });
  assertEquals(far.encode("ab"), ids("▁a", "b"));
  const beyond = broken([...new Array(97).fill(0), 0x161, 0x80000fff], [65, 0]);
  t5({ "ggml.precompiled_charsmap": beyond }).encode("ab");
  assertThrows(() => t5({ "ggml.scores": new Float32Array(3) }), GgufError, "tokenizer.ggml.scores");
  assertThrows(() => t5({ "ggml.precompiled_charsmap": ["a"] }), GgufError, "precompiled_charsmap");
});

Deno.test("unigram: a long text takes linear time", () => {
  const merged = t5({ "ggml.remove_extra_whitespaces": true });
  for (const run of ["ab", " ", "中", "abc "]) merged.encode(run.repeat(200_000));
});
