// @ts-check

/*
 * Parses the text, marks, links and formulas within a Markdown paragraph, in linear time: an unclosed mark is searched
 * for only once.
 */

/**
 * @typedef {{ type: "text", text: string }
 *   | { type: "code", text: string }
 *   | { type: "math", tex: string, display: boolean }
 *   | { type: "break" }
 *   | { type: "strong" | "em" | "del", children: Inline[] }
 *   | { type: "link", href: string, children: Inline[] }} Inline
 */

/** Marks nested deeper than this stay plain text. */
const MAX_DEPTH = 8;
/** Longer paragraphs are shown as plain text. */
const MAX_INLINE = 50_000;

/**
 * Returns the texts, marks and links of a paragraph.
 * @param {string} text
 * @returns {Inline[]}
 */
export function parseInline(text) {
  return text.length > MAX_INLINE ? [{ type: "text", text }] : new InlineReader(text, 0).read();
}

/**
 * Blanks are limited: two unbounded runs of blanks side by side could be divided in many ways, which takes quadratic
 * time.
 */
const LINK =
  /\[((?:[^\[\]\\]|\\.|\[[^\[\]]*\])*)\]\(\s{0,9}<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s{1,9}"[^"]*")?\s{0,9}\)/y;
/** Longer addresses stay plain text. */
const MAX_ADDRESS = 2000;
const ADDRESS = new RegExp(`https?://[^\\s<>"\`*]{1,${MAX_ADDRESS}}`, "y");
/** Punctuation at the end of an address belongs to the sentence. */
const PUNCTUATION = ".,:;!?'\")]";

/** @type {["**" | "__" | "~~" | "*" | "_", "strong" | "em" | "del"][]} */
const MARKS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

/** Opening and closing marks of formulas, and whether they are shown on their own line. */
const FORMULAS = /** @type {const} */ ([["$$", "$$", true], ["\\[", "\\]", true], ["\\(", "\\)", false]]);

class InlineReader {
  /** @type {Inline[]} */
  #out = [];
  #at = 0;
  #plain = "";
  /** Marks that have no closing mark in the rest of the text. */
  #open = new Set();
  /** Position of the next closing mark of a formula, by mark. @type {Map<string, number>} */
  #closing = new Map();

