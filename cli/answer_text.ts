import type { ChatReader, EnginePart, TokenEvent } from "../lib/model.ts";
import { DIM, PLAIN } from "./terminal.ts";

export interface ShownThinking {
  /** Whether thinking is shown at all. */
  readonly shown: boolean;
  /** Whether it is set off from the answer by being dimmed, as a terminal can. */
  readonly dimmed: boolean;
}

/** Turns events into the texts to be shown, and keeps what was thought and what was answered. */
export class AnswerText {
  text = "";
  reasoning = "";
  #dim = false;
  /** Thinking is over. */
  #ended = false;

  constructor(private readonly reader: ChatReader | undefined, private readonly thinking: ShownThinking) {}

  /** What is to be shown now. */
  read(event: TokenEvent): string {
    if (event.type !== "token" && event.type !== "text" && event.type !== "finish") return "";
    if (!this.reader) {
      this.text += event.text;
      return event.text;
    }
    const parts = event.type === "token" && event.marker
      ? this.reader.marker(event.token)
      : this.reader.text(event.text);
    const last = event.type === "finish" ? this.reader.end() : [];
    const shown = [...parts, ...last].map((part) => this.#part(part)).join("");
    return event.type === "finish" ? shown + this.#end() : shown;
  }

  #part(part: EnginePart): string {
    if (part.type === "content") {
      this.text += part.text;
      return this.#end() + part.text;
    }
    if (part.type !== "reasoning") return "";
    this.reasoning += part.text;
    if (!this.thinking.shown) return "";
    if (!this.thinking.dimmed || this.#dim) return part.text;
    this.#dim = true;
    return DIM + part.text;
  }

  /** An empty line stands between thinking and answer. */
  #end(): string {
    const thought = this.thinking.shown && this.reasoning !== "" && !this.#ended;
    this.#ended ||= thought;
    const bright = this.#dim ? PLAIN : "";
    this.#dim = false;
    return thought ? `${bright}\n\n` : bright;
  }
}
