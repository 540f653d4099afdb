import { assert, assertEquals, assertThrows } from "@std/assert";
import { codesOfBytes } from "./byte_codes.ts";
import { bpeMetadata, randomIntegers, spmMetadata, tokenizerMetadata } from "./testing.ts";
import { TOKEN_TYPE } from "./token_types.ts";
import { createTokenizer } from "./tokenizer.ts";
import type { DecodeOptions, Tokenizer } from "./types.ts";

const { CONTROL, NORMAL, USER_DEFINED, UNUSED } = TOKEN_TYPE;

function streamed(tokenizer: Tokenizer, tokens: number[], options?: DecodeOptions): string[] {
  const stream = tokenizer.streamDecoder(options);
  return [...tokens.map((token) => stream.push(token)), stream.end()];
}

/** Tokenizer in which token n is byte n. */
const bytes = createTokenizer(bpeMetadata({}));

Deno.test("decoder: a stream returns a character with its last byte, and never part of a character", () => {
  assertEquals(streamed(bytes, [...new TextEncoder().encode("aé中👍b")]), [
    ...["a", "", "é", "", "", "中", "", "", "", "👍", "b"],
    "",
  ]);
});

Deno.test("decoder: a stream returns every character whole, however its bytes are split", () => {
  const utf8 = new TextEncoder();
  // The first and last code point of every UTF-8 length, and samples between them.
  const codes = [0, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xfeff, 0xfffd, 0xffff, 0x10000, 0x10ffff];
  for (let code = 1; code < 0x110000; code += 379) {
    if (code < 0xd800 || code > 0xdfff) codes.push(code);
  }
  for (const code of codes) {
    const character = String.fromCodePoint(code);
    const encoded = [...utf8.encode(character)];
    const parts = streamed(bytes, [...encoded, ...encoded]);
    assertEquals(parts.join(""), character + character);
    assertEquals(parts[encoded.length - 1], character, "the character came late");
    // A truncated character is replaced once by U+FFFD.
    if (encoded.length > 1) {
      assertEquals(streamed(bytes, [...encoded.slice(0, -1), 0x61]).slice(-2), ["\ufffda", ""]);
      assertEquals(streamed(bytes, encoded.slice(0, -1)).at(-1), "\ufffd");
    }
  }
});

Deno.test("decoder: a text that is split into three tokens at any bytes decodes to the same text", () => {
  const text = "é中👍\ufeff¿";
  const encoded = new TextEncoder().encode(text);
  const slices = new Map<string, number>();
  const idOf = (from: number, to: number) => {
    const spelled = codesOfBytes(encoded.subarray(from, to));
    if (!slices.has(spelled)) slices.set(spelled, slices.size);
    return slices.get(spelled)!;
  };
  const cuts: number[][] = [];
  for (let first = 1; first < encoded.length; first++) {
    for (let second = first + 1; second < encoded.length; second++) {
      cuts.push([idOf(0, first), idOf(first, second), idOf(second, encoded.length)]);
    }
  }
  const tokenizer = createTokenizer(tokenizerMetadata({
    "ggml.model": "gpt2",
    "ggml.tokens": [...slices.keys()],
    "ggml.merges": [],
  }));
  for (const tokens of cuts) {
    const parts = streamed(tokenizer, tokens);
    assertEquals(parts.join(""), text);
    assertEquals(tokenizer.decode(tokens), text);
    for (const part of parts) assert(part.isWellFormed() && !part.includes("\ufffd"), "half a character");
  }
});

