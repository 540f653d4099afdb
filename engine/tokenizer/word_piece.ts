import { type Paced, STEPS_PER_OFFER } from "../pacing/pauses.ts";
import { appendAll } from "./long_pieces.ts";
import { PieceCache } from "./split/piece_cache.ts";
import { BLANK_MARK } from "./spm.ts";
import { NONE, TokenTrie } from "./special/token_trie.ts";
import { TOKEN_TYPE } from "./token_types.ts";
import { baseOf, classOf, CONTROL, lowerOf, MARK, PUNCTUATION, SPACE, SYMBOL } from "./split/unicode.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** Rules of BERT's text normalization. */
export interface WordPieceRules {
  readonly lowercase: boolean;
  /** Whether to remove accents and combining marks. */
  readonly stripAccents: boolean;
}

/** Ranges of ideographs that are separate words. One extension block begins later than in Unicode, as in llama.cpp. */
const IDEOGRAPHS: readonly (readonly [first: number, last: number])[] = [
  [0x4e00, 0x9fff],
  [0x3400, 0x4dbf],
  [0x20000, 0x2a6df],
  [0x2a700, 0x2b73f],
  [0x2b740, 0x2b81f],
  [0x2b920, 0x2ceaf],
  [0xf900, 0xfaff],
  [0x2f800, 0x2fa1f],
];

function isIdeograph(code: number): boolean {
  return code >= 0x3400 && IDEOGRAPHS.some(([first, last]) => first <= code && code <= last);
}

/**
 * Returns whether a character is a separate word. ASCII symbols such as + and < are; symbols of other blocks are not.
 */
function standsAlone(code: number, flags: number): boolean {
  return (flags & PUNCTUATION) !== 0 || (code < 0x7f && (flags & SYMBOL) !== 0) || isIdeograph(code);
}

/**
 * BERT's WordPiece in GGUF's spelling: the start of a word has a blank mark, instead of ## on later pieces. A word is
 * split into the longest tokens from its start. If they do not cover it, it becomes one unknown token.
 */
export class WordPieceEncoder {
  readonly #trie: TokenTrie;
  readonly #unknown: Int32Array; // [1] or [0]
  readonly #cache = new PieceCache();

  constructor(vocabulary: Vocabulary, private readonly rules: WordPieceRules) {
    // Plain text must never become a control token.
    this.#trie = new TokenTrie(
      [...vocabulary.ids].filter(([, id]) => vocabulary.types[id] !== TOKEN_TYPE.CONTROL),
    );
    this.#unknown = Int32Array.from(vocabulary.unknown === undefined ? [] : [vocabulary.unknown]);
  }

  /**
   * Appends the tokens of well-formed text without special tokens. May stop once there are more than `atMost`
   * tokens.
   */
  *encode(text: string, tokens: number[], atMost: number): Paced<void> {
    let pieces = 0;
    for (const word of words(text, this.rules)) {
      if (word === undefined || ++pieces % STEPS_PER_OFFER === 0) yield;
      if (word === undefined) continue;
      let found = this.#cache.get(word);
      if (!found) {
        found = yield* this.#encodeWord(BLANK_MARK + word);
        this.#cache.set(word, found);
      }
      if (found.length <= STEPS_PER_OFFER) { for (let i = 0; i < found.length; i++) tokens.push(found[i]); }
      else yield* appendAll(found, tokens, atMost);
      if (tokens.length > atMost) return;
    }
  }

  *#encodeWord(word: string): Paced<Int32Array> {
    const tokens: number[] = [];
    for (let start = 0; start < word.length;) {
      let longest = NONE;
      let end = start;
      this.#trie.tokensFrom(word, start, (token, at) => [longest, end] = [token, at]);
      if (longest === NONE) return this.#unknown;
      tokens.push(longest);
      if (tokens.length % STEPS_PER_OFFER === 0) yield;
      start = end;
    }
    return Int32Array.from(tokens);
  }
}

/**
 * Yields words: runs of other characters than white space, and characters that are separate words. Control characters
 * and U+FFFD are dropped. Yields undefined when the work may pause.
 */
function* words(
  text: string,
  { lowercase, stripAccents }: WordPieceRules,
): Generator<string | undefined> {
  let word = "";
  let characters = 0;
  for (const character of text) {
    if (++characters % STEPS_PER_OFFER === 0) yield undefined;
    const given = character.codePointAt(0)!;
    const code = stripAccents ? baseOf(given) : given;
    const flags = classOf(code);
    if (flags & SPACE) {
      if (word !== "") yield word;
      word = "";
      continue;
    }
    if (code === 0xfffd || (flags & CONTROL) !== 0 || (stripAccents && (flags & MARK) !== 0)) continue;
    const normal = String.fromCodePoint(lowercase ? lowerOf(code) : code);
    if (!standsAlone(code, flags)) {
      word += normal;
      continue;
    }
    if (word !== "") yield word;
    word = "";
    yield normal;
  }
  if (word !== "") yield word;
}
