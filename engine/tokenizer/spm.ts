import { mergePairs } from "./merge.ts";
import { PairTable } from "./pair_table.ts";
import { PieceCache } from "./piece_cache.ts";
import { BYTE_TOKENS, TOKEN_TYPE } from "./token_types.ts";
import { vocabError, type Vocabulary } from "./vocabulary.ts";

/** Each token is cut at every place: squares of their lengths, together. 262,144 tokens of 8 make 2^24. */
const MAX_CUT_WORK = 1 << 28;

/** What stands for a blank in the tokens. */
export const BLANK_MARK = "▁";

/** Each token's place by score, the highest first; tokens of equal score have the same place. */
function placesByScore(scores: ArrayLike<number>): Int32Array {
  const order = Int32Array.from(scores, (_, id) => id).sort((a, b) => scores[b] - scores[a]);
  const places = new Int32Array(scores.length);
  for (let i = 1; i < order.length; i++) {
    const same = scores[order[i]] === scores[order[i - 1]];
    places[order[i]] = same ? places[order[i - 1]] : i;
  }
  return places;
}

/**
 * Byte-pair encoding by score with byte fallback, as SentencePiece does it: neighbours merge whenever their text is a
 * token, the highest score first.
 */
export class SpmEncoder {
  readonly #pairs: PairTable;
  /** Characters that are no token themselves but part of one, with ids from the token count on. */
  readonly #parts = new Map<string, number>();
  readonly #partTexts: string[] = [];
  /** Tokens for the bytes of what is no token; none where a vocabulary has neither the byte nor an unknown token. */
  readonly #tokenOfByte: readonly (number | undefined)[]; // [256]
  /** Whether no token spans the border before a blank mark, so that words may be encoded one by one. */
  readonly #wordsApart: boolean;
  readonly #cache = new PieceCache();
  readonly #utf8 = new TextEncoder();

  constructor(scores: ArrayLike<number>, private readonly vocabulary: Vocabulary) {
    const { types, ids, unknown } = vocabulary;
    const places = placesByScore(scores);
    // Plain text never becomes a control token.
    const mergeable = [...ids].filter(([, id]) => types[id] !== TOKEN_TYPE.CONTROL);
    const work = mergeable.reduce((sum, [text]) => sum + text.length ** 2, 0);
    if (work > MAX_CUT_WORK) {
      throw vocabError(
        "tokens",
        `the squares of their lengths must add up to at most ${MAX_CUT_WORK} (got ${work})`,
      );
    }
    this.#pairs = new PairTable(4 * mergeable.length);
    for (const [text, id] of mergeable) this.#addPairs(text, id, places[id]);
    this.#wordsApart = !mergeable.some(([text]) => /[^▁]▁/u.test(text));
    this.#tokenOfByte = BYTE_TOKENS.map((token) => ids.get(token) ?? unknown);
  }

  /** Appends the tokens of a well-formed text without special tokens; leaves off past `atMost` tokens. */
  encode(text: string, tokens: number[], atMost: number): void {
    const marked = text.replaceAll(" ", BLANK_MARK);
    for (let start = 0, end = 0; start < marked.length; start = end) {
      end = this.#wordsApart ? wordEnd(marked, start) : marked.length;
      const piece = marked.slice(start, end);
      let found = this.#cache.get(piece);
      if (!found) {
        found = Int32Array.from(this.#encodePiece(piece));
        this.#cache.set(piece, found);
      }
      for (let i = 0; i < found.length; i++) tokens.push(found[i]);
      if (tokens.length > atMost) return;
    }
  }

  /** Every way to make a token of two symbols. */
  #addPairs(text: string, id: number, place: number): void {
    const characters = [...text];
    const last = characters.length - 1;
    for (let i = 1, cut = 0; i <= last; i++) {
      cut += characters[i - 1].length;
      const left = i === 1 ? this.#symbolOf(characters[0], true) : this.#tokenOf(text.slice(0, cut));
      const right = i === last ? this.#symbolOf(characters[last], true) : this.#tokenOf(text.slice(cut));
      if (left !== undefined && right !== undefined) this.#pairs.add(left, right, place, id);
    }
  }

  #tokenOf(text: string): number | undefined {
    const id = this.vocabulary.ids.get(text);
    return id !== undefined && this.vocabulary.types[id] !== TOKEN_TYPE.CONTROL ? id : undefined;
  }

  /** The symbol of one character; with `add`, one that is no token gets an id of its own. */
  #symbolOf(character: string, add: boolean): number | undefined {
    const known = this.#tokenOf(character) ?? this.#parts.get(character);
    if (known !== undefined || !add) return known;
    const symbol = this.vocabulary.tokens.length + this.#partTexts.length;
    this.#parts.set(character, symbol);
    this.#partTexts.push(character);
    return symbol;
  }

  #encodePiece(piece: string): number[] {
    const characters = [...piece];
    // What is in no token is numbered downwards from -2, which never merges, to be found again afterwards.
    const symbols = Int32Array.from(characters, (character, i) => this.#symbolOf(character, false) ?? -2 - i);
    const count = mergePairs(symbols, symbols.length, this.#pairs);
    const tokens: number[] = [];
    for (let i = 0; i < count; i++) {
      const symbol = symbols[i];
      if (symbol < 0) this.#appendBytes(characters[-2 - symbol], tokens);
      else if (symbol < this.vocabulary.tokens.length) tokens.push(symbol);
      else this.#appendBytes(this.#partTexts[symbol - this.vocabulary.tokens.length], tokens);
    }
    return tokens;
  }

  #appendBytes(character: string, tokens: number[]): void {
    for (const byte of this.#utf8.encode(character)) {
      const token = this.#tokenOfByte[byte];
      if (token !== undefined) tokens.push(token);
    }
  }
}

/** Where the blank marks at `start` and the word after them end. */
export function wordEnd(text: string, start: number): number {
  let index = start;
  while (text[index] === BLANK_MARK) index++;
  const next = text.indexOf(BLANK_MARK, index);
  return next < 0 ? text.length : next;
}
