import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { tokenizerOf, WORDS } from "../../testing/checkpoints.ts";
import { GgufBuilder } from "../../engine/gguf/testing.ts";
import { parseGguf } from "../../engine/gguf/reader.ts";
import type { Tokenizer } from "../../engine/tokenizer/types.ts";
import { createTokenizer } from "../../engine/tokenizer/tokenizer.ts";
import { ConvertError } from "../errors.ts";
import { Fields } from "../checkpoint/json.ts";
import type { Entry } from "../write/metadata.ts";
import { endEntries } from "./special_tokens.ts";
import { tokenizerEntries } from "./tokenizer.ts";

const { tokenizer: BPE, tokenizerConfig: CONFIG } = tokenizerOf("qwen3");
const MODEL = BPE.model as Record<string, unknown>;

function entriesOf(tokenizer: object, config: object = CONFIG, rows = 320): Map<string, Entry["value"]> {
  const entries = tokenizerEntries(Fields.of("tokenizer.json", tokenizer), Fields.of("config", config), rows);
  return new Map(entries.map(({ key, value }) => [key.replace("tokenizer.ggml.", ""), value]));
}

/** Returns the engine's tokenizer for the converted keys of a file of that architecture. */
function engineTokenizer(tokenizer: object, config: object, rows: number, architecture?: string): Tokenizer {
  const builder = new GgufBuilder();
  const [fields, settings] = [Fields.of("tokenizer.json", tokenizer), Fields.of("config", config)];
  for (const { key, type, value } of tokenizerEntries(fields, settings, rows, architecture)) {
    if (typeof value === "object") builder.array(key, type, value);
    else builder.set(key, type, value);
  }
  return createTokenizer(parseGguf(builder.build().bytes).metadata);
}

Deno.test("tokenizer: keeps tokens, types and special ids, and fills up with unused tokens", () => {
  const entries = entriesOf(BPE);
  const tokens = entries.get("tokens") as string[];
  const types = entries.get("token_type") as number[];
  assertEquals(tokens.length, 320);
  assertEquals(tokens.slice(256, 263), [
    "th",
    "the",
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "[PAD262]",
  ]);
  assertEquals(types.slice(255, 263), [1, 1, 1, 3, 3, 3, 4, 5]);
  assertEquals(entries.get("merges"), ["t h", "th e"]);
  assertEquals([entries.get("eos_token_id"), entries.get("padding_token_id"), entries.has("bos_token_id")], [
    260,
    258,
    false,
  ]);
  assertEquals([entries.get("add_bos_token"), entries.has("add_eos_token")], [false, false]);
});

const split = (...expressions: string[]) => ({
  type: "Sequence",
  pretokenizers: [
    ...expressions.map((Regex) => {
      return { type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false };
    }),
    { type: "ByteLevel", use_regex: false },
  ],
});
const DEEPSEEK3 = [
  "\\p{N}{1,3}",
  "[一-龥぀-ゟ゠-ヿ]+",
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
];
const withBreaks = (expression: string) => expression.replaceAll("\\r", "\r").replaceAll("\\n", "\n");
const LING =
  "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
const withDigits = (expressions: readonly string[], individual_digits = true) => {
  const { type, pretokenizers } = split(...expressions);
  const digits: object = { type: "Digits", individual_digits };
  return { type, pretokenizers: [...pretokenizers.slice(0, -1), digits, pretokenizers.at(-1)] };
};
const IDEOGRAPHS = "[一-龥ࠀ-一가-퟿]+";
const DEEPSEEK_LLM = [
  "[\r\n]",
  "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
  "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
  "\\s+$",
  IDEOGRAPHS,
];
const DEEPSEEK_CODER = ["[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", IDEOGRAPHS];
const CUTS: [what: string, preTokenizer: object, ignoreMerges: boolean, name: string][] = [
  ["Qwen3's", split(WORDS.qwen3), false, "qwen2"],
  ["Qwen3.5's", split(WORDS.qwen3_5), false, "qwen35"],
  ["Llama 3's", split(WORDS.llama), true, "llama-bpe"],
  ["Llama 3's without whole words", split(WORDS.llama), false, "smaug-bpe"],
  ["o200k's", split(WORDS.o200k), true, "gpt-4o"],
  ["Tekken's", split(WORDS.tekken), true, "tekken"],
  ["Seed's", split(WORDS.seed), false, "seed-coder"],
  ["DeepSeek's", split(...DEEPSEEK3), false, "deepseek-v3"],
  ["DeepSeek's with line breaks as themselves", split(...DEEPSEEK3.map(withBreaks)), false, "deepseek-v3"],
  ["DeepSeek's first", withDigits(DEEPSEEK_LLM), false, "deepseek-llm"],
  ["DeepSeek-Coder's", withDigits(DEEPSEEK_CODER), false, "deepseek-coder"],
  ["Ling's", split(LING), false, "bailingmoe2"],
  ["GPT-2's", { type: "ByteLevel", add_prefix_space: false, use_regex: true }, false, "gpt-2"],
  [
    "SmolLM's",
    {
      type: "Sequence",
      pretokenizers: [{ type: "Digits", individual_digits: true }, {
        type: "ByteLevel",
        add_prefix_space: false,
      }],
    },
    false,
    "smollm",
  ],
];
for (const [what, preTokenizer, ignoreMerges, name] of CUTS) {
  Deno.test(`tokenizer: names ${what} pre-tokenizer ${name}`, () => {
    const model = { ...MODEL, ignore_merges: ignoreMerges };
    assertEquals(entriesOf({ ...BPE, pre_tokenizer: preTokenizer, model }).get("pre"), name);
  });
}

