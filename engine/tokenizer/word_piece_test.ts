import { assertEquals, assertThrows } from "@std/assert";
import { GgufError } from "../gguf/errors.ts";
import type { MetadataValue } from "../gguf/types.ts";
import { createRankTemplate } from "../chat/template/rank_template.ts";
import { tokenizerMetadata, wordPieceMetadata } from "./testing.ts";
import { createTokenizer } from "./tokenizer.ts";
import { TooManyTokens } from "./types.ts";

const [PAD, UNK, CLS, SEP, MASK] = [0, 1, 2, 3, 4];
const PIECES = ["▁play", "▁pla", "ing", "▁e", "▁é", "▁+", "▁中", "▁un", "aff", "able", "▁a", "b", "▁ß", "▁i"];
const id = (piece: string) => 5 + PIECES.indexOf(piece);
const bert = (values?: Record<string, MetadataValue>) => createTokenizer(wordPieceMetadata(PIECES, values));

Deno.test("wordpiece: takes the longest token at each position of a word", () => {
  const tokenizer = bert();
  assertEquals(tokenizer.encode("playing unaffable"), ["▁play", "ing", "▁un", "aff", "able"].map(id));
  assertEquals(tokenizer.encode("  a\tab\n"), ["▁a", "▁a", "b"].map(id));
  assertEquals(tokenizer.encode(""), []);
});

Deno.test("wordpiece: a word that tokens do not cover becomes one unknown token", () => {
  assertEquals(bert().encode("playingx a zzz"), [UNK, id("▁a"), UNK]);
  assertEquals(bert().encode("x".repeat(100_000)), [UNK]);
});

Deno.test("wordpiece: lowercases and removes accents, unless the file says otherwise", () => {
  assertEquals(bert().encode("PLAYING É e\u0301"), ["▁play", "ing", "▁e", "▁e"].map(id));
  assertEquals(bert().encode("İ"), [id("▁i")]);
  const cased = bert({ "ggml.normalizer.lowercase": false });
  assertEquals(cased.encode("PLAY play é"), [UNK, id("▁play"), id("▁é")]);
  const accents = bert({ "ggml.normalizer.strip_accents": false });
  assertEquals(accents.encode("É"), [id("▁é")]);
  const marks = bert({ "ggml.normalizer.lowercase": false, "ggml.normalizer.strip_accents": true });
  assertEquals(marks.encode("é E"), [id("▁e"), UNK]);
});

Deno.test("wordpiece: punctuation, ASCII symbols and ideographs are separate words; other symbols are not", () => {
  assertEquals(bert().encode("a+a中a"), ["▁a", "▁+", "▁a", "▁中", "▁a"].map(id));
  assertEquals(bert().encode("a€"), [UNK]);
});

Deno.test("wordpiece: drops control characters and U+FFFD", () => {
  assertEquals(bert().encode("pl\0ay\u200bi\ufffdng \u{e000}"), ["▁play", "ing"].map(id));
});

Deno.test("wordpiece: puts CLS and SEP around a whole text, and finds control tokens on request only", () => {
  const tokenizer = bert();
  assertEquals(tokenizer.encode("a", { addSpecial: true }), [CLS, id("▁a"), SEP]);
  assertEquals(tokenizer.encode("", { addSpecial: true }), [CLS, SEP]);
  assertEquals(tokenizer.encode("a[MASK]a", { parseSpecial: true }), [id("▁a"), MASK, id("▁a")]);
  assertEquals(tokenizer.encode("a[MASK]a"), [id("▁a"), UNK, UNK, UNK, id("▁a")]);
  assertEquals([tokenizer.bosToken, tokenizer.separatorToken, tokenizer.padToken], [CLS, SEP, PAD]);
  assertThrows(() => tokenizer.encode("a a a", { addSpecial: true, atMost: 4 }), TooManyTokens);
  assertEquals(tokenizer.encode("x".repeat(100), { atMost: 1 }), [UNK]);
});

Deno.test("wordpiece: a pair is CLS, first text, SEP, second text, SEP, whatever the file says about SEP", () => {
  const given: Record<string, boolean>[] = [{}, { "ggml.add_sep_token": true }, {
    "ggml.add_sep_token": false,
  }];
  for (const values of given) {
    const metadata = wordPieceMetadata(PIECES, values);
    const pair = createRankTemplate(metadata, createTokenizer(metadata)).encode("a", "play");
    assertEquals(pair, [CLS, id("▁a"), SEP, id("▁play"), SEP]);
  }
});

Deno.test("wordpiece: decodes to words with blanks between them", () => {
  const tokenizer = bert();
  const tokens = tokenizer.encode("playing a", { addSpecial: true });
  assertEquals(tokenizer.decode(tokens.slice(1, -1)), "playing a");
  const stream = tokenizer.streamDecoder();
  assertEquals([...tokens.slice(1, -1).map((token) => stream.push(token)), stream.end()], [
    "play",
    "ing",
    " a",
    "",
  ]);
});

Deno.test("wordpiece: defaults to BERT's ids of CLS and SEP, and refuses a vocabulary without them", () => {
  const tokens = Array.from({ length: 104 }, (_, i) => `▁w${i}`);
  const usual = createTokenizer(tokenizerMetadata({ "ggml.model": "bert", "ggml.tokens": tokens }));
  assertEquals(usual.encode("w7 x", { addSpecial: true }), [101, 7, 100, 102]);
  for (const [count, key] of [[101, "cls_token_id"], [102, "seperator_token_id"]] as const) {
    const few = tokenizerMetadata({ "ggml.model": "bert", "ggml.tokens": tokens.slice(0, count) });
    assertThrows(() => createTokenizer(few), GgufError, `tokenizer.ggml.${key}`);
  }
});

Deno.test("wordpiece: refuses a vocabulary that needs too much memory", () => {
  const long = Array.from({ length: 4200 }, (_, i) => String(i).padEnd(2040, "x"));
  assertThrows(() => createTokenizer(wordPieceMetadata(long)), GgufError, "at most 8388608");
});
