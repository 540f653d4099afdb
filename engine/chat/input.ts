import { type Mark, type Marks, textMark } from "./marks.ts";

/** A step of an answer reader. The generator yields when it needs more input. */
export type Reading<T = void> = Generator<undefined, T, undefined>;

const SURROGATE = /[\ud800-\udfff]/;
const FIRST_HALF = /[\ud800-\udbff]/;
const BLANK = /[^ \n\r\t]/;

/**
 * The unread input of an answer. Results do not depend on how the answer is split: each method waits while
 * more input could change its result.
 */
export class Input {
  #text = "";
  #ended = false;

  constructor(private readonly marks: Marks) {}

  add(text: string): void {
    this.#text += text;
  }

  /** Marks the input as complete. */
  end(): void {
    this.#ended = true;
  }

  /**
   * Passes on the text before the first of the marks, and consumes the mark. Returns undefined if the answer ends
   * first.
   */
  *until(marks: readonly Mark[], emit: (text: string) => void): Reading<Mark | undefined> {
    for (;;) {
      const found = this.#first(marks);
      if (found) {
        this.#emit(found.at, emit);
        this.#text = this.#text.slice(found.mark.sign.length);
        return found.mark;
      }
      const undecided = this.#undecided(marks);
      // An answer may end inside a mark with text around its token. The token must not become text.
      const isCut = undecided > 0 && !this.#text.slice(-undecided).isWellFormed();
      this.#emit(this.#text.length - (this.#ended && !isCut ? 0 : undecided), emit);
      if (this.#ended) return undefined;
      yield;
    }
  }

  /** Consumes the text up to and including `end`. Returns the text before `end`; undefined if the answer ends first. */
  *before(end: string): Reading<string | undefined> {
    let text = "";
    return (yield* this.until([textMark(end)], (piece) => text += piece)) ? text : undefined;
  }

  /** Consumes and returns blanks and line breaks. */
  *blank(): Reading<string> {
    let blank = "";
    for (;;) {
      const at = this.#text.search(BLANK);
      blank += this.#take(at < 0 ? this.#text.length : at);
      if (at >= 0 || this.#ended) return blank;
      yield;
    }
  }

  /** Consumes one of the marks, if it comes next, and returns it. */
  *mark(marks: readonly Mark[]): Reading<Mark | undefined> {
    const sign = yield* this.accept(marks.map(({ sign }) => sign));
    return marks.find((mark) => mark.sign === sign);
  }

  /** Consumes one of the texts, if it comes next, and returns it. No text may be a prefix of another. */
  *accept(texts: readonly string[]): Reading<string | undefined> {
    for (;;) {
      const found = texts.find((text) => this.#text.startsWith(text));
      if (found !== undefined) {
        this.#take(found.length);
        return found;
      }
      if (this.#ended || !texts.some((text) => text.startsWith(this.#text))) return undefined;
      yield;
    }
  }

  /** Consumes the text if it comes next, or a prefix of it at the end of the answer. */
  *skip(text: string): Reading {
    if (!(yield* this.accept([text])) && this.#ended && text.startsWith(this.#text)) this.#text = "";
  }

  /** Consumes the longest run of characters that match the pattern. */
  *characters(pattern: RegExp): Reading<string> {
    let taken = "";
    for (;;) {
      let at = 0;
      while (at < this.#text.length && pattern.test(this.#text[at])) at++;
      taken += this.#take(at);
      if (this.#text !== "" || this.#ended) return taken;
      yield;
    }
  }

  /** Returns the next UTF-16 unit without consuming it; "" at the end. */
  *peek(): Reading<string> {
    while (this.#text === "" && !this.#ended) yield;
    return this.#text.slice(0, 1);
  }

  /** Consumes the next character; "" at the end. */
  *next(): Reading<string> {
    const unit = yield* this.peek();
    const code = unit === "" ? undefined : this.#text.codePointAt(0);
    return this.#take(code !== undefined && code > 0xffff ? 2 : unit.length);
  }

  /** Returns whether the text comes next. Consumes nothing. */
  *startsWith(text: string): Reading<boolean> {
    while (this.#text.length < text.length && text.startsWith(this.#text) && !this.#ended) yield;
    return this.#text.startsWith(text);
  }

  /** Passes on one JSON value as written. Returns false if the value does not end. */
  *json(emit: (text: string) => void): Reading<boolean> {
    const scan = new JsonScan();
    for (;;) {
      let at = 0;
      while (at < this.#text.length && scan.state === "inside") {
        if (scan.take(this.#text[at])) at++;
      }
      this.#emit(at, emit);
      if (scan.state !== "inside") return scan.state === "complete";
      if (this.#ended) return scan.endsHere;
      yield;
    }
  }

  /** Consumes and returns a JSON string; returns undefined if none comes next. */
  *string(): Reading<string | undefined> {
    if ((yield* this.peek()) !== '"') return undefined;
    let json = "";
    if (!(yield* this.json((text) => json += text))) return undefined;
    try {
      return JSON.parse(json);
    } catch {
      return undefined;
    }
  }

  #first(marks: readonly Mark[]): { at: number; mark: Mark } | undefined {
    let first: { at: number; mark: Mark } | undefined;
    for (const mark of marks) {
      const at = this.#find(mark.sign);
      if (at >= 0 && (!first || at < first.at)) first = { at, mark };
    }
    return first;
  }

  #find(sign: string): number {
    let at = this.#text.indexOf(sign);
    // A mark may be a lone surrogate. The second half of a pair may be the same UTF-16 unit, but is not a mark.
    while (at > 0 && FIRST_HALF.test(this.#text[at - 1])) at = this.#text.indexOf(sign, at + 1);
    return at;
  }

  /** Returns the length of the input's longest suffix that may be the start of a mark. */
  #undecided(marks: readonly Mark[]): number {
    let most = 0;
    for (const { sign } of marks) {
      for (let length = Math.min(sign.length - 1, this.#text.length); length > most; length--) {
        if (this.#text.endsWith(sign.slice(0, length))) most = length;
      }
    }
    return most;
  }

  #emit(length: number, emit: (text: string) => void): void {
    if (length > 0) emit(this.marks.plain(this.#take(length)));
  }

  #take(length: number): string {
    const taken = this.#text.slice(0, length);
    this.#text = this.#text.slice(length);
    return taken;
  }
}

/** Finds the end of a JSON value without validating it. */
export class JsonScan {
  state: "inside" | "complete" | "broken" = "inside";
  quoted = false;
  #depth = 0;
  #escaped = false;
  #begun = false;

  /** Takes the next UTF-16 unit. Returns whether it belongs to the JSON value. */
  take(unit: string): boolean {
    if (this.quoted) {
      if (this.#escaped) this.#escaped = false;
      else if (unit === "\\") this.#escaped = true;
      else if (unit === '"') this.#close();
      return true;
    }
    if (SURROGATE.test(unit)) return this.#stop(); // a mark: JSON has no surrogates outside strings
    if (unit === '"' && !(this.#begun && this.#depth === 0)) {
      this.#begun = this.quoted = true;
      return true;
    }
    if (unit === "{" || unit === "[") {
      if (this.#begun && this.#depth === 0) return this.#stop();
      this.#begun = true;
      this.#depth++;
      return true;
    }
    if (unit === "}" || unit === "]") {
      if (this.#depth === 0) return this.#stop();
      this.#depth--;
      this.#close();
      return true;
    }
    if (this.#depth === 0 && /[\s,:)"]/.test(unit)) return this.#stop();
    this.#begun = true;
    return true;
  }

  /** Takes more text; skips leading blanks. Returns whether the text so far starts a value and ends inside a string. */
  endsInString(text: string): boolean {
    for (const unit of this.#begun ? text : text.trimStart()) {
      if (this.state !== "inside" || !this.take(unit)) break;
    }
    return this.quoted;
  }

  /** Whether the input so far is a complete value if no more follows: a number or a word such as `true`. */
  get endsHere(): boolean {
    return this.#begun && this.#depth === 0 && !this.quoted;
  }

  #close(): void {
    this.quoted = false;
    if (this.#depth === 0) this.state = "complete";
  }

  #stop(): boolean {
    this.state = this.endsHere ? "complete" : "broken";
    return false;
  }
}