Deno.test("tokenizer: GLM's pre-tokenizer with whole words gets its own name, without a BOS", () => {
  const tokenizer = {
    ...BPE,
    pre_tokenizer: split(WORDS.llama),
    // No merge builds "xyz".
    model: { ...MODEL, ignore_merges: true, vocab: { ...MODEL.vocab as object, xyz: 300 } },
    normalizer: { type: "Sequence", normalizers: [] },
  };
  for (const [architecture, name] of [["glm4", "glm4"], ["glm4moe", "glm4"], ["llama", "llama-bpe"]]) {
    const entries = tokenizerEntries(Fields.of("t", tokenizer), Fields.of("c", CONFIG), 320, architecture);
    assertEquals(entries.find(({ key }) => key === "tokenizer.ggml.pre")?.value, name);
    assertEquals(engineTokenizer(tokenizer, CONFIG, 320, architecture).encode("xyz"), [300]);
  }
});

Deno.test("tokenizer: an end token that only generation_config.json names gets a key", () => {
  const entries = tokenizerEntries(Fields.of("t", BPE), Fields.of("c", CONFIG), 320);
  const ends = (eos_token_id: unknown) =>
    endEntries(Fields.of("generation_config.json", { eos_token_id }), entries)
      .map(({ key, value }) => [key.replace("tokenizer.ggml.", ""), value]);
  assertEquals(ends(undefined), []);
  assertEquals(ends(260), []); // EOS only
  assertEquals(ends([258, 260]), []); // <|endoftext|>, which readers know
  assertEquals(ends([260, 259, 261]), [["eot_token_id", 259], ["eom_token_id", 261]]);
  for (const wrong of [[1, 2, 3], [320], [-1], ["<|user|>"], 1.5]) {
    const { message } = assertThrows(() => ends(wrong), ConvertError);
    assertStringIncludes(message, `key "eos_token_id"`);
  }
});

