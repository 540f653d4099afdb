import { assert, assertEquals, assertThrows } from "@std/assert";
import { GgufError } from "../gguf/errors.ts";
import type { MetadataValue } from "../gguf/types.ts";
import { bpeMetadata, spmMetadata, tokenizerMetadata } from "./testing.ts";
import { TOKEN_TYPE } from "./token_types.ts";
import { createTokenizer } from "./tokenizer.ts";
import { TooManyTokens } from "./types.ts";

const { CONTROL, NORMAL, UNKNOWN, USER_DEFINED, UNUSED } = TOKEN_TYPE;
const MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello", "Ã ©"];
const HE = 256, LL = 257, HELLO = 259, BLANK_HELLO = 260, E_ACUTE = 261; // ids after the 256 bytes

function bytesOf(text: string): number[] {
  return [...new TextEncoder().encode(text)];
}

Deno.test("tokenizer: byte-level BPE merges by rank and keeps the rest as bytes", () => {
  const tokenizer = createTokenizer(bpeMetadata({ merges: MERGES }));
  assertEquals(tokenizer.encode("hello hello"), [HELLO, BLANK_HELLO]);
  assertEquals(tokenizer.encode("hehe llé!"), [HE, HE, 32, LL, E_ACUTE, 33]);
  assertEquals(tokenizer.encode("中\n"), bytesOf("中\n"));
  assertEquals(tokenizer.encode(""), []);
  assertEquals(tokenizer.vocabSize, 262);
});

Deno.test("tokenizer: the first of duplicate merges counts", () => {
  const tokenizer = createTokenizer(bpeMetadata({ merges: ["a b", "b c", "a b"] }));
  assertEquals(tokenizer.encode("abc"), [256, 99]);
});

Deno.test("tokenizer: takes a whole piece as a token if the pre-tokenizer says so", () => {
  const merges = ["a b", "c d"];
  const extra = [["abcd", NORMAL], ["xyz", CONTROL]] as const;
  const ids = (pre: string, text: string) =>
    createTokenizer(bpeMetadata({ merges, extra: [...extra], values: { "ggml.pre": pre } })).encode(text);
  assertEquals(ids("llama-bpe", "abcd"), [258]);
  assertEquals(ids("qwen2", "abcd"), [256, 257]);
  assertEquals(ids("llama-bpe", "xyz"), bytesOf("xyz"), "a control token came out of plain text");
});

Deno.test("tokenizer: drops bytes that the vocabulary lacks", () => {
  const metadata = tokenizerMetadata({
    "ggml.model": "gpt2",
    "ggml.tokens": ["a", "b", "ab"],
    "ggml.merges": ["a b"],
  });
  assertEquals(createTokenizer(metadata).encode("abxab"), [2, 2]);
});

Deno.test("tokenizer: encodes lone surrogates as U+FFFD", () => {
  const tokenizer = createTokenizer(bpeMetadata({}));
  assertEquals(tokenizer.encode("a\ud800b"), [97, 0xef, 0xbf, 0xbd, 98]);
});

Deno.test("tokenizer: SentencePiece BPE merges by score, the leftmost among equals", () => {
  const tokenizer = createTokenizer(
    spmMetadata({ "▁": -1, a: -1, b: -1, ab: -2, ba: -3, "▁a": -2, aba: -9 }),
  );
  const [blank, a, b, ab, , blankA] = [259, 260, 261, 262, 263, 264];
  assertEquals(tokenizer.encode("ab"), [blankA, b]);
  assertEquals(tokenizer.encode("bab"), [blank, b, ab]);
  assertEquals(tokenizer.encode("b a"), [blank, b, blankA]);
  assertEquals(tokenizer.encode("b aa"), [blank, b, blankA, a]);
});

Deno.test("tokenizer: encodes unknown characters as bytes", () => {
  const tokenizer = createTokenizer(spmMetadata({ "▁": 0 }));
  assertEquals(tokenizer.encode("é中"), [259, ...bytesOf("é中").map((byte) => byte + 3)]);
  assertEquals(tokenizer.decode(tokenizer.encode("é中")), "é中");
});

