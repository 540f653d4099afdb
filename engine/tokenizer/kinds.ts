import type { Paced } from "../pacing/pauses.ts";
import { quote } from "../gguf/errors.ts";
import type { Metadata } from "../gguf/types.ts";
import type { VocabularyTables } from "../gguf/vocabulary.ts";
import { BpeEncoder } from "./bpe.ts";
import { CharacterMap } from "./split/character_map.ts";
import { Decoder } from "./decoder.ts";
import { MarkedBpeEncoder } from "./marked_bpe.ts";
import { PlamoEncoder } from "./plamo.ts";
import { type PreTokenizer, preTokenizer } from "./split/pre_tokenizers.ts";
import { SpmEncoder } from "./spm.ts";
import { UnigramEncoder } from "./unigram.ts";
import { createVocabulary, vocabError, type Vocabulary } from "./vocabulary.ts";
import { WordPieceEncoder } from "./word_piece.ts";

/**
 * Appends the tokens of well-formed text without special tokens. May stop once there are more than `atMost`
 * tokens.
 */
export interface Encoder {
  encode(text: string, tokens: number[], atMost: number): Paced<void>;
}

/** The parts of a tokenizer. */
export interface Parts {
  readonly vocabulary: Vocabulary;
  readonly encoder: Encoder;
  readonly decoder: Decoder;
  /** Special tokens around a whole text: BOS or CLS before it, EOS or SEP after it. */
  readonly before: readonly number[];
  readonly after: readonly number[];
  /** Whether a blank is added before text at the start or after a special token. */
  readonly blankFirst: boolean;
  /** Whether one token may represent any number of characters, such as an unknown word. */
  readonly shrinks: boolean;
}

const KINDS: Readonly<Record<string, (tables: VocabularyTables, metadata: Metadata) => Parts>> = {
  gpt2: bpeParts,
  llama: spmParts,
  bert: wordPieceParts,
  t5: unigramParts,
  plamo2: plamoParts,
  gemma4: (tables, metadata) => bytePairParts(tables, metadata, preTokenizer("gemma4")),
};
/** Supported values of the key `tokenizer.ggml.model`. */
export const TOKENIZER_KINDS = Object.keys(KINDS);

/**
 * Returns the parts of the tokenizer that `tokenizer.ggml.model` names. Throws GgufError(GGUF_VOCAB or
 * GGUF_HPARAM).
 */
export function tokenizerParts(tables: VocabularyTables, metadata: Metadata): Parts {
  if (Object.hasOwn(KINDS, tables.model)) return KINDS[tables.model](tables, metadata);
  throw vocabError("model", `must be one of ${TOKENIZER_KINDS.join(", ")} (got ${quote(tables.model)})`);
}

function spmParts(tables: VocabularyTables, metadata: Metadata): Parts {
  const vocabulary = createVocabulary(tables, metadata, { unknown: 0, bos: 1, eos: 2 });
  const blankFirst = metadata.getBoolean("tokenizer.ggml.add_space_prefix", true);
  return {
    vocabulary,
    encoder: new SpmEncoder(tables.scores!, vocabulary),
    decoder: new Decoder(vocabulary, "blank marks", blankFirst),
    ...around(vocabulary, metadata, { bos: true, eos: false }),
    blankFirst,
    shrinks: false,
  };
}

function bpeParts(tables: VocabularyTables, metadata: Metadata): Parts {
  const rules = preTokenizer(metadata.getString("tokenizer.ggml.pre", "default"));
  const lowercase = metadata.getBoolean("tokenizer.ggml.normalizer.lowercase", false);
  return bytePairParts(tables, metadata, { ...rules, lowercase });
}

function bytePairParts(tables: VocabularyTables, metadata: Metadata, rules: PreTokenizer): Parts {
  const vocabulary = createVocabulary(tables, metadata, {});
  const byteLevel = rules.spelling === "bytes";
  return {
    vocabulary,
    encoder: new (byteLevel ? BpeEncoder : MarkedBpeEncoder)(tables.merges!, vocabulary, rules),
    decoder: new Decoder(vocabulary, rules.spelling, false),
    ...around(vocabulary, metadata, { bos: rules.addBos, eos: false }, rules.alwaysBos),
    blankFirst: false,
    shrinks: rules.spelling === "words",
  };
}

function wordPieceParts(tables: VocabularyTables, metadata: Metadata): Parts {
  const vocabulary = createVocabulary(tables, metadata, {
    unknown: 100,
    bos: metadata.getCount("tokenizer.ggml.cls_token_id", 101),
    separator: 102,
    padding: 0,
  });
  const { bos, separator } = vocabulary;
  if (bos === undefined) throw vocabError("cls_token_id", "missing; BERT's texts begin with that token");
  if (separator === undefined) {
    throw vocabError("seperator_token_id", "missing; BERT's texts end with that token");
  }
  const lowercase = metadata.getBoolean("tokenizer.ggml.normalizer.lowercase", true);
  const stripAccents = metadata.getBoolean("tokenizer.ggml.normalizer.strip_accents", lowercase);
  return {
    vocabulary,
    encoder: new WordPieceEncoder(vocabulary, { lowercase, stripAccents }),
    decoder: new Decoder(vocabulary, "blank marks", true),
    before: [bos],
    after: [separator],
    blankFirst: false,
    shrinks: true,
  };
}

function unigramParts(tables: VocabularyTables, metadata: Metadata): Parts {
  const vocabulary = createVocabulary(tables, metadata, { eos: 1, unknown: 2, padding: 0 });
  const map = metadata.getNumbers("tokenizer.ggml.precompiled_charsmap");
  const blankFirst = metadata.getBoolean("tokenizer.ggml.add_space_prefix", false);
  return {
    vocabulary,
    encoder: new UnigramEncoder(tables.scores!, vocabulary, {
      characters: map && map.length > 0 ? new CharacterMap(Uint8Array.from(map)) : undefined,
      blankFirst,
      mergeBlanks: metadata.getBoolean("tokenizer.ggml.remove_extra_whitespaces", false),
    }),
    decoder: new Decoder(vocabulary, "blank marks", blankFirst),
    ...around(vocabulary, metadata, { bos: false, eos: true }),
    blankFirst: false,
    shrinks: true,
  };
}

function plamoParts(tables: VocabularyTables, metadata: Metadata): Parts {
  const vocabulary = createVocabulary(tables, metadata, { unknown: 0, bos: 1, eos: 2, padding: 3 });
  return {
    vocabulary,
    encoder: new PlamoEncoder(tables.scores!, vocabulary),
    decoder: new Decoder(vocabulary, "words", false),
    ...around(vocabulary, metadata, { bos: false, eos: false }),
    blankFirst: false,
    shrinks: false,
  };
}

/**
 * Returns the tokens that `add_bos_token` and `add_eos_token` of the file put around a text, with the given defaults.
 */
function around(
  { bos, eos }: Vocabulary,
  metadata: Metadata,
  defaults: { bos: boolean; eos: boolean },
  alwaysBos = false,
): { before: number[]; after: number[] } {
  const adds = (side: "bos" | "eos") =>
    metadata.getBoolean(`tokenizer.ggml.add_${side}_token`, defaults[side]);
  return {
    before: bos !== undefined && (adds("bos") || alwaysBos) ? [bos] : [],
    after: eos !== undefined && adds("eos") ? [eos] : [],
  };
}