/** SentencePiece's BPE in Hugging Face's format: merges in the order of their tokens' scores. */
const SPM = {
  added_tokens: ["<unk>", "<s>", "</s>"].map((content, id) => ({ id, content, special: true })),
  normalizer: {
    type: "Sequence",
    normalizers: [{ type: "Prepend", prepend: "▁" }, {
      type: "Replace",
      pattern: { String: " " },
      content: "▁",
    }],
  },
  post_processor: {
    type: "TemplateProcessing",
    single: [{ SpecialToken: { id: "<s>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
  },
  model: {
    type: "BPE",
    byte_fallback: true,
    unk_token: "<unk>",
    vocab: Object.fromEntries(
      ["<unk>", "<s>", "</s>", "<0x21>", "ab", "bc", "▁a", "abc", "▁", "a", "b", "c"].map((
        token,
        id,
      ) => [token, id]),
    ),
    // "bc" before "ab", whatever their ids.
    merges: ["b c", "a b", "▁ a", "ab c", "a bc"],
  },
};

Deno.test("tokenizer: SentencePiece's merges become scores that give the same tokens", () => {
  const config = { bos_token: "<s>", eos_token: { content: "</s>" }, unk_token: "<unk>" };
  const entries = entriesOf(SPM, config, 12);
  assertEquals(entries.get("model"), "llama");
  assertEquals(entries.get("scores"), [-4, -4, -4, -4, -1, -0, -2, -3, -4, -4, -4, -4]);
  assertEquals(entries.get("token_type"), [2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1, 1]);
  assertEquals([entries.get("add_space_prefix"), entries.get("add_bos_token")], [true, true]);
  const tokenizer = engineTokenizer(SPM, config, 12);
  const texts = (text: string) => tokenizer.encode(text).map((id) => (entries.get("tokens") as string[])[id]);
  assertEquals(texts("abc"), ["▁a", "bc"]); // b c first, then ▁ a before a bc
  assertEquals(texts("ab a"), ["▁", "ab", "▁a"]);
  assertEquals(texts("c!"), ["▁", "c", "<0x21>"]);
  assertEquals(tokenizer.encode("c", { addSpecial: true })[0], 1);
});

Deno.test("tokenizer: adds BOS when tokenizer_config.json or the template says so", () => {
  const bos = { bos_token: "<s>" };
  assertEquals(entriesOf(SPM, { ...bos, add_bos_token: false }, 12).get("add_bos_token"), false);
  assertEquals(entriesOf(SPM, bos, 12).get("add_bos_token"), true);
  const { single: [, sequence] } = SPM.post_processor;
  const without = { ...SPM, post_processor: { type: "TemplateProcessing", single: [sequence] } };
  assertEquals(entriesOf(without, bos, 12).get("add_bos_token"), false);
  assertEquals(entriesOf({ ...SPM, post_processor: null }, bos, 12).has("add_bos_token"), false);
});

Deno.test("tokenizer: adds a blank before the text when the files say so", () => {
  const metaspace = (scheme: string) => ({
    type: "Metaspace",
    replacement: "▁",
    prepend_scheme: scheme,
    split: false,
  });
  for (const [scheme, prefix] of [["always", true], ["first", true], ["never", false]] as const) {
    const tokenizer = { ...SPM, normalizer: null, pre_tokenizer: metaspace(scheme) };
    assertEquals(entriesOf(tokenizer, {}, 12).get("add_space_prefix"), prefix, scheme);
  }
});

/** Gemma's normalizer replaces blanks, so its split at blanks finds none. */
const REPLACED = { type: "Replace", pattern: { String: " " }, content: "▁" };
const CUT = { type: "Split", pattern: { String: " " }, behavior: "MergedWithPrevious", invert: false };

Deno.test("tokenizer: Gemma's split at blanks changes nothing, and adds no blank before the text", () => {
  const tokenizer = { ...SPM, normalizer: REPLACED, pre_tokenizer: CUT };
  assertEquals(entriesOf(tokenizer, {}, 12).get("add_space_prefix"), false);
});

const WRONG: Record<string, [tokenizer: object, config: object, words: string]> = {
  "another model": [
    { ...BPE, model: { ...MODEL, type: "WordLevel" } },
    CONFIG,
    'must be "BPE", "WordPiece" or "Unigram" (got "WordLevel")',
  ],
  "a Unigram vocabulary without scores": [
    { ...BPE, model: { ...MODEL, type: "Unigram" } },
    CONFIG,
    "an array of tokens and scores",
  ],
  "a Unigram vocabulary with a token twice": [
    { model: { type: "Unigram", vocab: [["a", 0], ["a", -1]] } },
    CONFIG,
    "each token once",
  ],
  "a Unigram model with bytes": [
    { model: { type: "Unigram", vocab: [["a", 0]], byte_fallback: true } },
    {},
    "byte_fallback",
  ],
  "a Unigram model that cuts words otherwise": [
    { model: { type: "Unigram", vocab: [["a", 0]] }, pre_tokenizer: { type: "Whitespace" } },
    {},
    'the step "Whitespace"',
  ],
  "a Unigram character map that is malformed": [
    {
      model: { type: "Unigram", vocab: [["a", 0]] },
      normalizer: { type: "Precompiled", precompiled_charsmap: "?" },
    },
    {},
    "in base64",
  ],
  "no model": [{ ...BPE, model: null }, CONFIG, `key "model"`],
  "a cut at digits that are together": [
    { ...BPE, pre_tokenizer: withDigits(DEEPSEEK_LLM, false) },
    CONFIG,
    `key "individual_digits"`,
  ],
  "another normalizer": [{ ...BPE, normalizer: { type: "Lowercase" } }, CONFIG, `"Lowercase"`],
  "a normalizer of SentencePiece": [{ ...SPM, normalizer: { type: "NFKC" } }, {}, `the step "NFKC"`],
  "a cut at blanks that are there": [
    { ...SPM, normalizer: null, pre_tokenizer: CUT },
    {},
    `the step "Split"`,
  ],
  "a merge to no token": [{ ...BPE, model: { ...MODEL, merges: ["q q"] } }, CONFIG, `"q q" at 0`],
  "a merge without parts": [{ ...BPE, model: { ...MODEL, merges: ["th"] } }, CONFIG, `"th" at 0`],
  "merges that are none": [
    { ...BPE, model: { ...MODEL, merges: {} } },
    CONFIG,
    "must be an array (got an object",
  ],
  "a doubled id": [
    { ...BPE, added_tokens: [{ id: 3, content: "<x>", special: true }] },
    CONFIG,
    "the id 3 is a duplicate",
  ],
  "a doubled token": [
    { ...BPE, added_tokens: [{ id: 300, content: "th", special: true }] },
    CONFIG,
    `token "th": the id 300 is a duplicate (also 256)`,
  ],
  "an id that is not a whole number": [
    { ...BPE, added_tokens: [{ id: 1.5, content: "<x>" }] },
    CONFIG,
    "(got 1.5)",
  ],
  "a special token that is none": [BPE, { eos_token: "<nobody>" }, `key "eos_token"`],
  "merges out of order": [
    { ...SPM, model: { ...SPM.model, merges: ["ab c", "a b", "a bc"] } },
    {},
    `merges to "abc" with others between them`,
  ],
};
for (const [what, [tokenizer, config, words]] of Object.entries(WRONG)) {
  Deno.test(`tokenizer: refuses ${what}`, () => {
    const rows = (tokenizer as Partial<typeof SPM>).model?.byte_fallback ? 12 : 320;
    const { message } = assertThrows(() => entriesOf(tokenizer, config, rows), ConvertError);
    assertStringIncludes(message, words);
  });
}
