import { finish, type Paced, STEPS_PER_OFFER } from "../pacing/pauses.ts";
import type { Metadata } from "../gguf/types.ts";
import { readVocabulary } from "../gguf/vocabulary.ts";
import { type Parts, tokenizerParts } from "./kinds.ts";
import { stripMarks } from "./special/literal_marks.ts";
import { TokenFinder } from "./special/token_finder.ts";
import { TOKEN_TYPE } from "./token_types.ts";
import {
  type DecodeOptions,
  type EncodeOptions,
  type InfillTokens,
  type StreamDecoder,
  type Tokenizer,
  TooManyTokens,
} from "./types.ts";
import type { Vocabulary } from "./vocabulary.ts";
import { type Strips, stripsOf } from "./special/strips.ts";

/**
 * Returns the tokenizer that a GGUF file's metadata describes. Throws GgufError(GGUF_VOCAB or GGUF_HPARAM)
 * for incomplete or inconsistent tables, and for an unsupported model or pre-tokenizer.
 */
export function createTokenizer(metadata: Metadata): Tokenizer {
  const parts = tokenizerParts(readVocabulary(metadata), metadata);
  return new GgufTokenizer(parts, stripsOf(parts.vocabulary, metadata));
}

class GgufTokenizer implements Tokenizer {
  readonly vocabSize: number;
  readonly bosToken: number | undefined;
  readonly eosToken: number | undefined;
  readonly padToken: number | undefined;
  readonly separatorToken: number | undefined;
  readonly endTokens: ReadonlySet<number>;
  readonly infill: InfillTokens | undefined;
  readonly #parts: Parts;
  /** Finders of tokens that are recognised in any text, and of tokens recognised only on request. */
  readonly #userDefined: TokenFinder;
  readonly #special: TokenFinder;
  /** Maximum number of UTF-16 units that one token can represent. Byte-level tokens have one character per byte. */
  readonly #longest: number;

  constructor(parts: Parts, private readonly strips: Strips) {
    const { vocabulary } = parts;
    this.#parts = parts;
    this.vocabSize = vocabulary.tokens.length;
    this.bosToken = vocabulary.bos;
    this.eosToken = vocabulary.eos;
    this.padToken = vocabulary.padding;
    this.separatorToken = vocabulary.separator;
    this.endTokens = vocabulary.end;
    this.infill = vocabulary.infill;
    this.#longest = parts.shrinks
      ? Infinity
      : vocabulary.tokens.reduce((most, token) => Math.max(most, token.length), 1);
    this.#userDefined = finderOf(vocabulary, [TOKEN_TYPE.USER_DEFINED]);
    this.#special = finderOf(vocabulary, [TOKEN_TYPE.USER_DEFINED, TOKEN_TYPE.CONTROL, TOKEN_TYPE.UNKNOWN]);
  }

  encode(text: string, options: EncodeOptions = {}): number[] {
    return finish(this.#encoding(text, options));
  }

  *#encoding(text: string, options: EncodeOptions): Paced<number[]> {
    const { addSpecial = false, parseSpecial = false, marked = false, atMost = Infinity } = options;
    const { encoder, before, after, blankFirst } = this.#parts;
    const tokens: number[] = addSpecial ? [...before] : [];
    const wellFormed = text.toWellFormed();
    const fragments = yield* (parseSpecial ? this.#special : this.#userDefined).split(wellFormed);
    let previous: number | undefined;
    for (const [i, { start, end, token }] of fragments.entries()) {
      if (i % STEPS_PER_OFFER === STEPS_PER_OFFER - 1) yield;
      const first = i === 0 || previous !== undefined;
      if (token !== undefined) {
        tokens.push(token);
        previous = token;
        continue;
      }
      const part = this.strips.strip(wellFormed.slice(start, end), previous, fragments[i + 1]?.token);
      previous = undefined;
      if (part === "") continue;
      const plain = marked ? yield* stripMarks(part) : part;
      // A lower bound of the token count is checked first, to refuse far too long texts before splitting them.
      const atLeast = tokens.length + Math.ceil(plain.length / this.#longest);
      if (atLeast > atMost) throw new TooManyTokens(atLeast);
      yield* encoder.encode(blankFirst && first ? ` ${plain}` : plain, tokens, atMost);
      if (tokens.length > atMost) throw new TooManyTokens(tokens.length);
    }
    if (addSpecial) tokens.push(...after);
    if (tokens.length > atMost) throw new TooManyTokens(tokens.length);
    return tokens;
  }

  decode(tokens: Iterable<number>, options: DecodeOptions = {}): string {
    return finish(this.#parts.decoder.decode(tokens, options));
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
