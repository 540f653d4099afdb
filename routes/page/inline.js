// @ts-check

/*
 * What stands within a paragraph of Markdown. It takes time in proportion to the text's length: a mark that nothing closes
 * is looked for once.
 */

/**
 * @typedef {{ type: "text", text: string }
 *   | { type: "code", text: string }
 *   | { type: "break" }
 *   | { type: "strong" | "em" | "del", children: Inline[] }
 *   | { type: "link", href: string, children: Inline[] }} Inline
 */

/** Marks within marks deeper than this are text. */
const MAX_DEPTH = 8;
/** A longer paragraph is shown as it is. */
const MAX_INLINE = 50_000;

/**
 * The texts, marks and links of a paragraph.
 * @param {string} text
 * @returns {Inline[]}
 */
export function parseInline(text) {
  return text.length > MAX_INLINE ? [{ type: "text", text }] : new InlineReader(text, 0).read();
}

/** Few blanks: two runs of them with nothing between would be divided in every way. */
const LINK =
  /\[((?:[^\[\]\\]|\\.|\[[^\[\]]*\])*)\]\(\s{0,9}<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s{1,9}"[^"]*")?\s{0,9}\)/y;
/** A longer address is text. */
const MAX_ADDRESS = 2000;
const ADDRESS = new RegExp(`https?://[^\\s<>"\`*]{1,${MAX_ADDRESS}}`, "y");
/** What follows an address in a sentence. */
const PUNCTUATION = ".,:;!?'\")]";

/** @type {["**" | "__" | "~~" | "*" | "_", "strong" | "em" | "del"][]} */
const MARKS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

class InlineReader {
  /** @type {Inline[]} */
  #out = [];
  #at = 0;
  #plain = "";
  /** Marks that nothing further on closes. */
  #open = new Set();

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
        ? this.#escape()
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

  /** Between two runs of as many backticks everything is text. */
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

  /** Pictures are links too: the page shows none from elsewhere. */
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
   * Where a mark closes: after a character that is no blank, and not within a code span; -1 if nowhere.
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
      } else if (text.startsWith(run, at) && at > from && /\S/.test(text[at - 1])) {
        const double = run.length === 1 && text[at + 1] === run;
        if (double) at++;
        else if (run[0] !== "_" || !/\w/.test(text[at + run.length] ?? "")) {
          // Of three in a row the inner mark closes first.
          return run.length === 2 && text[at + 2] === run[0] ? at + 1 : at;
        }
      }
    }
    return -1;
  }
}

/**
 * An address that a link may lead to; undefined for all others, such as javascript:.
 * @param {string} address
 */
function safeAddress(address) {
  if (!URL.canParse(address)) return undefined;
  const { protocol, href } = new URL(address);
  return ["http:", "https:", "mailto:"].includes(protocol) ? href : undefined;
}
