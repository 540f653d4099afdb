import type { Match } from "./stage.ts";
import {
  classAt,
  classOf,
  LETTER,
  MARK,
  NUMBER,
  PUNCTUATION,
  runOf,
  runWithout,
  SPACE,
  SYMBOL,
  widthAt,
} from "./unicode.ts";

/**
 * Patterns of published tokenizers as scanners that read each character a bounded number of times. Sources: the
 * `pre_tokenizer` entries of the models' tokenizer.json. llama.cpp's simplified patterns are used, because its ids are
 * the reference.
 */

const BLANK = 0x20;
const APOSTROPHE = 0x27;
const SLASH = 0x2f;

function isNewline(code: number): boolean {
  return code === 0x0a || code === 0x0d;
}

function isLowerAscii(code: number): boolean {
  return code >= 0x61 && code <= 0x7a;
}

function isUpperAscii(code: number): boolean {
  return code >= 0x41 && code <= 0x5a;
}

/** Matches `'s|'t|'re|'ve|'m|'ll|'d`; also in capitals if `fold` is 32, the bit that lowers an ASCII letter. */
function contraction(text: string, index: number, end: number, fold: 0 | 32): number {
  if (index + 1 >= end || text.charCodeAt(index) !== APOSTROPHE) return index;
  const pair = String.fromCharCode(text.charCodeAt(index + 1) | fold, text.charCodeAt(index + 2) | fold);
  if ("stmd".includes(pair[0])) return index + 2;
  if (index + 2 < end && (pair === "re" || pair === "ve" || pair === "ll")) return index + 3;
  return index;
}

/** Matches `\s+(?!\S)|\s+`: a run of white space, without its last character if more text follows. */
function whiteSpace(text: string, index: number, end: number): number {
  const stop = runOf(SPACE, text, index, end);
  return stop < end && stop - index > 1 ? stop - 1 : stop; // no white space character is a surrogate pair
}

/** Matches `\s*[\r\n]+`: a run of white space up to its last line break. */
function lineBreaks(text: string, index: number, end: number): number {
  let stop = runOf(SPACE, text, index, end);
  while (stop > index && !isNewline(text.charCodeAt(stop - 1))) stop--;
  return stop;
}

/** Returns a scanner for `\p{N}{1,most}`. */
export function digits(most: number): Match {
  return (text, index, end) => {
    for (let count = 0; count < most && (classAt(text, index, end) & NUMBER) !== 0; count++) {
      index += widthAt(text, index);
    }
    return index;
  };
}

/** Returns a scanner for `\s?[flags]+`. */
export function spacedRun(flags: number): Match {
  return (text, index, end) => {
    const body = (classAt(text, index, end) & SPACE) !== 0 ? index + 1 : index;
    const stop = runOf(flags, text, body, end);
    return stop > body ? stop : index;
  };
}

/**
 * Returns a scanner for `\s?[characters]+`, or without `\s?`. `characters` tests one character at a time. White space
 * never matches, even inside a range: llama.cpp replaces it before it matches ranges.
 */
export function characterRun(characters: RegExp, spaced: boolean): Match {
  const isOne = (code: number) =>
    (classOf(code) & SPACE) === 0 && characters.test(String.fromCodePoint(code));
  return (text, index, end) => {
    const body = spaced && (classAt(text, index, end) & SPACE) !== 0 ? index + 1 : index;
    let stop = body;
    while (stop < end && isOne(text.codePointAt(stop)!)) stop += widthAt(text, stop);
    return stop > body ? stop : index;
  };
}

/** Matches `[\r\n]`. */
export const oneLineBreak: Match = (text, index) => isNewline(text.charCodeAt(index)) ? index + 1 : index;

/** Matches `\n+`. */
export const lineBreakRun: Match = (text, index, end) => {
  while (index < end && text.charCodeAt(index) === 0x0a) index++;
  return index;
};

/** Returns a scanner for `[\p{P}symbols]+`, with ASCII symbols. */
export function punctuationRun(symbols: string): Match {
  return (text, index, end) => {
    while (index < end) {
      const code = text.codePointAt(index)!;
      if ((classOf(code) & PUNCTUATION) === 0 && !symbols.includes(String.fromCodePoint(code))) break;
      index += widthAt(text, index);
    }
    return index;
  };
}