Deno.test("decoder: streaming any bytes gives the same text as decoding all bytes at once", () => {
  const random = randomIntegers(4);
  // Lead and continuation bytes, overlong forms, surrogates, code points above U+10FFFF, and letters.
  const some = [
    0x41,
    0x80,
    0xbf,
    0xc0,
    0xc2,
    0xe0,
    0xa0,
    0x9f,
    0xed,
    0xef,
    0xbb,
    0xf0,
    0x90,
    0xf4,
    0x8f,
    0xf5,
    0xff,
  ];
  for (let i = 0; i < 20_000; i++) {
    const tokens = Array.from({ length: 1 + random(8) }, () => some[random(some.length)]);
    const whole = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(tokens));
    assertEquals(bytes.decode(tokens), whole);
    assertEquals(streamed(bytes, tokens).join(""), whole, tokens.join(" "));
  }
});

Deno.test("decoder: shows control tokens only on request, and unused tokens never", () => {
  const extra = [["<|im_end|>", CONTROL], ["<tool> é", USER_DEFINED], ["<gap>", UNUSED]] as const;
  const tokenizer = createTokenizer(bpeMetadata({ extra: [...extra] }));
  const tokens = [97, 256, 257, 258];
  assertEquals(tokenizer.decode(tokens), "a<tool> é");
  assertEquals(tokenizer.decode(tokens, { special: true }), "a<|im_end|><tool> é");
  assertEquals(streamed(tokenizer, tokens, { special: true }).join(""), "a<|im_end|><tool> é");
  assertEquals(tokenizer.bytes(256), new Uint8Array(0));
  assertEquals(tokenizer.bytes(257), new TextEncoder().encode("<tool> é"));
});

Deno.test("decoder: returns the bytes that a token represents", () => {
  const tokenizer = createTokenizer(bpeMetadata({ merges: ["Ã ©"], extra: [["Ġ中", NORMAL]] }));
  assertEquals(tokenizer.bytes(0), Uint8Array.of(0));
  assertEquals(tokenizer.bytes(0xc3), Uint8Array.of(0xc3));
  assertEquals(tokenizer.bytes(256), Uint8Array.of(0xc3, 0xa9));
  // A character that represents no byte stands for itself.
  assertEquals(tokenizer.decode([257]), " 中");
});

Deno.test("decoder: removes the blank before the first word, unless the text is a continuation", () => {
  const tokenizer = createTokenizer(spmMetadata({ "▁": 0, "▁a": 0, "▁▁b": 0 }));
  const [blank, blankA, blanksB] = [259, 260, 261];
  for (
    const [tokens, text] of [
      [[blankA, blankA], "a a"],
      [[blanksB], " b"],
      [[blank, blankA], " a"],
      [[3 + 0x20, blankA], " a"],
      [[], ""],
      // The blank is removed only from the first token, as in llama.cpp.
      [[1, blankA], " a"],
    ] as [number[], string][]
  ) {
    assertEquals(tokenizer.decode(tokens), text);
    assertEquals(streamed(tokenizer, tokens).join(""), text);
  }
  assertEquals(tokenizer.decode([blankA], { continuation: true }), " a");
  assertEquals(streamed(tokenizer, [blankA], { continuation: true }), [" a", ""]);
});

Deno.test("decoder: refuses values that are not token ids", () => {
  for (const token of [-1, 256, 1.5, NaN]) {
    assertThrows(() => bytes.decode([token]), RangeError, "allowed 0 to 255");
    assertThrows(() => bytes.bytes(token), RangeError);
  }
});

Deno.test("decoder: decodes any encoded text to itself", () => {
  const random = randomIntegers(5);
  const bpe = createTokenizer(bpeMetadata({ merges: ["a b", "Ġ ab", "Ã ©"] }));
  const spm = createTokenizer(spmMetadata({ "▁": -1, a: -1, b: -1, "▁ab": -2, ab: -3, é: -1 }));
  for (let i = 0; i < 500; i++) {
    const text = Array.from({ length: random(20) }, () => "ab é中\n\t0\u{1f44d}\0"[random(9)]).join("")
      .toWellFormed();
    for (const tokenizer of [bpe, spm]) assertEquals(tokenizer.decode(tokenizer.encode(text)), text);
  }
});
