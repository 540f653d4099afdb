import type { ChatPart } from "./types.ts";

/** Collects the parts of an answer that a reader finds. Drops blanks around thinking and tool calls. */
export class Answer {
  /** Whether the next text is thinking. */
  thinking = false;
  #parts: ChatPart[] = [];
  #calls = 0;
  /** Blanks held back: they belong to the content only if more text follows. */
  #held = "";
  /** Whether to drop blanks before the next text. */
  #atStart = false;
  readonly #trims: boolean;

  /**
   * Creates an empty answer. With `trims`, drops blanks between content and tool calls; otherwise passes content on
   * unchanged up to the first call.
   */
  constructor(trims: boolean) {
    this.#trims = trims;
  }

  /** Returns the parts found since the last call. */
  take(): ChatPart[] {
    const parts = this.#parts;
    this.#parts = [];
    return parts;
  }

  beginThinking(): void {
    this.#drop();
    this.thinking = true;
  }

  endThinking(): void {
    this.#drop();
    this.thinking = false;
  }

  reasoning(text: string): void {
    this.#trimmed("reasoning", text);
  }

  content(text: string): void {
    if (this.#trims || this.#calls > 0) this.#trimmed("content", text);
    else this.#add("content", text);
  }

  /** Begins a tool call. Returns its index, for `args`. */
  call(name: string): number {
    this.#drop();
    const index = this.#calls++;
    this.#parts.push({ type: "call", index, id: newCallId(), name });
    return index;
  }

  /** Adds a piece of a tool call's arguments as JSON. */
  args(index: number, text: string): void {
    if (text === "") return;
    const last = this.#parts.at(-1);
    if (last?.type === "arguments" && last.index === index) {
      this.#parts[this.#parts.length - 1] = { ...last, text: last.text + text };
    } else this.#parts.push({ type: "arguments", index, text });
  }

  /** Ends the answer. Blanks that were held back count as text. */
  end(): void {
    if (!this.thinking && this.#held !== "") this.#add("content", this.#held);
    this.#held = "";
  }

  /** Passes on the text without blanks at its end and, if `#atStart`, at its start. */
  #trimmed(type: "reasoning" | "content", text: string): void {
    const start = this.#atStart ? text.length - trimStart(text).length : 0;
    if (start === text.length) return;
    this.#atStart = false;
    let end = text.length;
    while (end > start && isBlank(text[end - 1])) end--;
    if (end > start) {
      this.#add(type, this.#held + text.slice(start, end));
      this.#held = "";
    }
    this.#held += text.slice(end);
  }

  #drop(): void {
    this.#held = "";
    this.#atStart = true;
  }

  #add(type: "reasoning" | "content", text: string): void {
    if (text === "") return;
    const last = this.#parts.at(-1);
    if (last?.type === type) this.#parts[this.#parts.length - 1] = { type, text: last.text + text };
    else this.#parts.push({ type, text });
  }
}

function isBlank(unit: string): boolean {
  return unit === " " || unit === "\n" || unit === "\r" || unit === "\t";
}

function trimStart(text: string): string {
  return text.replace(/^[ \n\r\t]+/, "");
}

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const ID_LETTERS = 24;

/** Returns an id for a tool call: `call_` and 24 random letters, unique in practice. */
function newCallId(): string {
  const draws = crypto.getRandomValues(new Uint32Array(ID_LETTERS));
  return "call_" + Array.from(draws, (draw) => LETTERS[draw % LETTERS.length]).join("");
}
