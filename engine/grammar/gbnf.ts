/** Parses llama.cpp's grammars (GBNF): rules of literals, classes, groups and repetitions, starting at `root`. */

import { type CharacterSet, complement, setOf } from "./character_set.ts";
import { LIMITS, over } from "./limits.ts";
import { ConstraintError } from "./types.ts";

export type Gbnf =
  | { readonly type: "class"; readonly set: CharacterSet }
  | { readonly type: "sequence"; readonly items: readonly Gbnf[] }
  | { readonly type: "choice"; readonly options: readonly Gbnf[] }
  | { readonly type: "repeat"; readonly item: Gbnf; readonly least: number; readonly most: number }
  | { readonly type: "rule"; readonly name: string }
  /** A grammar item: one token by its number, or any other token. */
  | { readonly type: "token"; readonly token: number; readonly negated: boolean };

const NAME = /[a-zA-Z0-9_-]+/y;
const ESCAPES: Readonly<Record<string, string>> = {
  t: "\t",
  r: "\r",
  n: "\n",
  "\\": "\\",
  '"': '"',
  "[": "[",
  "]": "]",
};

/** Returns the rules by name. Throws ConstraintError with line and column. */
export function parseGbnf(source: string): Map<string, Gbnf> {
  const rules = new Parser(source).rules();
  if (!rules.has("root")) throw new ConstraintError('The grammar has no rule named "root"');
  for (const [name, rule] of rules) {
    for (const used of rulesIn(rule)) {
      if (!rules.has(used)) {
        throw new ConstraintError(`The grammar's rule "${name}" uses "${used}", which is not defined`);
      }
    }
  }
  return rules;
}

/** Returns the names of the rules that an expression uses. */
export function rulesIn(node: Gbnf): string[] {
  switch (node.type) {
    case "rule":
      return [node.name];
    case "sequence":
      return node.items.flatMap(rulesIn);
    case "choice":
      return node.options.flatMap(rulesIn);
    case "repeat":
      return rulesIn(node.item);
    default:
      return [];
  }
}

class Parser {
  #at = 0;
  #depth = 0;

  constructor(private readonly source: string) {}

