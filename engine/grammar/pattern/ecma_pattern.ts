/** Translates patterns of JSON schema (ECMAScript with the `u` flag) into the syntax of Rust's regex crate. */

/** Classes for ECMAScript's \s and ., where they differ from Rust's. */
const WHITE =
  "\\t-\\r \\u{a0}\\u{1680}\\u{2000}-\\u{200a}\\u{2028}\\u{2029}\\u{202f}\\u{205f}\\u{3000}\\u{feff}";
const ANY = "[^\\n\\r\\u{2028}\\u{2029}]";
const CLASSES: Readonly<Record<string, string>> = { d: "0-9", w: "A-Za-z0-9_", s: WHITE };
const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, r: 13, f: 12, v: 11 };

/** Class of the characters that JSON can only write as \uXXXX, which answers never contain. */
// deno-lint-ignore no-control-regex
const UNWRITABLE = /[\0-\x07\v\x0e-\x1f\x7f]/u;
const WRITABLE = "[^\\x00-\\x07\\x0b\\x0e-\\x1f\\x7f]";
/** Expression that matches nothing. */
const NOTHING = "[^\\x00-\\u{10ffff}]";

/** Returns whether a string in a JSON answer can contain the text. */
export function isWritable(text: string): boolean {
  return text.isWellFormed() && !UNWRITABLE.test(text);
}

/**
 * Returns the pattern in Rust's syntax. Unwritable characters match nothing, because the library would match a text
 * without them. Throws SyntaxError for an invalid pattern, and for one that needs a backtracking engine.
 */
export function rustPattern(source: string): string {
  if (!source.isWellFormed()) throw new SyntaxError("has half a surrogate pair");
  if (!isPattern(source)) {
    throw new SyntaxError(`is not a valid regular expression: ${JSON.stringify(source.slice(0, 100))}`);
  }
  const result: string[] = [];
  for (let at = 0; at < source.length;) {
    const read = source[at] === "[" ? readClass(source, at) : readUnit(source, at);
    result.push(read.code !== undefined && isUnwritable(read.code) ? NOTHING : read.text);
    at = read.end;
  }
  return result.join("");
}

/**
 * Returns whether the pattern is valid. Without the `u` flag more characters may be escaped, as in "\\-"; other syntax
 * has the same meaning.
 */
export function isPattern(source: string): boolean {
  return parses(source, "u") || (!/\\[up]\{/i.test(source) && parses(source, ""));
}

function parses(source: string, flags: string): boolean {
  try {
    new RegExp(source, flags);
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns a class without unwritable characters. A class with all control characters would also match escaped quotes
 * and backslashes in the library.
 */
function writableOf(characters: string): string {
  return `[${characters}&&${WRITABLE}]`;
}

function isUnwritable(code: number): boolean {
  return UNWRITABLE.test(String.fromCodePoint(code));
}

interface Read {
  readonly text: string;
  readonly end: number;
  /** Code of the character that the text stands for; undefined if it is not one character. */
  readonly code?: number;
}

/** Reads one item of a pattern outside a class. */
function readUnit(source: string, at: number): Read {
  const character = String.fromCodePoint(source.codePointAt(at)!);
  if (character === ".") return { text: ANY, end: at + 1 };
  if (character === "(" && source[at + 1] === "?") return readGroup(source, at);
  if (character === "\\") return readEscape(source, at, false);
  // The remaining syntax is equal in both languages; blanks and "#" are special only in verbose patterns.
  return { text: character, end: at + character.length, code: character.codePointAt(0) };
}

function readGroup(source: string, at: number): Read {
  const head = source.slice(at);
  if (head.startsWith("(?:")) return { text: "(?:", end: at + 3 };
  const name = /^\(\?<([^=!>][^>]*)>/.exec(head);
  if (name) return { text: "(?:", end: at + name[0].length };
  throw new SyntaxError(`has ${head.slice(0, head[2] === "<" ? 4 : 3)}, which is not supported`);
}

function readClass(source: string, start: number): Read {
  let at = start + 1;
  const negated = source[at] === "^";
  if (negated) at++;
  const members: string[] = [];
  let safe = !negated;
  while (source[at] !== "]") {
    const read = source[at] === "\\" ? readEscape(source, at, true) : readMember(source, at);
    members.push(read.text);
    safe &&= read.code === undefined ? !/^\\[DWSpP]/.test(source.slice(at)) : !isUnwritable(read.code);
    at = read.end;
  }
  if (members.length === 0) return { text: negated ? "[\\x00-\\u{10ffff}]" : NOTHING, end: at + 1 };
  const text = `[${negated ? "^" : ""}${members.join("")}]`;
  return { text: safe ? text : writableOf(text), end: at + 1 };
}

/**
 * Reads one item in a class. A dash keeps its position, which decides whether it forms a range; other characters are
 * literal.
 */
function readMember(source: string, at: number): Read {
  const code = source.codePointAt(at)!;
  const character = String.fromCodePoint(code);
  const text = /[\w-]/.test(character) || code > 0x7f ? character : literal(code);
  return { text: character === "-" ? dash(source, at) : text, end: at + character.length, code };
}

/** Returns a dash at either end of a class as a literal: Rust would read "--" as a difference. */
function dash(source: string, at: number): string {
  const first = source[at - 1] === "[" || (source[at - 1] === "^" && source[at - 2] === "[");
  const afterClass = /\\[dDsSwW]$/.test(source.slice(Math.max(0, at - 2), at));
  return first || afterClass || source[at + 1] === "]" ? "\\x2d" : "-";
}

function readEscape(source: string, at: number, inClass: boolean): Read {
  const letter = source[at + 1];
  const rest = source.slice(at);
  const lower = letter.toLowerCase();
  if (lower in CLASSES) {
    const members = CLASSES[lower];
    return { text: `[${letter === lower ? "" : "^"}${members}]`, end: at + 2 };
  }
  const one = (code: number, end: number): Read => ({ text: literal(code), end, code });
  if (letter in CONTROLS) return one(CONTROLS[letter], at + 2);
  if (letter === "b" && inClass) return one(8, at + 2);
  if (letter === "0") return one(0, at + 2);
  if (letter === "c") return one(rest.charCodeAt(2) % 32, at + 3);
  const pair = /^\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})/i.exec(rest);
  if (pair) {
    const code = 0x10000 + ((parseInt(pair[1], 16) & 0x3ff) << 10) + (parseInt(pair[2], 16) & 0x3ff);
    return one(code, at + 12);
  }
  const code = /^\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|u\{([0-9a-f]+)\})/i.exec(rest);
  if (code) {
    const point = parseInt(code[1] ?? code[2] ?? code[3], 16);
    if (point >= 0xd800 && point <= 0xdfff) throw new SyntaxError("has half a surrogate pair");
    return one(point, at + code[0].length);
  }
  const property = /^\\[pP]\{([^}]*)\}/.exec(rest);
  if (property) {
    return { text: inClass ? property[0] : writableOf(property[0]), end: at + property[0].length };
  }
  if (/[bBk1-9]/.test(letter)) throw new SyntaxError(`has \\${letter}, which is not supported`);
  return one(letter.codePointAt(0)!, at + 2);
}

function literal(code: number): string {
  return `\\u{${code.toString(16)}}`;
}