Deno.test("tokenizer: accepts a vocabulary in which the characters of a token are not tokens themselves", () => {
  const tokenizer = createTokenizer(spmMetadata({ "▁": 0, xy: -1, xyz: -2 }));
  assertEquals(tokenizer.encode("xyzxyx"), [259, 261, 260, 0x78 + 3]);
});

Deno.test("tokenizer: uses the unknown token for each byte when the vocabulary has no byte tokens", () => {
  const metadata = tokenizerMetadata({
    "ggml.model": "llama",
    "ggml.tokens": ["<unk>", "▁", "a"],
    "ggml.token_type": Int32Array.of(UNKNOWN, NORMAL, NORMAL),
    "ggml.scores": new Float32Array(3),
  });
  assertEquals(createTokenizer(metadata).encode("aé"), [1, 2, 0, 0]);
});

Deno.test("tokenizer: finds pieces that span words", () => {
  const tokenizer = createTokenizer(spmMetadata({ "▁": 0, a: 0, "a▁": -1, "a▁a": -2 }));
  assertEquals(tokenizer.encode("a a a"), [259, 261, 262]);
});

Deno.test("tokenizer: adds a blank before the text and after special tokens, unless the file says no", () => {
  const pieces = { "▁": -1, a: -1 };
  const [blank, a] = [259, 260];
  const added = createTokenizer(spmMetadata(pieces));
  assertEquals(added.encode("a</s>a", { parseSpecial: true }), [blank, a, 2, blank, a]);
  assertEquals(added.encode(" a"), [blank, blank, a]);
  const bare = createTokenizer(spmMetadata(pieces, [], { "ggml.add_space_prefix": false }));
  assertEquals(bare.encode("a</s>a", { parseSpecial: true }), [a, 2, a]);
  assertEquals(bare.decode(bare.encode(" a")), " a");
});

Deno.test("tokenizer: adds BOS and EOS as the file says, or by the kind of vocabulary", () => {
  const special: Record<string, MetadataValue> = { "ggml.bos_token_id": 1, "ggml.eos_token_id": 2 };
  const bpe = (values: Record<string, MetadataValue>) =>
    createTokenizer(bpeMetadata({ values: { ...special, ...values } })).encode("a", { addSpecial: true });
  assertEquals(bpe({}), [97]);
  assertEquals(bpe({ "ggml.add_bos_token": true, "ggml.add_eos_token": true }), [1, 97, 2]);
  assertEquals(bpe({ "ggml.pre": "llama-bpe" }), [1, 97]);
  assertEquals(bpe({ "ggml.pre": "llama-bpe", "ggml.add_bos_token": false }), [97]);
  const spm = (values: Record<string, MetadataValue>) =>
    createTokenizer(spmMetadata({ "▁a": 0 }, [], values)).encode("", { addSpecial: true });
  assertEquals(spm({}), [1]);
  assertEquals(spm({ "ggml.add_bos_token": false, "ggml.add_eos_token": true }), [2]);
});

Deno.test("tokenizer: recognises control tokens on request, and user-defined tokens always", () => {
  const extra = [["<|im_end|>", CONTROL], ["<tool>", USER_DEFINED], ["<unused>", UNUSED]] as const;
  const tokenizer = createTokenizer(bpeMetadata({ extra: [...extra] }));
  const text = "a<|im_end|><tool><unused>";
  assertEquals(tokenizer.encode(text, { parseSpecial: true }), [97, 256, 257, ...bytesOf("<unused>")]);
  assertEquals(tokenizer.encode(text), [97, ...bytesOf("<|im_end|>"), 257, ...bytesOf("<unused>")]);
  assert(tokenizer.isControl(256) && !tokenizer.isControl(257) && !tokenizer.isControl(97));
});

