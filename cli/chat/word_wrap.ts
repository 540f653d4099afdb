import { EscapedStream } from "../shared/escape.ts";

/** Pattern of graphemes that occupy two terminal cells: East Asian wide and fullwidth characters, and emoji. */
const WIDE =
  /^[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{1b000}-\u{1b2ff}\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}|\ufe0f/u;
const NO_CELL = /^[\p{Mn}\p{Me}\p{Cf}]+$/u;
const ASCII = /^[\x20-\x7e]*$/;
/** Patterns of characters with which a line must not begin, and must not end. */
const CLOSING = /^[\p{Pe}\p{Pf}\p{Po}ー々]/u;
const OPENING = /[\p{Ps}\p{Pi}]$/u;
/** Pattern of the beginning of a Markdown code block. */
const FENCE = /^(`{3,})[^`]*$|^(~{3,})/;
const TAB = 8;

const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });

function graphemesOf(text: string): string[] {
  return ASCII.test(text) ? [...text] : [...segmenter.segment(text)].map(({ segment }) => segment);
}

/** Returns the number of terminal cells of a text without tabs and line ends. */
export function cellsOf(text: string): number {
  if (ASCII.test(text)) return text.length;
  return graphemesOf(text)
    .reduce((sum, one) => sum + (WIDE.test(one) ? 2 : NO_CELL.test(one) ? 0 : 1), 0);
}

/**
 * Returns the parts of a word between possible line breaks: beside wide characters, except for attached punctuation.
 */
function unitsOf(word: string): string[] {
  if (ASCII.test(word)) return [word];
  const units: string[] = [];
  let isWide = false;
  for (const grapheme of graphemesOf(word)) {
    const wasWide = isWide;
    isWide = WIDE.test(grapheme);
    const last = units.at(-1);
    const breaks = (isWide || wasWide) && !CLOSING.test(grapheme) && !OPENING.test(last ?? "");
    if (last === undefined || breaks) units.push(grapheme);
    else units[units.length - 1] += grapheme;
  }
  return units;
}

/**
 * Wraps streamed text at words to a terminal's width, and escapes its control characters. A word waits only
 * while it may have to move to the next line. Code blocks keep their lines.
 */
export class WordWrap {
  readonly #escapes = new EscapedStream();
  /** Number of used cells in the current line. */
  #column = 0;
  /** White space that is shown before the next word, or dropped at a wrap. */
  #space = "";
  /** The last word of the text so far, which more text may continue. */
  #held = "";
  /** Whether the beginning of the held word is shown already. */
  #hasBegun = false;
  /** Whether the current line has no word yet. */
  #isLineStart = true;
  /** The mark that began the current code block; empty outside of code blocks. */
  #fence = "";

  /** `columns`: returns the terminal's present width. */
  constructor(private readonly columns: () => number) {}

  /** Adds text. Returns the part that can be shown now. */
  add(text: string): string {
    const parts = (this.#held + this.#escapes.next(text)).match(/\n|[ \t]+|[^ \t\n]+/g) ?? [];
    this.#held = "";
    let shown = "";
    for (const [i, part] of parts.entries()) {
      if (part === "\n") shown += this.#newLine();
      else if (part.trim() === "") this.#space += part;
      else shown += this.#word(part, i === parts.length - 1);
    }
    return shown;
  }

  /** Ends the text. Returns the part that was held back. */
  end(): string {
    const shown = this.#held === "" ? this.#space : this.#place(this.#held);
    this.#column += this.#held === "" ? this.#spaceCells() : 0;
    this.#held = this.#space = "";
    this.#hasBegun = false;
    return shown;
  }

  #newLine(): string {
    this.#column = 0;
    this.#space = "";
    this.#hasBegun = false;
    this.#isLineStart = true;
    return "\n";
  }

  #word(word: string, mayGoOn: boolean): string {
    // The mark of a code block is known only when its word is complete.
    if (this.#isLineStart && mayGoOn && /^[`~]/.test(word)) {
      this.#held = word;
      return "";
    }
    const units = this.#fence === "" ? unitsOf(word) : [word];
    if (this.#isLineStart && !mayGoOn) this.#readFence(word);
    const last = mayGoOn ? units.pop()! : "";
    const shown = units.map((unit) => this.#place(unit)).join("");
    return mayGoOn ? shown + this.#hold(last) : shown;
  }

  /** Shows all but the last grapheme of an unfinished word, unless the word may have to move to the next line. */
  #hold(word: string): string {
    const cells = cellsOf(word);
    const fits = this.#column + this.#spaceCells() + cells <= this.columns();
    if (!this.#hasBegun && this.#column > 0 && this.#fence === "" && fits) {
      this.#held = word;
      return "";
    }
    const graphemes = graphemesOf(word);
    this.#held = graphemes.pop()!;
    if (graphemes.length === 0) return "";
    const shown = this.#place(graphemes.join(""), cells);
    this.#hasBegun = true;
    return shown;
  }

  /** Returns the text after its space or, if the line has too few cells for the word (`needed`), on a new line. */
  #place(text: string, needed = cellsOf(text)): string {
    const columns = this.columns();
    const cells = cellsOf(text);
    const isBeyond = this.#column + this.#spaceCells() + needed > columns;
    const wraps = isBeyond && this.#column > 0 && !this.#hasBegun && this.#fence === "";
    const shown = wraps ? `\n${text}` : this.#space + text;
    this.#column = wraps ? cells : this.#column + this.#spaceCells() + cells;
    // The terminal itself breaks a word that is longer than a line.
    if (this.#column > columns) this.#column = (this.#column - 1) % columns + 1;
    this.#space = "";
    this.#hasBegun = this.#isLineStart = false;
    return shown;
  }

  #readFence(word: string): void {
    if (this.#fence === "") {
      const [, backticks, tildes] = FENCE.exec(word) ?? [];
      this.#fence = backticks ?? tildes ?? "";
    } else if (word.startsWith(this.#fence) && /^(`+|~+)$/.test(word)) this.#fence = "";
  }

  #spaceCells(): number {
    let column = this.#column;
    for (const character of this.#space) column += character === "\t" ? TAB - column % TAB : 1;
    return column - this.#column;
  }
}
