/** Splits a Jinja template into tokens, with the options of transformers: `trim_blocks` and `lstrip_blocks`. */

export interface Token {
  /** Kind of token: data, a tag's mark, a name, a literal, "op" for any other sign, or "end" of the template. */
  readonly type: "data" | "{{" | "}}" | "{%" | "%}" | "name" | "string" | "int" | "float" | "op" | "end";
  readonly text: string;
  readonly line: number;
}

const OPENING = /\{([{%#])([-+]?)/g;
const RAW = /\{%([-+]?)\s*raw\s*(-%\}\s*|%\})/y;
const RAW_END = /\{%([-+]?)\s*endraw\s*(\+%\}|-%\}\s*|%\}\n?)/g;
const COMMENT_END = /\+#\}|-#\}\s*|#\}\n?/g;
const VARIABLE_END = /-\}\}\s*|\}\}/y;
const BLOCK_END = /\+%\}|-%\}\s*|%\}\n?/y;

const SPACE = /\s+/y;
const WORDS: readonly (readonly [Token["type"], RegExp])[] = [
  ["float", /(?<!\.)\d+(_\d+)*((\.\d+(_\d+)*)?e[+-]?\d+(_\d+)*|\.\d+(_\d+)*)/iy],
  ["int", /0b(_?[01])+|0o(_?[0-7])+|0x(_?[\da-f])+|[1-9](_?\d)*|0(_?0)*/iy],
  ["name", /[\p{L}\p{Nl}_][\p{L}\p{N}\p{M}_]*/uy],
  ["string", /'[^'\\]*(?:\\[^][^'\\]*)*'|"[^"\\]*(?:\\[^][^"\\]*)*"/y],
  ["op", /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}<>=.:|,;]/y],
];
const CLOSING: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}" };

/** Returns the tokens of a template. Throws for text that is not valid in any template. */
export function lex(template: string): Token[] {
  return new Lexer(template.replaceAll(/\r\n?/g, "\n").replace(/\n$/, "")).run();
}

class Lexer {
  readonly #tokens: Token[] = [];
  #at = 0;
  #line = 1;
  #counted = 0;

  constructor(private readonly source: string) {}

  run(): Token[] {
    while (this.#at < this.source.length) this.#step();
    this.#push("end", "");
    return this.#tokens;
  }

  /** Reads text and the tag that follows. */
  #step(): void {
    OPENING.lastIndex = this.#at;
    const opening = OPENING.exec(this.source);
    if (!opening) {
      this.#data(this.source.length, "+");
      return;
    }
    const [text, kind, sign] = opening;
    const raw = this.#match(RAW, opening.index);
    this.#data(opening.index, kind === "{" && sign !== "-" ? "+" : sign);
    if (raw) {
      this.#at += raw[0].length;
      const end = this.#find(RAW_END, "endraw");
      this.#data(end.index, end[1]);
      this.#at = end.index + end[0].length;
    } else if (kind === "#") {
      const end = this.#find(COMMENT_END, "#}", this.#at + 2);
      this.#at = end.index + end[0].length;
    } else {
      this.#push(kind === "{" ? "{{" : "{%", "");
      this.#at += text.length;
      this.#tag(kind === "{" ? VARIABLE_END : BLOCK_END, kind === "{" ? "}}" : "%}");
    }
  }

  /** Adds the text up to `end`. The sign "-" removes all white space at its end, "" the indentation of a tag. */
  #data(end: number, sign: string): void {
    let text = this.source.slice(this.#at, end);
    if (sign === "-") text = text.trimEnd();
    else if (sign === "") {
      const line = text.lastIndexOf("\n") + 1;
      const begins = line > 0 || this.#at === 0 || this.source[this.#at - 1] === "\n";
      if (begins && text.slice(line).trim() === "") text = text.slice(0, line);
    }
    if (text !== "") this.#push("data", text);
    this.#at = end;
  }

  /** Reads the inside of a tag, and its end. */
  #tag(end: RegExp, close: "}}" | "%}"): void {
    const brackets: string[] = [];
    while (this.#at < this.source.length) {
      const ended = brackets.length === 0 && this.#match(end, this.#at);
      if (ended) {
        this.#push(close, "");
        this.#at += ended[0].length;
        return;
      }
      const space = this.#match(SPACE, this.#at);
      if (space) this.#at += space[0].length;
      else this.#word(brackets);
    }
    throw this.#error(`${close} is missing`);
  }

  #word(brackets: string[]): void {
    for (const [type, pattern] of WORDS) {
      const found = this.#match(pattern, this.#at);
      if (!found) continue;
      const [text] = found;
      if (type === "op") {
        if (text in CLOSING) brackets.push(CLOSING[text]);
        else if (")]}".includes(text) && brackets.pop() !== text) throw this.#error(`unexpected ${text}`);
      }
      this.#push(type, text);
      this.#at += text.length;
      return;
    }
    throw this.#error(`unexpected ${JSON.stringify(this.source[this.#at])}`);
  }

  #find(pattern: RegExp, name: string, from = this.#at): RegExpExecArray {
    pattern.lastIndex = from;
    const found = pattern.exec(this.source);
    if (!found) throw this.#error(`${name} is missing`);
    return found;
  }

  #match(pattern: RegExp, at: number): RegExpExecArray | null {
    pattern.lastIndex = at;
    return pattern.exec(this.source);
  }

  #push(type: Token["type"], text: string): void {
    this.#tokens.push({ type, text, line: this.#lineHere() });
  }

  #error(reason: string): Error {
    return new Error(`line ${this.#lineHere()}: ${reason}`);
  }

  /** Returns the current line number. Lines are counted once for all tokens. */
  #lineHere(): number {
    for (; this.#counted < this.#at; this.#counted++) if (this.source[this.#counted] === "\n") this.#line++;
    return this.#line;
  }
}

const ESCAPE = /\\(?:\n|x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3})|([abfnrtv\\'"]))/g;
const SHORT: Readonly<Record<string, string>> = {
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

/** Returns the text of a string literal. */
export function unquoted(token: string): string {
  return token.slice(1, -1).replaceAll(
    ESCAPE,
    (_, x?: string, u?: string, long?: string, octal?: string, short?: string) => {
      const hex = x ?? u ?? long;
      if (hex !== undefined) return String.fromCodePoint(parseInt(hex, 16));
      if (octal !== undefined) return String.fromCharCode(parseInt(octal, 8));
      return short === undefined ? "" : SHORT[short] ?? short;
    },
  );
}