Deno.test("tokenizer: a generation ends at EOS, at tokens that keys name, and at known texts", () => {
  const ends = (texts: string[], values: Record<string, MetadataValue> = {}) => {
    const extra = texts.map((text) => [text, CONTROL] as const);
    return [...createTokenizer(bpeMetadata({ extra, values })).endTokens].sort((a, b) => a - b);
  };
  assertEquals(ends([]), []);
  assertEquals(ends(["<|im_start|>", "<|im_end|>", "<|endoftext|>"]), [257, 258]);
  assertEquals(ends([], { "ggml.eos_token_id": 7, "ggml.eot_token_id": 8, "ggml.eom_token_id": 9 }), [
    7,
    8,
    9,
  ]);
  assertEquals(ends(["<|fim_pad|>", "<|fim_prefix|>", "<|file_sep|>"]), [256, 258]);
  assertEquals(ends(["<|end|>", "<|return|>", "<|call|>"]), [257, 258]); // <|end|> only ends a message
  assertEquals(ends(["</s>", "<|tool_response>"]), [257]);
});

Deno.test("tokenizer: finds infill tokens by either key or by their texts", () => {
  const infill = (texts: string[], values: Record<string, MetadataValue> = {}) => {
    const extra = texts.map((text) => [text, NORMAL] as const);
    return createTokenizer(bpeMetadata({ extra, values })).infill;
  };
  const texts = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"];
  const three = { prefix: 256, suffix: 257, middle: 258, repo: undefined, file: undefined };
  assertEquals(infill(texts), three);
  assertEquals(infill([...texts, "<|repo_name|>", "<|file_sep|>"]), { ...three, repo: 259, file: 260 });
  assertEquals(infill(["<SUF>", "<PRE>", "<MID>"]), { ...three, prefix: 257, suffix: 256 });
  assertEquals(infill(texts, { "ggml.fim_pre_token_id": 7 }), { ...three, prefix: 7 });
  const older = { "ggml.prefix_token_id": 7, "ggml.suffix_token_id": 8, "ggml.middle_token_id": 9 };
  assertEquals(infill([], older), { ...three, prefix: 7, suffix: 8, middle: 9 });
  assertEquals([infill([]), infill(texts.slice(1))], [undefined, undefined]);
});

Deno.test("tokenizer: tokens that end a generation are control tokens, whatever their type", () => {
  const tokenizer = createTokenizer(bpeMetadata({ extra: [["<|eot_id|>", NORMAL]] }));
  assert(tokenizer.isControl(256));
  assertEquals(tokenizer.decode([97, 256]), "a");
});

Deno.test("tokenizer: encodes a million equal characters fast in BPE and SentencePiece", () => {
  // A quadratic path would take hours here.
  const merges = ["a a", "aa aa", "aaaa aaaa"];
  const bpe = createTokenizer(bpeMetadata({ merges }));
  assertEquals(bpe.encode("a".repeat(1_000_000)).length, 125_000);
  assertEquals(bpe.encode("b".repeat(1_000_000)).length, 1_000_000);
  const spm = createTokenizer(spmMetadata({ "▁": 0, "▁▁": -1, "▁▁▁▁": -2, a: 0, aa: -3 }));
  assertEquals(spm.encode("a".repeat(1_000_000)).length, 500_001);
  assertEquals(spm.encode(" ".repeat(999_999)).length, 250_000);
});

Deno.test("tokenizer: a cached piece has the same tokens", () => {
  const tokenizer = createTokenizer(bpeMetadata({ merges: MERGES }));
  const texts = Array.from({ length: 70_000 }, (_, i) => `w${i % 40_000}x`);
  for (const text of texts) assertEquals(tokenizer.encode(text).length, text.length);
  assertEquals(tokenizer.encode("hello"), tokenizer.encode("hello"));
});

Deno.test("tokenizer: refuses a text with too many tokens, if possible before splitting it", () => {
  const tokenizers = [
    createTokenizer(bpeMetadata({ merges: MERGES })),
    createTokenizer(spmMetadata({ "▁": 0, a: 0, b: 0, "a▁": -1 })),
  ];
  for (const tokenizer of tokenizers) {
    const text = "a b ".repeat(50);
    const count = tokenizer.encode(text).length;
    assertEquals(tokenizer.encode(text, { atMost: count }).length, count);
    assertEquals(
      assertThrows(() => tokenizer.encode(text, { atMost: count - 1 }), TooManyTokens).atLeast,
      count,
    );
    const soon = assertThrows(() =>
      tokenizer.encode(text.repeat(1000), { atMost: 5 }), TooManyTokens).atLeast;
    assert(soon > 5 && soon <= 1000 * count);
  }
});