/** Matches `[0-9][0-9][0-9]`. */
export const threeAsciiDigits: Match = (text, index, end) => {
  if (index + 3 > end) return index;
  for (let i = index; i < index + 3; i++) {
    const code = text.charCodeAt(i);
    if (code < 0x30 || code > 0x39) return index;
  }
  return index + 3;
};

/** Matches `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`. */
export const gpt2: Match = (text, index, end) => {
  const short = contraction(text, index, end, 0);
  if (short > index) return short;
  const body = text.charCodeAt(index) === BLANK ? index + 1 : index;
  const flags = classAt(text, body, end);
  if (body === end || (flags & SPACE) !== 0) return whiteSpace(text, index, end);
  if (flags & LETTER) return runOf(LETTER, text, body, end);
  if (flags & NUMBER) return runOf(NUMBER, text, body, end);
  return runWithout(SPACE | LETTER | NUMBER, text, body, end);
};

export interface WordRules {
  /** Character classes of a word: LETTER, with or without MARK. */
  letters: number;
  /** Matches one word; by default any run of `letters`. */
  word?: Match;
  /** Whether a mark before a word of ASCII capitals is a separate word. Other words include marks. */
  markBeforeCapitals?: "apart";
  /** Maximum digits per piece. */
  digits: 1 | 3 | typeof Infinity;
  /** Whether contractions such as 's are separate pieces, part of their word, or not special. */
  contractions: "apart" | "inside" | "none";
  /** Characters that may follow punctuation in the same piece, and their maximum number. */
  tail: "" | "\r\n" | "\r\n/";
  tailLength?: 1;
}

/**
 * Returns a scanner for the patterns of the cl100k family, in this order: contractions; a word with one optional
 * leading character that is not a letter, digit or line break; digits; punctuation with one optional leading blank;
 * white space with line breaks; other white space.
 */
export function words(rules: WordRules): Match {
  const { letters, contractions, tail, tailLength = Infinity } = rules;
  const word: Match = rules.word ?? ((text, index, end) => runOf(letters, text, index, end));
  const number = digits(rules.digits);
  const isTail = (code: number) => (tail !== "" && isNewline(code)) || (tail === "\r\n/" && code === SLASH);
  return (text, index, end) => {
    if (contractions === "apart") {
      const short = contraction(text, index, end, 32);
      if (short > index) return short;
    }
    const code = text.codePointAt(index)!;
    const flags = classOf(code);
    const leads = (flags & (letters | NUMBER)) === 0 && !isNewline(code);
    let body = leads ? index + widthAt(text, index) : index;
    let stop = word(text, body, end);
    if (rules.markBeforeCapitals && (flags & MARK) !== 0 && isCapitals(text, body, stop)) return body;
    // A mark that may precede a word may also be the whole word.
    if (stop === body && leads) stop = word(text, body = index, end);
    if (stop > body) return contractions === "inside" ? contraction(text, stop, end, 32) : stop;
    if (flags & NUMBER) return number(text, index, end);
    const marks = code === BLANK ? index + 1 : index;
    let last = runWithout(SPACE | letters | NUMBER, text, marks, end);
    if (last > marks) {
      const most = Math.min(end, last + tailLength);
      while (last < most && isTail(text.charCodeAt(last))) last++;
      return last;
    }
    const lines = lineBreaks(text, index, end);
    return lines > index ? lines : whiteSpace(text, index, end);
  };
}

/** Returns whether the range is not empty and has only the letters A to Z. */
function isCapitals(text: string, index: number, end: number): boolean {
  for (let i = index; i < end; i++) if (!isUpperAscii(text.charCodeAt(i))) return false;
  return end > index;
}

/** Matches repetitions of `\p{L}\p{M}*(?: \p{L}\p{M}*)*`: words with single blanks between them. */
export const phrase: Match = (text, index, end) => {
  let stop = index;
  for (let next = index; (classAt(text, next, end) & LETTER) !== 0;) {
    stop = runOf(MARK, text, next + widthAt(text, next), end);
    const blank = text.charCodeAt(stop) === BLANK && (classAt(text, stop + 1, end) & LETTER) !== 0;
    next = blank && stop < end ? stop + 1 : stop;
  }
  return stop;
};

/**
 * Returns a scanner for `U*L+|U+L*`: U is every letter except a-z, and L every letter except A-Z. `letters` is LETTER,
 * with or without MARK. llama.cpp's version of the o200k words distinguishes case only in ASCII.
 */
