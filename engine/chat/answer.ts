import type { ChatPart } from "./types.ts";

/** Parts of an answer as a reader finds them. Blanks around thinking and calls are no part of the texts. */
export class Answer {
  /** Whether what comes next is thinking. */
  thinking = false;
  #parts: ChatPart[] = [];
  #calls = 0;
  /** Blanks that belong to the text only if more of it follows. */
  #held = "";
  /** Whether the blanks before the next text are no part of it. */
  #atStart = false;
  readonly #trims: boolean;

  /** `trims`: blanks between the content and calls are no part of it. Else it is handed on as it is, up to the first call. */
  constructor(trims: boolean) {
    this.#trims = trims;
  }

  /** What has been found since the last time. */
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

  /** Begins a call; its index is what `args` wants. */
  call(name: string): number {
    this.#drop();
    const index = this.#calls++;
    this.#parts.push({ type: "call", index, id: newCallId(), name });
    return index;
  }

  /** A piece of a call's arguments as JSON. */
  args(index: number, text: string): void {
    if (text === "") return;
    const last = this.#parts.at(-1);
    if (last?.type === "arguments" && last.index === index) {
      this.#parts[this.#parts.length - 1] = { ...last, text: last.text + text };
    } else this.#parts.push({ type: "arguments", index, text });
  }

  /** Nothing more comes: what was held back is text after all. */
  end(): void {
    if (!this.thinking && this.#held !== "") this.#add("content", this.#held);
    this.#held = "";
  }

  /** Hands on all but the blanks at the end, and at the start where these do not count. */
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

/** `call_` and 24 letters drawn at random: no two are ever the same. */
export function newCallId(): string {
  const draws = crypto.getRandomValues(new Uint32Array(ID_LETTERS));
  return "call_" + Array.from(draws, (draw) => LETTERS[draw % LETTERS.length]).join("");
}
