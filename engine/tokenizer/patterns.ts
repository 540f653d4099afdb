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
 * The patterns of the published tokenizers, written out as scanners that read each character a bounded number of
 * times. Sources: the `pre_tokenizer` entries of the models' tokenizer.json; where llama.cpp, whose ids count,
 * simplifies them, its variant.
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

/** `'s|'t|'re|'ve|'m|'ll|'d`; capitals too where `fold` is 32, the bit that lowers an ASCII letter. */
function contraction(text: string, index: number, end: number, fold: 0 | 32): number {
  if (index + 1 >= end || text.charCodeAt(index) !== APOSTROPHE) return index;
  const pair = String.fromCharCode(text.charCodeAt(index + 1) | fold, text.charCodeAt(index + 2) | fold);
  if ("stmd".includes(pair[0])) return index + 2;
  if (index + 2 < end && (pair === "re" || pair === "ve" || pair === "ll")) return index + 3;
  return index;
}

/** `\s+(?!\S)|\s+`: a run of white space, without its last character where something follows. */
function whiteSpace(text: string, index: number, end: number): number {
  const stop = runOf(SPACE, text, index, end);
  return stop < end && stop - index > 1 ? stop - 1 : stop; // white space is never a surrogate pair
}

/** `\s*[\r\n]+`: a run of white space as far as its last line break. */
function lineBreaks(text: string, index: number, end: number): number {
  let stop = runOf(SPACE, text, index, end);
  while (stop > index && !isNewline(text.charCodeAt(stop - 1))) stop--;
  return stop;
}

/** `\p{N}{1,most}` */
export function digits(most: number): Match {
  return (text, index, end) => {
    for (let count = 0; count < most && (classAt(text, index, end) & NUMBER) !== 0; count++) {
      index += widthAt(text, index);
    }
    return index;
  };
}

/** `\s?[flags]+` */
export function spacedRun(flags: number): Match {
  return (text, index, end) => {
    const body = (classAt(text, index, end) & SPACE) !== 0 ? index + 1 : index;
    const stop = runOf(flags, text, body, end);
    return stop > body ? stop : index;
  };
}

/**
 * `\s?[characters]+`, or without `\s?`; `characters` is tested with one character at a time. White space is never
 * one of them, even where a range spans it: llama.cpp blanks it out before it matches such ranges.
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

/** `[\r\n]` */
export const oneLineBreak: Match = (text, index) => isNewline(text.charCodeAt(index)) ? index + 1 : index;

/** `\n+` */
export const lineBreakRun: Match = (text, index, end) => {
  while (index < end && text.charCodeAt(index) === 0x0a) index++;
  return index;
};

/** `[\p{P}symbols]+`, the symbols being ASCII. */
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

/** `[0-9][0-9][0-9]` */
export const threeAsciiDigits: Match = (text, index, end) => {
  if (index + 3 > end) return index;
  for (let i = index; i < index + 3; i++) {
    const code = text.charCodeAt(i);
    if (code < 0x30 || code > 0x39) return index;
  }
  return index + 3;
};

/** `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+` */
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
  /** What words are made of: LETTER, with or without MARK. */
  letters: number;
  /** How a word is matched: every run of letters, or only as far as its case allows, or with marks. */
  word?: Match;
  /** Marks are in such words, and capitals alone only where nothing else is: a mark that leads them is a word of its own. */
  markBeforeCapitals?: "apart";
  /** Most digits to a piece. */
  digits: 1 | 3 | typeof Infinity;
  /** Whether 's and the like stand apart, belong to their word, or are nothing special. */
  contractions: "apart" | "inside" | "none";
  /** What may follow punctuation in its piece, and how much of it. */
  tail: "" | "\r\n" | "\r\n/";
  tailLength?: 1;
}

/**
 * The family of cl100k, in this order: contractions, a word with one leading character that is no letter, digit
 * or line break, digits, punctuation with one leading blank, white space with line breaks, other white space.
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
    // What may lead a word may be all of it: a mark.
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

/** Whether A to Z are all that there is, and something is. */
function isCapitals(text: string, index: number, end: number): boolean {
  for (let i = index; i < end; i++) if (!isUpperAscii(text.charCodeAt(i))) return false;
  return end > index;
}

/** `\p{L}\p{M}*(?: \p{L}\p{M}*)*` again and again: words with single blanks between them. */
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
 * `U*L+|U+L*` where U is every letter but a-z and L every letter but A-Z, `letters` being LETTER, with or without MARK:
 * llama.cpp's reading of the o200k words, whose upper and lower case it tells apart in ASCII only.
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
    // L+ wants one letter at least: U* gives back what stands after the last letter that may be an L.
    let last = upper;
    while (last > index && isUpperAscii(text.charCodeAt(last - 1))) last--;
    return last > index ? last : upper;
  };
}

const HAN =
  /[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2ebef}\u{2f800}-\u{2fa1f}]/u;

/** Runs of Han characters, and of the others as `words` cuts them, letters of no case with the rest. */
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
 * `[ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*`, then white space as
 * in `words`; without `breaks`, line breaks stand alone.
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

/** One character that is punctuation or an ASCII symbol. */
export const onePunctuation: Match = (text, index, end) => {
  const code = text.codePointAt(index)!;
  const flags = classAt(text, index, end);
  const matches = (flags & PUNCTUATION) !== 0 || (code < 0x80 && (flags & SYMBOL) !== 0);
  return matches ? index + widthAt(text, index) : index;
};

/** `[\t\n]|    |  ` */
export const tabOrBlanks: Match = (text, index, end) => {
  const code = text.charCodeAt(index);
  if (code === 0x09 || code === 0x0a) return index + 1;
  let stop = index;
  while (stop < Math.min(end, index + 4) && text.charCodeAt(stop) === BLANK) stop++;
  const count = stop - index;
  return count === 4 ? stop : count >= 2 ? index + 2 : index;
};

/** An expression that is tried at one place; it must read a bounded number of characters. */
export function expression(source: string): Match {
  const sticky = new RegExp(source, "y");
  return (text, index, end) => {
    sticky.lastIndex = index;
    return sticky.test(text) && sticky.lastIndex <= end ? sticky.lastIndex : index;
  };
}