/** Invalid vocabularies, each with words that the error message must contain. */
const REFUSED: [what: string, values: Record<string, MetadataValue>, words: string[]][] = [
  ["another model", { "ggml.model": "rwkv" }, [
    "GGUF_VOCAB",
    "tokenizer.ggml.model",
    '"rwkv"',
    "gpt2, llama, bert, t5, plamo2, gemma4",
  ]],
  ["another pre-tokenizer", { "ggml.pre": "nope" }, ["GGUF_VOCAB", "tokenizer.ggml.pre", '"nope"', "qwen2"]],
  ["no tokens", { "ggml.tokens": [] }, ["GGUF_VOCAB", "tokenizer.ggml.tokens"]],
  ["a text twice", { "ggml.tokens": ["a", "b", "a"] }, ["tokenizer.ggml.tokens", '"a" as tokens 0 and 2']],
  ["an endless token", { "ggml.tokens": ["a".repeat(5000)] }, ["tokenizer.ggml.tokens", "5000", "2048"]],
  ["types of another length", { "ggml.token_type": Int32Array.of(1) }, [
    "tokenizer.ggml.token_type",
    "1 elements",
  ]],
  ["an unknown type", { "ggml.token_type": Int32Array.of(1, 1, 9) }, ["tokenizer.ggml.token_type", "9"]],
  ["a byte token of no byte", { "ggml.token_type": Int32Array.of(1, 6, 1) }, ["byte token 1", '"b"']],
  ["merges of unknown tokens", { "ggml.merges": ["a c"] }, ["tokenizer.ggml.merges", '"a c"']],
  ["a merge of one", { "ggml.merges": ["ab"] }, ["tokenizer.ggml.merges", '"ab"']],
  ["an id out of range", { "ggml.eos_token_id": 3 }, ["tokenizer.ggml.eos_token_id", "3", "0 to 2"]],
  ["an id that is no number", { "ggml.bos_token_id": "a" }, ["GGUF_VOCAB", "tokenizer.ggml.bos_token_id"]],
  ["no scores", { "ggml.model": "llama" }, ["tokenizer.ggml.scores", "nothing", "3 scores"]],
  ["too few scores", { "ggml.model": "llama", "ggml.scores": new Float32Array(2) }, ["2 elements", "3"]],
  ["NaN", { "ggml.model": "llama", "ggml.scores": Float32Array.of(0, NaN, 0) }, ["NaN at 1"]],
];

for (const [what, values, words] of REFUSED) {
  Deno.test(`tokenizer: refuses a vocabulary with ${what} and names the key and what is allowed`, () => {
    const good = { "ggml.model": "gpt2", "ggml.tokens": ["a", "b", "ab"], "ggml.merges": ["a b"] };
    createTokenizer(tokenizerMetadata(good));
    const error = assertThrows(() => createTokenizer(tokenizerMetadata({ ...good, ...values })), GgufError);
    for (const word of words) assert(error.message.includes(word), error.message);
  });
}

Deno.test("tokenizer: refuses vocabularies that need too much time or memory", () => {
  const long = Array.from({ length: 2100 }, (_, i) => String(i).padEnd(2040, "x"));
  const controls = bpeMetadata({ extra: long.map((text) => [text, CONTROL] as const) });
  assertThrows(() => createTokenizer(controls), GgufError, "at most 4194304");
  const pieces = spmMetadata(Object.fromEntries(long.map((text) => [text, 0])));
  assertThrows(() => createTokenizer(pieces), GgufError, "at most 268435456");
});

Deno.test("tokenizer: refuses missing merges and tokens", () => {
  const missing = (values: Record<string, MetadataValue>) =>
    assertThrows(() => createTokenizer(tokenizerMetadata(values)), GgufError).message;
  assert(missing({}).includes("tokenizer.ggml.model"));
  assert(missing({ "ggml.model": "gpt2" }).includes("tokenizer.ggml.tokens"));
  assert(missing({ "ggml.model": "gpt2", "ggml.tokens": ["a"] }).includes("tokenizer.ggml.merges"));
});
