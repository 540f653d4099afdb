import { quote } from "../gguf/errors.ts";
import type { Metadata } from "../gguf/types.ts";
import { readVocabulary, type VocabularyTables } from "../gguf/vocabulary.ts";
import { BpeEncoder } from "./bpe.ts";
import { Decoder } from "./decoder.ts";
import { stripMarks } from "./literal_marks.ts";
import { preTokenizer } from "./pre_tokenizers.ts";
import { SpmEncoder } from "./spm.ts";
import { TokenFinder } from "./token_finder.ts";
import { TOKEN_TYPE } from "./token_types.ts";
import {
  type DecodeOptions,
  type EncodeOptions,
  type InfillTokens,
  type StreamDecoder,
  type Tokenizer,
  TooManyTokens,
} from "./types.ts";
import { createVocabulary, vocabError, type Vocabulary } from "./vocabulary.ts";

/** Appends the tokens of a well-formed text without special tokens; leaves off once `tokens` has more than `atMost`. */
interface Encoder {
  encode(text: string, tokens: number[], atMost: number): void;
}

interface Parts {
  vocabulary: Vocabulary;
  encoder: Encoder;
  decoder: Decoder;
  addBos: boolean;
  addEos: boolean;
  /** Encode a text that begins the whole, or follows a special token, as if a blank stood before it. */
  blankFirst: boolean;
}

/**
 * The tokenizer that a GGUF file's metadata describes. Throws GgufError(GGUF_VOCAB or GGUF_HPARAM) where they are
 * incomplete, contradict themselves, or name a model or a pre-tokenizer that is not supported.
 */
export function createTokenizer(metadata: Metadata): Tokenizer {
  const tables = readVocabulary(metadata);
  if (tables.model === "llama") return new GgufTokenizer(spmParts(tables, metadata));
  if (tables.model === "gpt2") return new GgufTokenizer(bpeParts(tables, metadata));
  throw vocabError("model", `must be gpt2 or llama (got ${quote(tables.model)})`);
}

function spmParts(tables: VocabularyTables, metadata: Metadata): Parts {
  const vocabulary = createVocabulary(tables, metadata, { unknown: 0, bos: 1, eos: 2 });
  const blankFirst = metadata.getBoolean("tokenizer.ggml.add_space_prefix", true);
  return {
    vocabulary,
    encoder: new SpmEncoder(tables.scores!, vocabulary),
    decoder: new Decoder(vocabulary, "blank marks", blankFirst),
    addBos: metadata.getBoolean("tokenizer.ggml.add_bos_token", true),
    addEos: metadata.getBoolean("tokenizer.ggml.add_eos_token", false),
    blankFirst,
  };
}

function bpeParts(tables: VocabularyTables, metadata: Metadata): Parts {
  const rules = preTokenizer(metadata.getString("tokenizer.ggml.pre", "default"));
  const vocabulary = createVocabulary(tables, metadata, {});
  return {
    vocabulary,
    encoder: new BpeEncoder(tables.merges!, vocabulary, rules),
    decoder: new Decoder(vocabulary, "bytes", false),
    addBos: metadata.getBoolean("tokenizer.ggml.add_bos_token", rules.addBos),
    addEos: metadata.getBoolean("tokenizer.ggml.add_eos_token", false),
    blankFirst: false,
  };
}

class GgufTokenizer implements Tokenizer {
  readonly vocabSize: number;
  readonly bosToken: number | undefined;
  readonly eosToken: number | undefined;
  readonly padToken: number | undefined;
  readonly endTokens: ReadonlySet<number>;
  readonly infill: InfillTokens | undefined;
  readonly #parts: Parts;
  /** What is a token wherever it stands, and what is one only where control tokens are recognised. */
  readonly #userDefined: TokenFinder;
  readonly #special: TokenFinder;
  /** UTF-16 units that a token can spell: a byte-level one has a letter for each byte. */
  readonly #longest: number;

  constructor(parts: Parts) {
    const { vocabulary } = parts;
    this.#parts = parts;
    this.vocabSize = vocabulary.tokens.length;
    this.bosToken = vocabulary.bos;
    this.eosToken = vocabulary.eos;
    this.padToken = vocabulary.padding;
    this.endTokens = vocabulary.end;
    this.infill = vocabulary.infill;
    this.#longest = vocabulary.tokens.reduce((most, token) => Math.max(most, token.length), 1);
    this.#userDefined = finderOf(vocabulary, [TOKEN_TYPE.USER_DEFINED]);
    this.#special = finderOf(vocabulary, [TOKEN_TYPE.USER_DEFINED, TOKEN_TYPE.CONTROL, TOKEN_TYPE.UNKNOWN]);
  }

  encode(text: string, options: EncodeOptions = {}): number[] {
    const { addSpecial = false, parseSpecial = false, marked = false, atMost = Infinity } = options;
    const { encoder, addBos, addEos, blankFirst } = this.#parts;
    const tokens: number[] = [];
    if (addSpecial && addBos && this.bosToken !== undefined) tokens.push(this.bosToken);
    const wellFormed = text.toWellFormed();
    let afterSpecial = true;
    for (
      const { start, end, token } of (parseSpecial ? this.#special : this.#userDefined).split(wellFormed)
    ) {
      if (token !== undefined) {
        tokens.push(token);
        afterSpecial = true;
        continue;
      }
      const part = wellFormed.slice(start, end);
      const plain = marked ? stripMarks(part) : part;
      // No token spells more than the longest: what is far too long is not even cut into pieces.
      const atLeast = tokens.length + Math.ceil(plain.length / this.#longest);
      if (atLeast > atMost) throw new TooManyTokens(atLeast);
      encoder.encode(blankFirst && afterSpecial ? ` ${plain}` : plain, tokens, atMost);
      if (tokens.length > atMost) throw new TooManyTokens(tokens.length);
      afterSpecial = false;
    }
    if (addSpecial && addEos && this.eosToken !== undefined) tokens.push(this.eosToken);
    if (tokens.length > atMost) throw new TooManyTokens(tokens.length);
    return tokens;
  }

  decode(tokens: Iterable<number>, options: DecodeOptions = {}): string {
    return this.#parts.decoder.decode(tokens, options);
  }

  bytes(token: number): Uint8Array {
    return this.#parts.decoder.bytes(token, false);
  }

  isControl(token: number): boolean {
    return this.#parts.vocabulary.types[token] === TOKEN_TYPE.CONTROL;
  }

  streamDecoder(options: DecodeOptions = {}): StreamDecoder {
    return this.#parts.decoder.stream(options);
  }
}

function finderOf(vocabulary: Vocabulary, types: number[]): TokenFinder {
  const texts = new Map<number, string>();
  for (const [id, text] of vocabulary.tokens.entries()) {
    if (types.includes(vocabulary.types[id])) texts.set(id, text);
  }
  return new TokenFinder(texts);
}
