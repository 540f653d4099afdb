import { type ChatReader, type EnginePart, type TokenEvent, tryJson } from "../../lib/model.ts";

/** The destination of an answer's text. */
export interface AnswerDisplay {
  /** Whether thinking is shown. */
  readonly thinking: boolean;
  readonly show: (text: string, isThinking: boolean) => unknown;
}

/** A complete tool call. */
export interface ShownCall {
  readonly name: string;
  /** The call's arguments as JSON, exactly as the model wrote them. */
  readonly arguments: string;
}

/** Shows an answer as its token events arrive, and collects the thinking, the answer and the calls. */
export class AnswerText {
  text = "";
  reasoning = "";
  /** Complete tool calls. Each is shown as a line of JSON. */
  readonly calls: ShownCall[] = [];
  /** The tool call whose arguments are arriving. */
  #open: { readonly name: string; arguments: string } | undefined;
  /** The kind of text that was shown last. */
  #last: "text" | "call" | undefined;
  /** Whether thinking has ended. */
  #ended = false;

  constructor(private readonly reader: ChatReader | undefined, private readonly display: AnswerDisplay) {}

  read(event: TokenEvent): void {
    if (event.type !== "token" && event.type !== "text" && event.type !== "finish") return;
    if (!this.reader) {
      this.text += event.text;
      this.display.show(event.text, false);
      return;
    }
    const parts = event.type === "token" && event.marker
      ? this.reader.marker(event.token)
      : this.reader.text(event.text);
    const last = event.type === "finish" ? this.reader.end() : [];
    for (const part of [...parts, ...last]) this.#part(part);
    if (event.type !== "finish") return;
    this.#call();
    this.#end();
  }

  /** Whether the answer ended inside a tool call. */
  get hasCutCall(): boolean {
    return this.#open !== undefined;
  }

  #part(part: EnginePart): void {
    if (part.type === "arguments") {
      this.#open!.arguments += part.text;
      return;
    }
    this.#call();
    if (part.type === "call") this.#open = { name: part.name, arguments: "" };
    else this.#said(part);
  }

  /** Shows the latest tool call if it is complete. */
  #call(): void {
    const call = this.#open;
    if (!call || tryJson(call.arguments) === undefined) return;
    this.#open = undefined;
    this.calls.push(call);
    this.#show("call", `{"name": ${JSON.stringify(call.name)}, "arguments": ${call.arguments}}`);
  }

  /** Shows text, with each call on its own line. */
  #show(kind: "text" | "call", text: string): void {
    const isNewLine = this.#last !== undefined && (kind === "call" || this.#last === "call");
    this.#last = kind;
    this.#end();
    this.display.show(isNewLine ? `\n${text}` : text, false);
  }

  #said(part: Extract<EnginePart, { type: "content" | "reasoning" }>): void {
    if (part.type === "content") {
      this.text += part.text;
      return this.#show("text", part.text);
    }
    this.reasoning += part.text;
    if (this.display.thinking) this.display.show(part.text, true);
  }

  /** Ends thinking: separates it from the answer with an empty line. */
  #end(): void {
    if (this.#ended || !this.display.thinking || this.reasoning === "") return;
    this.#ended = true;
    this.display.show("\n\n", false);
  }
}