  rules(): Map<string, Gbnf> {
    const rules = new Map<string, Gbnf>();
    this.#blanks();
    while (this.#at < this.source.length) {
      const start = this.#at;
      const name = this.#name();
      if (name === undefined || !this.#take("::=")) {
        throw this.#error('a rule such as `name ::= "text"` must begin here', start);
      }
      if (rules.has(name)) throw this.#error(`the rule "${name}" is defined twice`, start);
      this.#blanks();
      rules.set(name, this.#choice());
      if (rules.size > LIMITS.rules) throw over("rules", "number of rules", rules.size);
    }
    return rules;
  }

  #choice(): Gbnf {
    const options = [this.#sequence()];
    while (this.#take("|")) options.push(this.#sequence());
    return options.length === 1 ? options[0] : { type: "choice", options };
  }

  #sequence(): Gbnf {
    const items: Gbnf[] = [];
    for (let item = this.#item(); item; item = this.#item()) items.push(item);
    return items.length === 1 ? items[0] : { type: "sequence", items };
  }

  /** Returns the next item of a sequence with its repetitions; undefined at the end. */
  #item(): Gbnf | undefined {
    const node = this.#atom();
    if (!node) return undefined;
    let repeated = node;
    for (let bounds = this.#repetition(); bounds; bounds = this.#repetition()) {
      repeated = { type: "repeat", item: repeated, least: bounds[0], most: bounds[1] };
    }
    this.#blanks();
    return repeated;
  }

  #atom(): Gbnf | undefined {
    const character = this.source[this.#at];
    if (character === '"') return this.#literal();
    if (character === "[") return this.#class();
    if (character === ".") {
      this.#at++;
      return { type: "class", set: complement([]) };
    }
    if (character === "(") return this.#group();
    if (character === "<" || character === "!") return this.#token();
    const start = this.#at;
    const name = this.#name();
    if (name === undefined) {
      if (character === undefined || character === "|" || character === ")") return undefined;
      throw this.#error(`${JSON.stringify(character)} has no meaning here`);
    }
    const afterName = this.#at;
    this.#blanks();
    if (this.source.startsWith("::=", this.#at)) {
      // The next grammar rule begins here.
      this.#at = start;
      return undefined;
    }
    this.#at = afterName;
    return { type: "rule", name };
  }

  #group(): Gbnf {
    const start = this.#at++;
    if (++this.#depth > LIMITS.depth) throw over("depth", "depth of nested parentheses", this.#depth);
    this.#blanks();
    const node = this.#choice();
    if (this.source[this.#at] !== ")") throw this.#error("this parenthesis is never closed", start);
    this.#at++;
    this.#depth--;
    return node;
  }

  #literal(): Gbnf {
    const start = this.#at++;
    const items: Gbnf[] = [];
    while (this.source[this.#at] !== '"') {
      const code = this.#character(start, "this text is never closed");
      items.push({ type: "class", set: [[code, code]] });
    }
    this.#at++;
    return { type: "sequence", items };
  }

  #class(): Gbnf {
    const start = this.#at++;
    const negated = this.source[this.#at] === "^";
    if (negated) this.#at++;
    const ranges: [number, number][] = [];
    while (this.source[this.#at] !== "]") {
      const first = this.#character(start, "this class is never closed");
      let last = first;
      if (this.source[this.#at] === "-" && this.source[this.#at + 1] !== "]") {
        this.#at++;
        last = this.#character(start, "this class is never closed");
        if (last < first) throw this.#error("a range of this class ends before it begins", start);
      }
      ranges.push([first, last]);
    }
    this.#at++;
    const set = setOf(ranges);
    return { type: "class", set: negated ? complement(set) : set };
  }

  #token(): Gbnf {
    const start = this.#at;
    const negated = this.#take("!", false);
    const match = /<\[([0-9]{1,9})\]>/y;
    match.lastIndex = this.#at;
    const found = match.exec(this.source);
    if (!found) throw this.#error("a token must be named by its number, as in <[1000]>", start);
    this.#at = match.lastIndex;
    return { type: "token", token: Number(found[1]), negated };
  }

  #character(start: number, unclosed: string): number {
    const code = this.source.codePointAt(this.#at);
    if (code === undefined) throw this.#error(unclosed, start);
    if (code !== 0x5c) {
      this.#at += code > 0xffff ? 2 : 1;
      if (code >= 0xd800 && code <= 0xdfff) throw this.#error("half a surrogate pair is no character");
      return code;
    }
    const escape = /\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([tnr\\"[\]]))/y;
    escape.lastIndex = this.#at;
    const found = escape.exec(this.source);
    const value = found &&
      (found[4] ? ESCAPES[found[4]].charCodeAt(0) : parseInt(found[1] ?? found[2] ?? found[3], 16));
    if (value === null || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) {
      throw this.#error('an escape must be one of \\t \\r \\n \\\\ \\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH');
    }
    this.#at = escape.lastIndex;
    return value;
  }

  #repetition(): [number, number] | undefined {
    const bounds = /\s*(?:([*+?])|\{\s*([0-9]{1,9})?\s*(,)?\s*([0-9]{1,9})?\s*\})/y;
    bounds.lastIndex = this.#at;
    const found = bounds.exec(this.source);
    if (!found) {
      if (this.source[this.#at] === "{") throw this.#error("a repetition must be {m}, {m,}, {,n} or {m,n}");
      return undefined;
    }
    const start = this.#at;
    this.#at = bounds.lastIndex;
    const [, operator, low, comma, high] = found;
    if (operator) return operator === "*" ? [0, Infinity] : operator === "+" ? [1, Infinity] : [0, 1];
    if (low === undefined && high === undefined) throw this.#error("a repetition must have a number", start);
    const least = Number(low ?? 0);
    const most = high !== undefined ? Number(high) : comma ? Infinity : least;
    const largest = Math.max(least, most === Infinity ? 0 : most);
    if (largest > LIMITS.repetitions) throw over("repetitions", "number of repetitions", largest);
    if (most < least) throw this.#error("a repetition's second number must not be below its first", start);
    return [least, most];
  }

  #name(): string | undefined {
    NAME.lastIndex = this.#at;
    const found = NAME.exec(this.source);
    if (!found) return undefined;
    this.#at = NAME.lastIndex;
    return found[0];
  }

  #take(text: string, blanks = true): boolean {
    if (blanks) this.#blanks();
    if (!this.source.startsWith(text, this.#at)) return false;
    this.#at += text.length;
    if (blanks) this.#blanks();
    return true;
  }

  /** Skips blanks, line breaks and comments. */
  #blanks(): void {
    const blanks = /(?:[ \t\r\n]|#[^\n]*)*/y;
    blanks.lastIndex = this.#at;
    blanks.exec(this.source);
    this.#at = blanks.lastIndex;
  }

  #error(what: string, at = this.#at): ConstraintError {
    const lines = this.source.slice(0, at).split("\n");
    return new ConstraintError(
      `The grammar, line ${lines.length}, column ${lines.at(-1)!.length + 1}: ${what}`,
    );
  }
}
