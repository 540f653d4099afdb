import { type ChatReader, type EnginePart, type TokenEvent, tryJson } from "../../lib/model.ts";
import { DIM, PLAIN } from "./terminal.ts";

export interface ShownThinking {
  /** Whether thinking is shown at all. */
  readonly shown: boolean;
  /** Whether it is set off from the answer by being dimmed, as a terminal can. */
  readonly dimmed: boolean;
}

/** A whole call of a tool. */
export interface ShownCall {
  readonly name: string;
  /** JSON, as the model wrote it. */
  readonly arguments: string;
}

/** Turns events into the texts to be shown, and keeps what was thought, what was answered and what is called. */
export class AnswerText {
  text = "";
  reasoning = "";
  /** Each is shown once it is whole, as a line of JSON. */
  readonly calls: ShownCall[] = [];
  /** The call whose arguments come now. */
  #open: { readonly name: string; arguments: string } | undefined;
  /** What of the answer was shown last. */
  #last: "text" | "call" | undefined;
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
    return event.type === "finish" ? shown + this.#call() + this.#end() : shown;
  }

  /** Whether the answer ended inside a call. */
  get hasCutCall(): boolean {
    return this.#open !== undefined;
  }

  #part(part: EnginePart): string {
    if (part.type === "arguments") {
      this.#open!.arguments += part.text;
      return "";
    }
    const called = this.#call();
    if (part.type === "call") {
      this.#open = { name: part.name, arguments: "" };
      return called;
    }
    return called + this.#said(part);
  }

  /** The call that came last, if it is whole. */
  #call(): string {
    const call = this.#open;
    if (!call || tryJson(call.arguments) === undefined) return "";
    this.#open = undefined;
    this.calls.push(call);
    const line = `{"name": ${JSON.stringify(call.name)}, "arguments": ${call.arguments}}`;
    return this.#show("call", line);
  }

  /** Each call stands on a line of its own. */
  #show(kind: "text" | "call", text: string): string {
    const isNewLine = this.#last !== undefined && (kind === "call" || this.#last === "call");
    this.#last = kind;
    return this.#end() + (isNewLine ? "\n" : "") + text;
  }

  #said(part: Extract<EnginePart, { type: "content" | "reasoning" }>): string {
    if (part.type === "content") {
      this.text += part.text;
      return this.#show("text", part.text);
    }
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
