/** Tokenizers of tiny checkpoints, in the published formats of encoders and Gemma. */
import { CODE_OF_BYTE } from "../engine/tokenizer/byte_codes.ts";

export interface PublishedTokenizer {
  readonly tokenizer: Record<string, unknown>;
  readonly tokenizerConfig: Record<string, unknown>;
}

const LETTERS = [..."abcdefghijklmnopqrstuvwxyz"];
const byId = (tokens: readonly string[]) => Object.fromEntries(tokens.map((token, id) => [token, id]));
const added = (tokens: readonly string[], special: readonly string[]) =>
  special.map((content) => ({ id: tokens.indexOf(content), content, special: true }));
const around = (first: string, last: string) => ({
  type: "TemplateProcessing",
  single: [{ SpecialToken: { id: first } }, { Sequence: { id: "A" } }, { SpecialToken: { id: last } }],
});

const WORD_PIECE_TOKENS = [
  "[PAD]",
  "[UNK]",
  "[CLS]",
  "[SEP]",
  "[MASK]",
  ...LETTERS,
  ...LETTERS.map((l) => `##${l}`),
];
/** BERT's and Nomic's tokenizer. */
export const WORD_PIECE: PublishedTokenizer = {
  tokenizer: {
    added_tokens: added(WORD_PIECE_TOKENS, WORD_PIECE_TOKENS.slice(0, 5)),
    normalizer: { type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, lowercase: true },
    pre_tokenizer: { type: "BertPreTokenizer" },
    post_processor: around("[CLS]", "[SEP]"),
    model: {
      type: "WordPiece",
      unk_token: "[UNK]",
      continuing_subword_prefix: "##",
      vocab: byId(WORD_PIECE_TOKENS),
    },
  },
  tokenizerConfig: { cls_token: "[CLS]", sep_token: "[SEP]", unk_token: "[UNK]", pad_token: "[PAD]" },
};

const BYTES = Array.from(CODE_OF_BYTE, (code) => String.fromCharCode(code));
const MODERN_TOKENS = [...BYTES, "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"];
/** ModernBERT's tokenizer: byte-level BPE between CLS and SEP. */
export const MODERN: PublishedTokenizer = {
  tokenizer: {
    added_tokens: added(MODERN_TOKENS, MODERN_TOKENS.slice(256)),
    normalizer: { type: "NFC" },
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: around("[CLS]", "[SEP]"),
    model: { type: "BPE", vocab: byId(MODERN_TOKENS), merges: [] },
  },
  tokenizerConfig: {
    cls_token: "[CLS]",
    sep_token: "[SEP]",
    unk_token: "[UNK]",
    pad_token: "[PAD]",
    mask_token: { content: "[MASK]", lstrip: true },
  },
};

const GEMMA_SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<|channel>", "<turn|>"];
const HEX = Array.from(
  { length: 256 },
  (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`,
);
const GEMMA_TOKENS = [...GEMMA_SPECIAL, ...HEX, "▁", ...LETTERS, "▁a"];
/** Gemma's tokenizer: BPE over characters, markers for spaces, bytes for unknown characters. */
export const GEMMA: PublishedTokenizer = {
  tokenizer: {
    added_tokens: added(GEMMA_TOKENS, GEMMA_SPECIAL),
    normalizer: { type: "Replace", pattern: { String: " " }, content: "▁" },
    pre_tokenizer: { type: "Split", pattern: { String: " " }, behavior: "MergedWithPrevious", invert: false },
    model: {
      type: "BPE",
      unk_token: "<unk>",
      byte_fallback: true,
      vocab: byId(GEMMA_TOKENS),
      merges: [["▁", "a"]],
    },
  },
  tokenizerConfig: {
    add_bos_token: true,
    bos_token: "<bos>",
    eos_token: "<eos>",
    unk_token: "<unk>",
    pad_token: "<pad>",
  },
};

const UNIGRAM_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "▁", ...LETTERS, "▁a", "<mask>"];
/** XLM-RoBERTa's tokenizer: SentencePiece's Unigram between <s> and </s>. */
export const UNIGRAM: PublishedTokenizer = {
  tokenizer: {
    added_tokens: added(UNIGRAM_TOKENS, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]),
    normalizer: {
      type: "Sequence",
      normalizers: [{ type: "Strip", strip_left: false, strip_right: true }, {
        type: "Replace",
        pattern: { Regex: " {2,}" },
        content: "▁",
      }],
    },
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [{ type: "WhitespaceSplit" }, {
        type: "Metaspace",
        replacement: "▁",
        prepend_scheme: "always",
      }],
    },
    post_processor: around("<s>", "</s>"),
    model: {
      type: "Unigram",
      unk_id: 3,
      vocab: UNIGRAM_TOKENS.map((token, id) => [token, id < 4 ? 0 : -1 - id / 100]),
    },
  },
  tokenizerConfig: {
    bos_token: "<s>",
    eos_token: "</s>",
    unk_token: "<unk>",
    sep_token: "</s>",
    pad_token: "<pad>",
    cls_token: "<s>",
    mask_token: "<mask>",
  },
};
