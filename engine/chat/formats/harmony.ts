import type { Answer } from "../answer.ts";
import { type ChatMessage, MarkedText } from "../../tokenizer/types.ts";
import { callsApart, textOf } from "../history.ts";
import type { Input, Reading } from "../input.ts";
import type { LarkGrammar } from "../lark.ts";
import type { Mark, Marks } from "../marks.ts";
import { argumentsForm } from "../tools.ts";
import type { AnswerShape, CallFormat } from "./format.ts";

/**
 * gpt-oss: messages on channels. A thought is `<|channel|>analysis<|message|>…<|end|><|start|>assistant`.
 * Then comes `<|channel|>final<|message|>…`, or a call `<|channel|>commentary to=functions.f
 * <|constrain|>json<|message|>{…}<|call|>`, which ends the answer.
 */
export const harmony: CallFormat = {
  name: "harmony",
  recognises: (source) => source.includes("<|channel|>") && source.includes("<|message|>"),
  syntax(marks) {
    const harmony = new Harmony(marks);
    return {
      marks: harmony.all,
      messages: (messages) => callsApart(messages).map(preambleApart),
      whole: {
        begin: "<|channel|>analysis<|message|>",
        end: "<|end|>",
        headers: harmony.headers,
        grammar: (lark, shape, inside) => harmony.grammar(lark, shape, inside),
        read: (input, answer, inside) => harmony.read(input, answer, inside),
      },
    };
  },
};

/**
 * Moves text beside a tool call into a separate message after the thought, as models write it. Templates would show
 * that text as the thought and then refuse a real thought.
 */
function preambleApart(message: ChatMessage): ChatMessage {
  const { thinking, ...rest } = message;
  const said = textOf(message);
  if (!Array.isArray(message.tool_calls) || typeof thinking !== "string" || said === "") return message;
  const mark = (name: string) => ({ mark: `<|${name}|>` });
  const head = [mark("end"), mark("start"), "assistant", mark("channel"), "commentary", mark("message")];
  return { ...rest, written: new MarkedText([thinking, ...head, said]) };
}

interface Message {
  readonly channel: string;
  /** The tool to which the message is addressed. */
  readonly recipient?: string;
}

type Inside = "reasoning" | "content" | undefined;

class Harmony {
  readonly #channel: Mark;
  readonly #message: Mark;
  readonly #start: Mark;
  readonly #constrain: Mark;
  /** Marks that end a message. */
  readonly #ends: readonly Mark[];

  constructor(marks: Marks) {
    [this.#channel, this.#message, this.#start, this.#constrain] = [
      "channel",
      "message",
      "start",
      "constrain",
    ]
      .map((name) => marks.mark(`<|${name}|>`));
    this.#ends = ["end", "return", "call"].map((name) => marks.mark(`<|${name}|>`));
  }

  get all(): Mark[] {
    return [this.#channel, this.#message, this.#start, this.#constrain, ...this.#ends];
  }

  get headers(): { begin: Mark[]; end: Mark } {
    return { begin: this.all.filter((mark) => mark !== this.#message), end: this.#message };
  }

  grammar(lark: LarkGrammar, { tools, required, content }: AnswerShape, inside: Inside): string {
    const [channel, message, start, constrain] = [this.#channel, this.#message, this.#start, this.#constrain]
      .map((mark) => lark.mark(mark));
    const thoughtEnd = `${lark.until(this.#ends[0])} ${start} "assistant"`;
    const text = (name: string) => `${channel} ${lark.text(name)} ${message} ${thoughtEnd}`;
    const final = `${channel} "final" ${message} ${content ?? lark.anything}`;
    const calls = tools.map((tool) => {
      const to = lark.text(` to=functions.${tool.name}`);
      const args = `${constrain} "json" ${message} ${lark.part(argumentsForm(tool))}`;
      // The recipient follows the channel, or precedes it as in the templates.
      return lark.rule(`(${channel} "commentary" ${to} | ${to} ${channel} "commentary") " " ${args}`);
    });
    const preamble = !required && content === undefined && tools.length > 0 ? `(${text("commentary")})?` : "";
    const ends = [...(required ? [] : [final]), ...calls];
    if (inside === "content") return content ?? lark.anything;
    const thought = inside === "reasoning" ? thoughtEnd : `(${text("analysis")})?`;
    return `${thought} ${preamble} (${ends.join(" | ")})`;
  }

  *read(input: Input, answer: Answer, inside: Inside): Reading {
    const within = inside ?? ((yield* this.#isBare(input)) ? "content" : undefined);
    let message: Message | undefined = within && { channel: within === "content" ? "final" : "analysis" };
    for (;;) {
      message ??= yield* this.#header(input);
      if (!message || !(yield* this.#body(input, answer, message))) return;
      message = undefined;
    }
  }

  /** Reads a message. Returns the mark after it; undefined if the answer ends. */
  *#body(input: Input, answer: Answer, { channel, recipient }: Message): Reading<Mark | undefined> {
    const stops = [...this.#ends, this.#start, this.#channel];
    if (recipient !== undefined) {
      const call = answer.call(recipient);
      return yield* input.until(stops, (text) => answer.args(call, text));
    }
    if (channel !== "analysis") return yield* input.until(stops, (text) => answer.content(text));
    answer.beginThinking();
    const stop = yield* input.until(stops, (text) => answer.reasoning(text));
    if (stop) answer.endThinking();
    return stop;
  }

  /** Reads a message's header; undefined at the end of the answer. */
  *#header(input: Input): Reading<Message | undefined> {
    let text = "";
    for (;;) {
      const mark = yield* input.until(this.all, (piece) => text += piece);
      if (mark === this.#message) return messageOf(text);
      if (mark === undefined) return undefined;
      text = mark === this.#constrain || mark === this.#channel ? `${text} ` : "";
    }
  }

  /** Returns whether the answer does not begin as an answer in this format does. */
  *#isBare(input: Input): Reading<boolean> {
    const next = yield* input.peek();
    return next !== "" && next !== " " && !this.all.some(({ sign }) => sign[0] === next);
  }
}

function messageOf(header: string): Message {
  const [, recipient] = /\bto=functions\.([^\s<]+)/.exec(header) ?? [];
  const [channel = "final"] = /\b(analysis|commentary|final)\b/.exec(header.replace(/\bto=\S*/, "")) ?? [];
  return { channel, recipient };
}
