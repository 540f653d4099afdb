// @ts-check
import { parseInline } from "./inline.js";

/*
 * Parses the Markdown that models write into a tree, in linear time for any text: it is parsed again after every few
 * tokens, and strangers may have written it. Raw HTML stays text.
 */

/**
 * @typedef {import("./inline.js").Inline} Inline
 * @typedef {{ type: "paragraph", children: Inline[] }
 *   | { type: "heading", level: number, children: Inline[] }
 *   | { type: "code", language: string, text: string }
 *   | { type: "math", tex: string }
 *   | { type: "quote", blocks: Block[] }
 *   | { type: "list", start: number | null, items: Block[][] }
 *   | { type: "table", head: Inline[][], align: (string | null)[], rows: Inline[][][] }
 *   | { type: "rule" }} Block
 * @typedef {{ source: string, block: Block }} TopBlock
 */

/** Lists and quotes nested deeper than this stay text. */
const MAX_DEPTH = 8;

/* Each of these matches a run of equal characters in only one way; otherwise a long run would take quadratic time. */
const FENCE = /^ {0,3}(`{3,}|~{3,}(?!~))([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s([^]*))?$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( +)([^]*)|)$/;
const FORMULA = /^ *(\$\$(?!\$)|\\\[)/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?$/;

/**
 * Returns the blocks of a text, each with its source lines. A view of a growing text keeps the blocks whose
 * source is unchanged.
 * @param {string} text
 * @returns {TopBlock[]}
 */
export function parseMarkdown(text) {
  return new BlockReader(text.replaceAll("\t", "    ").split(/\r\n|\r|\n/), 0).read();
}

class BlockReader {
  #line = 0;
  /** Formulas that begin before this line have no end. */
  #unclosed = 0;

  /**
   * @param {string[]} lines
   * @param {number} depth
   */
  constructor(lines, depth) {
    this.lines = lines;
    this.depth = depth;
  }

  /** @returns {TopBlock[]} */
  read() {
    /** @type {TopBlock[]} */
    const blocks = [];
    while (this.#line < this.lines.length) {
      if (this.lines[this.#line].trim() === "") {
        this.#line++;
        continue;
      }
      const start = this.#line;
      const block = this.#block();
      blocks.push({ source: this.lines.slice(start, this.#line).join("\n").trimEnd(), block });
    }
    return blocks;
  }

  /** @returns {Block} */
  #block() {
    const line = this.lines[this.#line];
    const fence = FENCE.exec(line);
    if (fence) return this.#code(fence[1], fence[2].trim());
    const heading = HEADING.exec(line);
    if (heading) {
      this.#line++;
      return {
        type: "heading",
        level: heading[1].length,
        children: parseInline(withoutClosing(heading[2] ?? "")),
      };
    }
    if (RULE.test(line)) {
      this.#line++;
      return { type: "rule" };
    }
    if (this.depth < MAX_DEPTH) {
      if (QUOTE.test(line)) return this.#quote();
      if (ITEM.test(line)) return this.#list();
    }
    return this.#formula() ?? (this.#isTable() ? this.#table() : this.#paragraph());
  }

  /**
   * Returns a formula with lines of its own, up to the closing mark. While the last formula of a text is still being
   * written, it is code.
   * @returns {Block | undefined}
   */
  #formula() {
    const [whole, mark] = FORMULA.exec(this.lines[this.#line]) ?? [];
    if (whole === undefined || this.#line < this.#unclosed) return undefined;
    const closing = mark === "$$" ? "$$" : "\\]";
    /** @type {string[]} */
    const tex = [];
    let at = this.#line;
    for (; at < this.lines.length && this.lines[at].trim() !== ""; at++) {
      const line = at === this.#line ? this.lines[at].slice(whole.length) : this.lines[at];
      const end = line.indexOf(closing);
      tex.push(end < 0 ? line : line.slice(0, end));
      if (end < 0) continue;
      const text = tex.join("\n").trim();
      if (text === "" || !/^ *[.,;:]? *$/.test(line.slice(end + closing.length))) break;
      this.#line = at + 1;
      return { type: "math", tex: text };
    }
    if (at < this.lines.length) {
      this.#unclosed = at;
      return undefined;
    }
    this.#line = at;
    return { type: "code", language: "latex", text: tex.join("\n").trim() };
  }

  /**
   * @param {string} fence
   * @param {string} info
   * @returns {Block}
   */
  #code(fence, info) {
    const indent = indentOf(this.lines[this.#line]);
    const end = new RegExp(`^ {0,3}${fence[0] === "~" ? "~" : "`"}{${fence.length},}\\s*$`);
    /** @type {string[]} */
    const text = [];
    for (this.#line++; this.#line < this.lines.length; this.#line++) {
      const line = this.lines[this.#line];
      if (end.test(line)) {
        this.#line++;
        break;
      }
      text.push(dedent(line, indent));
    }
    return { type: "code", language: info.split(/\s/)[0], text: text.join("\n") };
  }

  /** @returns {Block} */
  #quote() {
    /** @type {string[]} */
    const inner = [];
    for (; this.#line < this.lines.length; this.#line++) {
      const line = this.lines[this.#line];
      if (QUOTE.test(line)) inner.push(line.replace(QUOTE, ""));
      else if (line.trim() === "" || startsBlock(line)) break;
      else inner.push(line);
    }
    return { type: "quote", blocks: this.#inner(inner) };
  }

  /** @returns {Block} */
  #list() {
    const first = /** @type {RegExpExecArray} */ (ITEM.exec(this.lines[this.#line]));
    const kind = kindOf(first[2]);
    /** @type {Block[][]} */
    const items = [];
    while (this.#line < this.lines.length) {
      const marker = ITEM.exec(this.lines[this.#line]);
      if (!marker || kindOf(marker[2]) !== kind || RULE.test(this.lines[this.#line])) break;
      items.push(this.#inner(this.#item(marker)));
    }
    return { type: "list", start: kind === "number" ? parseInt(first[2]) : null, items };
  }

  /**
   * Returns the lines of one list item, without their indentation. Two blanks of indentation are enough, also
   * for numbers.
   * @param {RegExpExecArray} marker
   */
  #item([, before, mark, , content = ""]) {
    const width = before.length + mark.length + 1;
    const lines = [content];
    let blank = false;
    for (this.#line++; this.#line < this.lines.length; this.#line++) {
      const line = this.lines[this.#line];
      if (line.trim() === "") {
        blank = true;
        continue;
      }
      const inside = indentOf(line) >= before.length + 2;
      if (!inside && (blank || startsBlock(line))) break;
      if (blank) lines.push("");
      blank = false;
      lines.push(inside ? dedent(line, width) : line);
    }
    return lines;
  }

  #isTable() {
    const [head, rule] = [this.lines[this.#line], this.lines[this.#line + 1]];
    return rule !== undefined && head.includes("|") && rule.includes("|") &&
      TABLE_RULE.test(rule.trimEnd()) &&
      cellsOf(head).length === cellsOf(rule).length;
  }

  /** @returns {Block} */
  #table() {
    const head = cellsOf(this.lines[this.#line]);
    const align = cellsOf(this.lines[this.#line + 1]).map((cell) => {
      if (cell.endsWith(":")) return cell.startsWith(":") ? "center" : "right";
      return cell.startsWith(":") ? "left" : null;
    });
    /** @type {Inline[][][]} */
    const rows = [];
    for (this.#line += 2; this.#line < this.lines.length; this.#line++) {
      const line = this.lines[this.#line];
      if (line.trim() === "" || !line.includes("|")) break;
      const cells = cellsOf(line);
      rows.push(head.map((_, i) => parseInline(cells[i] ?? "")));
    }
    return { type: "table", head: head.map((cell) => parseInline(cell)), align, rows };
  }

  /** @returns {Block} */
  #paragraph() {
    const start = this.#line++;
    while (this.#line < this.lines.length) {
      const line = this.lines[this.#line];
      if (line.trim() === "" || startsBlock(line) || this.#isTable()) break;
      this.#line++;
    }
    const text = this.lines.slice(start, this.#line).map((line) => line.trimStart()).join("\n");
    return { type: "paragraph", children: parseInline(text.trimEnd()) };
  }

  /** @param {string[]} lines */
  #inner(lines) {
    return new BlockReader(lines, this.depth + 1).read().map(({ block }) => block);
  }
}

/**
 * Returns true if a line ends the paragraph before it.
 * @param {string} line
 */
function startsBlock(line) {
  return [FENCE, HEADING, RULE, QUOTE, ITEM, FORMULA].some((start) => start.test(line));
}

/**
 * Returns the text of a heading without closing marks.
 * @param {string} text
 */
function withoutClosing(text) {
  const trimmed = text.trim();
  let end = trimmed.length;
  while (trimmed[end - 1] === "#") end--;
  return end === 0 || /\s/.test(trimmed[end - 1]) ? trimmed.slice(0, end).trimEnd() : trimmed;
}

/** @param {string} mark */
function kindOf(mark) {
  return /^\d/.test(mark) ? "number" : mark;
}

/** @param {string} line */
function indentOf(line) {
  return line.length - line.trimStart().length;
}

/**
 * @param {string} line
 * @param {number} width
 */
function dedent(line, width) {
  return line.slice(Math.min(indentOf(line), width));
}

/** @param {string} line */
function cellsOf(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}
