/** A chat form for tests with thinking and calls. Each START token is followed by a channel's name, then its text. */
import type { ChatForm, ChatPart, ChatReader, ChatRequest } from "../engine/mod.ts";

export interface ChannelForm extends ChatForm {
  /** Every planned conversation, in order. */
  readonly conversations: ChatRequest[];
}

/**
 * Reads plain text, or channels: START `think` LF text, START `call NAME` LF arguments, START `text` LF text. `encode`
 * makes the prompt: tool names come first, and a continued message has no end mark.
 */
export function channelForm(
  start: number,
  encode: (request: ChatRequest) => number[],
): ChannelForm {
  const conversations: ChatRequest[] = [];
  return {
    toolFormat: "channels",
    markers: new Set([start]),
    conversations,
    plan(request) {
      conversations.push(request);
      const { tools = [], toolChoice = "auto", thinkingBudget = Infinity, effort } = request;
      const forced = tools.length > 0 && toolChoice !== "none" && toolChoice !== "auto";
      return {
        prompt: encode(request),
        constraint: forced ? { kind: "lark", grammar: "start: call" } : request.constraint,
        markers: new Set([start]),
        thinking: effort === false
          ? undefined
          : { open: false, anywhere: true, begin: [start], end: [start], budget: thinkingBudget },
        reader: () => new ChannelReader(start),
      };
    },
  };
}

class ChannelReader implements ChatReader {
  #channel = "text";
  /** Name of the channel that is being read. */
  #name: string | undefined;
  #calls = 0;

  constructor(private readonly start: number) {}

  get thinking(): boolean {
    return this.#channel === "think";
  }

  text(text: string): ChatPart[] {
    if (this.#name === undefined) return this.#part(text);
    const end = (this.#name + text).indexOf("\n");
    const read = this.#name + text;
    this.#name = read;
    if (end < 0) return [];
    this.#name = undefined;
    this.#channel = read.slice(0, end);
    return [...this.#open(), ...this.#part(read.slice(end + 1))];
  }

  marker(token: number): ChatPart[] {
    if (token !== this.start) throw new Error(`${token} is no marker`);
    this.#name = "";
    return [];
  }

  end(): ChatPart[] {
    return [];
  }

  #open(): ChatPart[] {
    if (!this.#channel.startsWith("call ")) return [];
    const index = this.#calls++;
    return [{ type: "call", index, id: `call_${"x".repeat(23)}${index}`, name: this.#channel.slice(5) }];
  }

  #part(text: string): ChatPart[] {
    if (text === "") return [];
    if (this.#channel === "think") return [{ type: "reasoning", text }];
    if (this.#channel === "text") return [{ type: "content", text }];
    return [{ type: "arguments", index: this.#calls - 1, text }];
  }
}
