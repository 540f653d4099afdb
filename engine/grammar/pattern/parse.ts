/** Parses ECMAScript patterns into a tree. Only patterns with look-around need it. */

import { type CharacterSet, complement, setOf, union } from "../character_set.ts";

export type Pattern =
  | { readonly type: "set"; readonly set: CharacterSet }
  | { readonly type: "sequence"; readonly items: readonly Pattern[] }
  | { readonly type: "choice"; readonly options: readonly Pattern[] }
  | { readonly type: "repeat"; readonly item: Pattern; readonly least: number; readonly most: number }
  | { readonly type: "edge"; readonly at: "start" | "end" | "word" | "inside" }
  | { readonly type: "look"; readonly item: Pattern; readonly negative: boolean; readonly behind: boolean };

/** A pattern without an exact translation. The message completes "the pattern …". */
export class Inexact extends SyntaxError {}

const DIGITS: CharacterSet = [[0x30, 0x39]];
export const WORD: CharacterSet = [[0x30, 0x39], [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]];
const WHITE = setOf(
  [[9, 13], [0x20, 0x20], [0xa0, 0xa0], [0x1680, 0x1680], [0x2000, 0x200a], [0x2028, 0x2029]].concat(
    [[0x202f, 0x202f], [0x205f, 0x205f], [0x3000, 0x3000], [0xfeff, 0xfeff]],
  ) as [number, number][],
);
const LINE_ENDS: CharacterSet = [[10, 10], [13, 13], [0x2028, 0x2029]];
const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, r: 13, f: 12, v: 11, 0: 0 };
/** Maximum characters of a range for which the other letter case is added. */
const MOST_CASES = 2000;

/** Parses a pattern that is valid in ECMAScript. Throws Inexact for back-references and Unicode properties. */
export function parsePattern(source: string, ignoreCase: boolean): Pattern {
  return new Parser(source, ignoreCase).parse();
}

/** Returns a pattern that matches the given text anywhere. */
export function literalPattern(text: string): Pattern {
  return { type: "sequence", items: [...text].map((character) => one(character.codePointAt(0)!)) };
}

function one(code: number): Pattern {
  return { type: "set", set: [[code, code]] };
}

class Parser {
  #at = 0;

  constructor(private readonly source: string, private readonly ignoreCase: boolean) {}