export function casedWord(letters: number): Match {
  return (text, index, end) => {
    let upper = index;
    while ((classAt(text, upper, end) & letters) !== 0 && !isLowerAscii(text.charCodeAt(upper))) {
      upper += widthAt(text, upper);
    }
    let lower = upper;
    while ((classAt(text, lower, end) & letters) !== 0 && !isUpperAscii(text.charCodeAt(lower))) {
      lower += widthAt(text, lower);
    }
    if (lower > upper) return lower;
    // L+ needs at least one letter, so U* releases the letters from the last possible L on.
    let last = upper;
    while (last > index && isUpperAscii(text.charCodeAt(last - 1))) last--;
    return last > index ? last : upper;
  };
}

const HAN =
  /[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2ebef}\u{2f800}-\u{2fa1f}]/u;

/**
 * Returns a scanner that separates runs of Han characters from other characters, which `words` splits. Caseless letters
 * belong to the others.
 */
export function apartFromHan(rules: WordRules): Match {
  const isHan = (code: number) => code >= 0x3400 && HAN.test(String.fromCodePoint(code));
  const hanRun: Match = (text, index, end) => {
    while (index < end && isHan(text.codePointAt(index)!)) index += widthAt(text, index);
    return index;
  };
  const word: Match = (text, index, end) => {
    while (index < end) {
      const code = text.codePointAt(index)!;
      if ((classOf(code) & LETTER) === 0 || isHan(code)) break;
      index += widthAt(text, index);
    }
    return index;
  };
  const others = words({ ...rules, word });
  return (text, index, end) => {
    const stop = hanRun(text, index, end);
    return stop > index ? stop : others(text, index, end);
  };
}

/**
 * Returns a scanner for `[ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*`,
 * then white space as in `words`. Without `breaks`, line breaks are separate pieces.
 */
export function deepseek3(breaks: boolean): Match {
  return (text, index, end) => {
    const code = text.codePointAt(index)!;
    const flags = classOf(code);
    const next = index + widthAt(text, index);
    if (code < 0x80 && (flags & (PUNCTUATION | SYMBOL)) !== 0) {
      let stop = next;
      while (stop < end && (isLowerAscii(text.charCodeAt(stop)) || isUpperAscii(text.charCodeAt(stop)))) {
        stop++;
      }
      if (stop > next) return stop;
    }
    const leads = (flags & (LETTER | MARK | PUNCTUATION | SYMBOL)) === 0 && !isNewline(code);
    const body = leads ? next : index;
    const stop = runOf(LETTER | MARK, text, body, end);
    if (stop > body) return stop;
    const marks = code === BLANK ? next : index;
    let last = runOf(PUNCTUATION | SYMBOL, text, marks, end);
    if (last > marks) {
      while (breaks && last < end && isNewline(text.charCodeAt(last))) last++;
      return last;
    }
    if (!breaks && isNewline(code)) return next;
    const lines = breaks ? lineBreaks(text, index, end) : index;
    return lines > index ? lines : whiteSpace(text, index, end);
  };
}

/** Matches one punctuation character or ASCII symbol. */
export const onePunctuation: Match = (text, index, end) => {
  const code = text.codePointAt(index)!;
  const flags = classAt(text, index, end);
  const matches = (flags & PUNCTUATION) !== 0 || (code < 0x80 && (flags & SYMBOL) !== 0);
  return matches ? index + widthAt(text, index) : index;
};

/** Matches `[\t\n]|    |  `. */
export const tabOrBlanks: Match = (text, index, end) => {
  const code = text.charCodeAt(index);
  if (code === 0x09 || code === 0x0a) return index + 1;
  let stop = index;
  while (stop < Math.min(end, index + 4) && text.charCodeAt(stop) === BLANK) stop++;
  const count = stop - index;
  return count === 4 ? stop : count >= 2 ? index + 2 : index;
};

/**
 * Returns a scanner that applies a regular expression at one position. The expression must read a bounded number of
 * characters.
 */
export function expression(source: string): Match {
  const sticky = new RegExp(source, "y");
  return (text, index, end) => {
    sticky.lastIndex = index;
    return sticky.test(text) && sticky.lastIndex <= end ? sticky.lastIndex : index;
  };
}
