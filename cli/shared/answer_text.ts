import { type ChatReader, type EnginePart, type TokenEvent, tryJson } from "../../lib/model.ts";
import { DIM, PLAIN } from "./terminal.ts";

export interface ShownThinking {
  /** Whether thinking is shown. */
  readonly shown: boolean;
  /** Whether thinking is dimmed, which needs a terminal. */
  readonly dimmed: boolean;
}

/** A complete tool call. */
export interface ShownCall {
  readonly name: string;
  /** JSON, exactly as the model wrote it. */
  readonly arguments: string;
}

/** Turns token events into displayed text, and collects the thinking, the answer and the calls. */
export class AnswerText {
  text = "";
  reasoning = "";
  /** Complete calls. Each is shown as a line of JSON. */
  readonly calls: ShownCall[] = [];
  /** The call whose arguments are arriving. */
  #open: { readonly name: string; arguments: string } | undefined;
  /** The kind of text shown last. */
  #last: "text" | "call" | undefined;
  #dim = false;
  /** Whether thinking has ended. */
  #ended = false;

  constructor(private readonly reader: ChatReader | undefined, private readonly thinking: ShownThinking) {}

  /** Returns the text to show for this event. */
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

  /** Whether the answer ended within a call. */
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

  /** Returns the latest call as text, if it is complete. */
  #call(): string {
    const call = this.#open;
    if (!call || tryJson(call.arguments) === undefined) return "";
    this.#open = undefined;
    this.calls.push(call);
    const line = `{"name": ${JSON.stringify(call.name)}, "arguments": ${call.arguments}}`;
    return this.#show("call", line);
  }

  /** Puts each call on its own line. */
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

  /** Separates thinking and answer with an empty line. */
  #end(): string {
    const thought = this.thinking.shown && this.reasoning !== "" && !this.#ended;
    this.#ended ||= thought;
    const bright = this.#dim ? PLAIN : "";
    this.#dim = false;
    return thought ? `${bright}\n\n` : bright;
  }
}