  parse(): Pattern {
    const options = [this.#sequence()];
    while (this.#take("|")) options.push(this.#sequence());
    return options.length === 1 ? options[0] : { type: "choice", options };
  }

  #take(text: string): boolean {
    if (!this.source.startsWith(text, this.#at)) return false;
    this.#at += text.length;
    return true;
  }

  #sequence(): Pattern {
    const items: Pattern[] = [];
    while (this.#at < this.source.length && !"|)".includes(this.source[this.#at])) {
      items.push(this.#repeated(this.#unit()));
    }
    return items.length === 1 ? items[0] : { type: "sequence", items };
  }

  #repeated(item: Pattern): Pattern {
    const match = /^(?:([*+?])|\{(\d+)(,?)(\d*)\})\??/.exec(this.source.slice(this.#at, this.#at + 40));
    if (!match) return item;
    this.#at += match[0].length;
    const [, mark, low, comma, high] = match;
    const least = mark ? (mark === "+" ? 1 : 0) : Number(low);
    const most = mark ? (mark === "?" ? 1 : Infinity) : high ? Number(high) : comma ? Infinity : least;
    return { type: "repeat", item, least, most };
  }

  #unit(): Pattern {
    if (this.#take("(?<=")) return this.#look(false, true);
    if (this.#take("(?<!")) return this.#look(true, true);
    if (this.#take("(?=")) return this.#look(false, false);
    if (this.#take("(?!")) return this.#look(true, false);
    if (this.#take("(?:")) return this.#group();
    if (this.#take("(?<")) {
      this.#at = this.source.indexOf(">", this.#at) + 1;
      return this.#group();
    }
    if (this.#take("(?")) throw new Inexact(`has (?${this.source[this.#at]}, which is not supported`);
    if (this.#take("(")) return this.#group();
    if (this.#take("^")) return { type: "edge", at: "start" };
    if (this.#take("$")) return { type: "edge", at: "end" };
    if (this.#take("\\b")) return { type: "edge", at: "word" };
    if (this.#take("\\B")) return { type: "edge", at: "inside" };
    if (this.#take(".")) return { type: "set", set: complement(LINE_ENDS) };
    if (this.#take("[")) return { type: "set", set: this.#class() };
    if (/^\\[1-9k]/.test(this.source.slice(this.#at, this.#at + 2))) {
      throw new Inexact(`has ${this.source.slice(this.#at, this.#at + 2)}, which is not supported`);
    }
    return { type: "set", set: this.#cased(this.#member()) };
  }

  #group(): Pattern {
    const inner = this.parse();
    this.#take(")");
    return inner;
  }

  #look(negative: boolean, behind: boolean): Pattern {
    return { type: "look", item: this.#group(), negative, behind };
  }

  #class(): CharacterSet {
    const negated = this.#take("^");
    let set: CharacterSet = [];
    while (!this.#take("]")) {
      const first = this.#member();
      const isRange = isOne(first) && this.source[this.#at] === "-" && this.source[this.#at + 1] !== "]";
      if (!isRange) {
        set = union(set, first);
        continue;
      }
      this.#at++;
      const last = this.#member();
      // Without the `u` flag, a dash before a class such as \d is a character.
      set = union(set, isOne(last) ? [[first[0][0], last[0][0]]] : [...first, [0x2d, 0x2d], ...last]);
    }
    const cased = this.#cased(set);
    return negated ? complement(cased) : cased;
  }

  /** Reads a character or an escape, in a class or outside. */
  #member(): CharacterSet {
    const code = this.source.codePointAt(this.#at)!;
    this.#at += code > 0xffff ? 2 : 1;
    if (code !== 0x5c) return [[code, code]];
    const rest = this.source.slice(this.#at, this.#at + 12);
    const coded = /^(?:x([0-9a-f]{2})|u\{([0-9a-f]+)\}|u([0-9a-f]{4}))/i.exec(rest);
    const pair = /^u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})/i.exec(rest);
    if (pair) {
      this.#at += pair[0].length;
      const point = 0x10000 + ((parseInt(pair[1], 16) & 0x3ff) << 10) + (parseInt(pair[2], 16) & 0x3ff);
      return [[point, point]];
    }
    if (coded) {
      this.#at += coded[0].length;
      const point = parseInt(coded[1] ?? coded[2] ?? coded[3], 16);
      return [[point, point]];
    }
    if (/^p\{/i.test(rest)) throw new Inexact("has a Unicode property beside look-around, \\b or (?i)");
    const letter = String.fromCodePoint(this.source.codePointAt(this.#at)!);
    this.#at += letter.length;
    if (letter === "c") {
      const control = this.source.charCodeAt(this.#at++) % 32;
      return [[control, control]];
    }
    const classes: Readonly<Record<string, CharacterSet>> = { d: DIGITS, w: WORD, s: WHITE };
    const known = classes[letter.toLowerCase()];
    if (known) return letter === letter.toLowerCase() ? known : complement(known);
    const own = letter === "b" ? 8 : CONTROLS[letter] ?? letter.codePointAt(0)!;
    return [[own, own]];
  }

  /** Returns the set with both cases of its letters, if the pattern ignores case. */
  #cased(set: CharacterSet): CharacterSet {
    if (!this.ignoreCase) return set;
    const size = set.reduce((sum, [first, last]) => sum + last - first + 1, 0);
    // Large sets are complements such as \D, which have both cases of all letters.
    if (size > MOST_CASES) return set;
    const codes = set.flatMap(([first, last]) =>
      Array.from({ length: last - first + 1 }, (_, i) => first + i)
    );
    return setOf(codes.flatMap((code) => {
      const character = String.fromCodePoint(code);
      return [character, character.toLowerCase(), character.toUpperCase()]
        .filter((text) => [...text].length === 1).map((text): [number, number] => {
          const point = text.codePointAt(0)!;
          return [point, point];
        });
    }));
  }
}

function isOne(set: CharacterSet): boolean {
  return set.length === 1 && set[0][0] === set[0][1];
}