  /**
   * @param {string} text
   * @param {number} depth
   */
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
  }

  read() {
    while (this.#at < this.text.length) {
      const character = this.text[this.#at];
      const found = character === "\\"
        ? this.#formula() || this.#escape()
        : character === "$"
        ? this.#formula() || this.#dollars()
        : character === "\n"
        ? this.#push({ type: "break" }, 1)
        : character === "`"
        ? this.#code()
        : character === "[" || character === "!"
        ? this.#link()
        : character === "h"
        ? this.#address()
        : "*_~".includes(character) && this.#marked();
      if (!found) this.#plain += this.text[this.#at++];
    }
    this.#flush();
    return this.#out;
  }

  #flush() {
    if (this.#plain !== "") this.#out.push({ type: "text", text: this.#plain });
    this.#plain = "";
  }

  /**
   * @param {Inline} node
   * @param {number} length
   */
  #push(node, length) {
    this.#flush();
    this.#out.push(node);
    this.#at += length;
    return true;
  }

  #escape() {
    const next = this.text[this.#at + 1] ?? "";
    if (!/[!-/:-@[-`{-~]/.test(next)) return false;
    this.#plain += next;
    this.#at += 2;
    return true;
  }

  #formula() {
    const formula = FORMULAS.find(([mark]) => this.text.startsWith(mark, this.#at));
    if (!formula) return false;
    const [{ length }, closing, display] = formula;
    const from = this.#at + length;
    let end = this.#closing.get(closing) ?? -1;
    if (end < from) {
      end = this.text.indexOf(closing, from);
      this.#closing.set(closing, end < 0 ? Infinity : end);
    }
    const tex = end < 0 || end === Infinity ? "" : this.text.slice(from, end).trim();
    return tex !== "" && this.#push({ type: "math", tex, display }, end + length - this.#at);
  }

  /** Parses a formula between single dollar signs, unless they are amounts of money. */
  #dollars() {
    const end = dollarsEnd(this.text, this.#at);
    if (end < 0) return false;
    const tex = this.text.slice(this.#at + 1, end);
    return this.#push({ type: "math", tex, display: false }, end + 1 - this.#at);
  }

  /** Text between two runs with the same number of backticks is code. */
  #code() {
    const [run] = /** @type {RegExpExecArray} */ (/^`+/.exec(this.text.slice(this.#at, this.#at + 100)));
    const end = this.#open.has(run) ? -1 : this.#endOfCode(run);
    if (end < 0) {
      this.#open.add(run);
      this.#plain += run;
      this.#at += run.length;
      return true;
    }
    const code = this.text.slice(this.#at + run.length, end).replaceAll("\n", " ");
    const stripped = /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code;
    return this.#push({ type: "code", text: stripped }, end + run.length - this.#at);
  }

  /** @param {string} run */
  #endOfCode(run) {
    let end = this.text.indexOf(run, this.#at + run.length);
    while (end >= 0 && (this.text[end + run.length] === "`" || this.text[end - 1] === "`")) {
      while (this.text[end] === "`") end++;
      end = this.text.indexOf(run, end);
    }
    return end;
  }

  /** Images become links: the page loads none from other sites. */
  #link() {
    const start = this.#at + (this.text[this.#at] === "!" ? 1 : 0);
    if (this.depth >= MAX_DEPTH || this.text[start] !== "[") return false;
    LINK.lastIndex = start;
    const match = LINK.exec(this.text);
    const href = match && safeAddress(match[2]);
    if (!match || !href) return false;
    const children = new InlineReader(match[1] || match[2], this.depth + 1).read();
    return this.#push({ type: "link", href, children }, LINK.lastIndex - this.#at);
  }

  #address() {
    if (/\w/.test(this.text[this.#at - 1] ?? "")) return false;
    ADDRESS.lastIndex = this.#at;
    const match = ADDRESS.exec(this.text)?.[0] ?? "";
    let length = match.length;
    while (length > 0 && PUNCTUATION.includes(match[length - 1])) length--;
    const found = match.slice(0, length);
    const href = match.length < MAX_ADDRESS ? safeAddress(found) : undefined;
    if (!href) return false;
    return this.#push({ type: "link", href, children: [{ type: "text", text: found }] }, found.length);
  }

  #marked() {
    const mark = this.depth < MAX_DEPTH && MARKS.find(([mark]) => this.text.startsWith(mark, this.#at));
    if (!mark) return false;
    const [run, type] = mark;
    const from = this.#at + run.length;
    const opens = /\S/.test(this.text[from] ?? " ") &&
      !(run[0] === "_" && /\w/.test(this.text[this.#at - 1] ?? ""));
    const end = opens && !this.#open.has(run) ? this.#close(run, from) : -1;
    if (end < 0) {
      if (opens) this.#open.add(run);
      this.#plain += run;
      this.#at += run.length;
      return true;
    }
    const children = new InlineReader(this.text.slice(from, end), this.depth + 1).read();
    return this.#push({ type, children }, end + run.length - this.#at);
  }

  /**
   * Returns the position where a mark closes: not after a blank, and not within code or a formula. Returns -1
   * if nowhere.
   * @param {string} run
   * @param {number} from
   */
  #close(run, from) {
    const { text } = this;
    let code = true;
    for (let at = from; at < text.length; at++) {
      if (text[at] === "\\") at++;
      else if (text[at] === "`" && code) {
        const end = text.indexOf("`", at + 1);
        if (end > 0) at = end;
        else code = false;
      } else if (text[at] === "$") {
        at = Math.max(at, dollarsEnd(text, at));
      } else if (text.startsWith(run, at) && at > from && /\S/.test(text[at - 1])) {
        const double = run.length === 1 && text[at + 1] === run;
        if (double) at++;
        else if (run[0] !== "_" || !/\w/.test(text[at + run.length] ?? "")) {
          // In a run of three, the inner mark closes first.
          return run.length === 2 && text[at + 2] === run[0] ? at + 1 : at;
        }
      }
    }
    return -1;
  }
}

/**
 * Returns the position of the dollar that closes a formula, or -1. The formula touches both dollars, and neither dollar
 * touches another word: "$5 and $6" and "US$5" are money, "$PATH:$HOME" is a command.
 * @param {string} text
 * @param {number} at position of the first dollar
 */
function dollarsEnd(text, at) {
  if (/[\w$]/.test(text[at - 1] ?? "") || !/[^\s$]/.test(text[at + 1] ?? " ")) return -1;
  let end = at + 1;
  while (end < text.length && text[end] !== "$") end += text[end] === "\\" ? 2 : 1;
  const closes = text[end] === "$" && /\S/.test(text[end - 1]) && !/[\w$]/.test(text[end + 1] ?? "");
  return closes ? end : -1;
}

/**
 * Returns an address that is safe to link to; undefined for others, such as javascript: addresses.
 * @param {string} address
 */
function safeAddress(address) {
  if (!URL.canParse(address)) return undefined;
  const { protocol, href } = new URL(address);
  return ["http:", "https:", "mailto:"].includes(protocol) ? href : undefined;
}
