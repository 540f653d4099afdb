/**
 * Character classes for the pre-tokenizers' patterns, looked up by table. A regular expression needs stack in
 * proportion to its match, and an untrusted text may be one run of a million letters.
 */

export const LETTER = 1; // \p{L}
export const NUMBER = 2; // \p{N}
export const SPACE = 4; // \s in Python and Rust: with U+0085, without U+FEFF
export const MARK = 8; // \p{M}
export const PUNCTUATION = 16; // \p{P}
export const SYMBOL = 32; // \p{S}
export const CONTROL = 64; // \p{Cc}, \p{Cf} and \p{Co}

const CLASSES: readonly (readonly [RegExp, number])[] = [
  [/\p{L}/u, LETTER],
  [/\p{N}/u, NUMBER],
  [/[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/u, SPACE],
  [/\p{M}/u, MARK],
  [/\p{P}/u, PUNCTUATION],
  [/\p{S}/u, SYMBOL],
  [/[\p{Cc}\p{Cf}\p{Co}]/u, CONTROL],
];

/**
 * Characters assigned after Unicode 15.1, the version in llama.cpp. They count as unassigned, so that token ids do not
 * depend on the runtime's Unicode version.
 */
const ASSIGNED_LATER =
  /[\u0897\u1b4e\u1b4f\u1b7f\u1c89\u1c8a\u2427-\u2429\u31e4\u31e5\ua7cb-\ua7cd\ua7da-\ua7dc\u{105c0}-\u{105f3}\u{10d40}-\u{10d8f}\u{10ec2}-\u{10ec4}\u{10efc}\u{11380}-\u{113e2}\u{116d0}-\u{116e3}\u{11bc0}-\u{11bf9}\u{11f5a}\u{13460}-\u{143fa}\u{16100}-\u{16139}\u{16d40}-\u{16d79}\u{18cff}\u{1cc00}-\u{1ceb3}\u{1e5d0}-\u{1e5ff}\u{1f8b2}-\u{1f8bb}\u{1f8c0}\u{1f8c1}\u{1fa89}\u{1fa8f}\u{1fabe}\u{1fac6}\u{1fadc}\u{1fadf}\u{1fae9}\u{1fbcb}-\u{1fbef}]/u;

const PAGE_BITS = 8;
const PAGE_SIZE = 1 << PAGE_BITS;

/** Class flags by page of code points, filled on demand. */
const pages: (Uint8Array | undefined)[] = new Array(0x110000 >> PAGE_BITS).fill(undefined);

function fillPage(page: number): Uint8Array {
  const classes = new Uint8Array(PAGE_SIZE);
  for (let i = 0; i < PAGE_SIZE; i++) {
    const character = String.fromCodePoint((page << PAGE_BITS) + i);
    if (ASSIGNED_LATER.test(character)) continue;
    for (const [pattern, flag] of CLASSES) {
      if (pattern.test(character)) classes[i] |= flag;
    }
  }
  return pages[page] = classes;
}

/** Returns the class flags of a code point; 0 if it is unassigned. */
export function classOf(codePoint: number): number {
  const page = pages[codePoint >> PAGE_BITS] ?? fillPage(codePoint >> PAGE_BITS);
  return page[codePoint & (PAGE_SIZE - 1)];
}

/** Returns the number of UTF-16 units of the character at `index`. */
export function widthAt(text: string, index: number): number {
  return (text.charCodeAt(index) & 0xfc00) === 0xd800 ? 2 : 1;
}

/** Returns the class flags of the character at `index`; 0 at and past `end`. */
export function classAt(text: string, index: number, end: number): number {
  return index < end ? classOf(text.codePointAt(index)!) : 0;
}

/** Returns the end of the run of characters with any of `flags`. */
export function runOf(flags: number, text: string, index: number, end: number): number {
  return runWhile(true, flags, text, index, end);
}

/** Returns the end of the run of characters with none of `flags`. */
export function runWithout(flags: number, text: string, index: number, end: number): number {
  return runWhile(false, flags, text, index, end);
}

/** Reads each unit once where possible: an untrusted text may be one run of millions of letters. */
function runWhile(has: boolean, flags: number, text: string, index: number, end: number): number {
  while (index < end) {
    const unit = text.charCodeAt(index);
    const isPair = (unit & 0xfc00) === 0xd800;
    const codePoint = isPair ? text.codePointAt(index)! : unit;
    if (((classOf(codePoint) & flags) !== 0) !== has) break;
    index += isPair ? 2 : 1;
  }
  return index;
}

/** Returns the lower case of a letter by Unicode's simple mapping; other characters unchanged. */
export function lowerOf(codePoint: number): number {
  if (classOf(codePoint) === 0) return codePoint;
  return String.fromCodePoint(codePoint).toLowerCase().codePointAt(0)!;
}

/** Returns the character without accents: the first of its canonical decomposition. */
export function baseOf(codePoint: number): number {
  if (classOf(codePoint) === 0) return codePoint;
  return String.fromCodePoint(codePoint).normalize("NFD").codePointAt(0)!;
}
