/** Patterns of JSON schema, which are ECMAScript's with the `u` flag, in the syntax of Rust's regex crate. */

/** What ECMAScript's \s and . stand for, where Rust's differ. */
const WHITE =
  "\\t-\\r \\u{a0}\\u{1680}\\u{2000}-\\u{200a}\\u{2028}\\u{2029}\\u{202f}\\u{205f}\\u{3000}\\u{feff}";
const ANY = "[^\\n\\r\\u{2028}\\u{2029}]";
const CLASSES: Readonly<Record<string, string>> = { d: "0-9", w: "A-Za-z0-9_", s: WHITE };
const CONTROLS: Readonly<Record<string, string>> = { t: "\\t", n: "\\n", r: "\\r", f: "\\x0c", v: "\\x0b" };

/** Throws SyntaxError for what is no pattern, and for what only a backtracking engine can do. */
export function rustPattern(source: string): string {
  // Without the flag, more may be escaped, as in "\\-", with no other meaning for what is left of the syntax then.
  if (!isPattern(source, "u") && (/\\[up]\{/i.test(source) || !isPattern(source, ""))) {
    throw new SyntaxError(`is not a valid regular expression: ${JSON.stringify(source.slice(0, 100))}`);
  }
  const result: string[] = [];
  for (let at = 0; at < source.length;) {
    const read = source[at] === "[" ? readClass(source, at) : readUnit(source, at);
    result.push(read.text);
    at = read.end;
  }
  return result.join("");
}

function isPattern(source: string, flags: string): boolean {
  try {
    new RegExp(source, flags);
    return true;
  } catch {
    return false;
  }
}

interface Read {
  readonly text: string;
  readonly end: number;
}

/** Something outside a class. */
function readUnit(source: string, at: number): Read {
  const character = String.fromCodePoint(source.codePointAt(at)!);
  if (character === ".") return { text: ANY, end: at + 1 };
  if (character === "(" && source[at + 1] === "?") return readGroup(source, at);
  if (character === "\\") return readEscape(source, at, false);
  // All other syntax is the same; a blank and "#" have a meaning in a verbose pattern alone.
  return { text: character, end: at + character.length };
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
  while (source[at] !== "]") {
    const read = source[at] === "\\" ? readEscape(source, at, true) : readMember(source, at);
    members.push(read.text);
    at = read.end;
  }
  if (members.length === 0) {
    return { text: negated ? "[\\x00-\\u{10ffff}]" : "[^\\x00-\\u{10ffff}]", end: at + 1 };
  }
  return { text: `[${negated ? "^" : ""}${members.join("")}]`, end: at + 1 };
}

/** A character in a class. A dash keeps its place, which says whether it makes a range; the rest has no other meaning there. */
function readMember(source: string, at: number): Read {
  const code = source.codePointAt(at)!;
  const character = String.fromCodePoint(code);
  const text = /[\w-]/.test(character) || code > 0x7f ? character : literal(code);
  return { text: character === "-" ? dash(source, at) : text, end: at + character.length };
}

/** A dash at either end of a class stands for itself; Rust would take "--" for a difference. */
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
  if (letter in CONTROLS) return { text: CONTROLS[letter], end: at + 2 };
  if (letter === "b" && inClass) return { text: "\\x08", end: at + 2 };
  if (letter === "0") return { text: "\\x00", end: at + 2 };
  if (letter === "c") return { text: literal(rest.charCodeAt(2) % 32), end: at + 3 };
  const pair = /^\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})/i.exec(rest);
  if (pair) {
    const code = 0x10000 + ((parseInt(pair[1], 16) & 0x3ff) << 10) + (parseInt(pair[2], 16) & 0x3ff);
    return { text: literal(code), end: at + 12 };
  }
  const code = /^\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|u\{([0-9a-f]+)\})/i.exec(rest);
  if (code) {
    const point = parseInt(code[1] ?? code[2] ?? code[3], 16);
    if (point >= 0xd800 && point <= 0xdfff) throw new SyntaxError("has half a surrogate pair");
    return { text: literal(point), end: at + code[0].length };
  }
  const property = /^\\[pP]\{([^}]*)\}/.exec(rest);
  if (property) return { text: property[0], end: at + property[0].length };
  if (/[bBk1-9]/.test(letter)) throw new SyntaxError(`has \\${letter}, which is not supported`);
  return { text: literal(letter.codePointAt(0)!), end: at + 2 };
}

function literal(code: number): string {
  return `\\u{${code.toString(16)}}`;
}
