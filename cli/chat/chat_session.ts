import type { ChatAnswer, ChatOptions } from "../../lib/chat.ts";
import { CompyError } from "../../lib/errors.ts";
import type { Message } from "../../lib/messages.ts";
import type { Model } from "../../lib/model.ts";
import type { Input, InputLines } from "./chat_input.ts";
import { UsageError } from "../shared/flags.ts";
import { inFlags } from "../shared/words.ts";

/** The display of a conversation. */
export interface Screen {
  text(text: string): void;
  /** Shows thinking, figures and remarks about the answer. */
  aside(text: string): void;
  problem(text: string): void;
  /**
   * Shows how many of a long prompt's `total` tokens are prefilled. Prefill is complete when `done` equals
   * `total`.
   */
  reading(done: number, total: number): void;
}

export interface SessionOptions extends ChatOptions {
  /** The system prompt. */
  readonly system?: string;
  /** Whether thinking and figures are shown. */
  readonly asides: boolean;
}

/** This mark begins and ends a message of several lines. */
const FENCE = '"""';

const COMMANDS: Readonly<Record<string, string>> = {
  "/clear": "start a new conversation",
  "/retry": "answer the last message again",
  "/undo": "remove the last message and its answer",
  "/system TEXT": "set the system message from here on; without TEXT, remove it",
  "/set NAME VALUE":
    "set temperature, seed, top-p, n (maximum tokens of an answer) or effort; without VALUE, reset it",
  "/show": "show the settings and the used part of the context",
  "/help": "print this list",
  "/bye": "leave, as Ctrl-D and two Ctrl-C do",
};

export const COMMAND_HELP = Object.entries(COMMANDS)
  .map(([command, what]) => `  ${command.padEnd(16)} ${what}\n`).join("");

/** The options that `/set` changes, each with the function that parses its value. */
const SETTINGS: Readonly<Record<string, readonly [keyof ChatOptions, (text: string) => number | string]>> = {
  temperature: ["temperature", toNumber],
  seed: ["seed", toNumber],
  "top-p": ["topP", toNumber],
  n: ["maxTokens", toNumber],
  effort: ["effort", (text) => text],
};

/** A conversation with one model, message by message. */
export class ChatSession {
  readonly #messages: Message[] = [];
  #system: string | undefined;
  /** Options that `/set` has changed. */
  #changed: ChatOptions = {};
  #used = 0;
  #answering: AsyncDisposable | undefined;
  #leaving = false;

  constructor(
    private readonly model: Model,
    private readonly options: SessionOptions,
    private readonly screen: Screen,
  ) {
    this.#system = options.system;
  }

  /** Runs until the user leaves or leave() is called. Returns whether every message was answered. */
  async run(lines: InputLines): Promise<boolean> {
    let [interrupted, good] = [false, true];
    while (!this.#leaving) {
      const input = await readMessage(lines);
      if (input.type === "end" || (input.type === "interrupt" && interrupted)) return good;
      interrupted = input.type === "interrupt";
      if (input.type === "interrupt") this.screen.aside("Ctrl-C again, Ctrl-D or /bye leaves\n");
      if (input.type !== "text" || input.text.trim() === "") continue;
      if (input.text.trim() === "/bye") return good;
      good = await this.#try(() => this.#take(input.text)) && good;
    }
    return false;
  }

  /** Answers one message, also if it begins like a command. Returns whether the answer was completed. */
  async ask(message: string): Promise<boolean> {
    return await this.#try(() => this.#say(message)) && !this.#leaving;
  }

  /** Stops the current answer; the text so far stays in the conversation. */
  interrupt(): void {
    this.#answering?.[Symbol.asyncDispose]();
  }

  /** Stops the current answer and ends the conversation. */
  leave(): void {
    this.#leaving = true;
    this.interrupt();
  }

  async #take(text: string): Promise<void> {
    if (text.startsWith("/") && !text.includes("\n")) await this.#command(text.trim());
    else await this.#say(text);
  }

  /** Runs `answer` and shows why it failed, if it did. Returns whether it succeeded. */
  async #try(answer: () => Promise<void>): Promise<boolean> {
    try {
      await answer();
      return true;
    } catch (error) {
      if (!(error instanceof CompyError || error instanceof UsageError)) throw error;
      this.screen.problem(`Error: ${inFlags(error)}${advice(error)}\n`);
      return false;
    }
  }

  async #command(line: string): Promise<void> {
    const [, name, rest] = /^(\S+)\s*(.*)$/s.exec(line)!;
    const takesText = name === "/system" || name === "/set";
    if (rest !== "" && !takesText) throw new UsageError(`${name} takes nothing behind it (got "${rest}")`);
    switch (name) {
      case "/clear":
        this.#messages.length = this.#used = 0;
        return this.screen.aside("A new conversation\n");
      case "/retry":
        return await this.#retry();
      case "/undo":
        return this.screen.aside(this.#undo() ? "Taken back\n" : "There is nothing to take back\n");
      case "/system":
        this.#system = rest === "" ? undefined : rest;
        return this.screen.aside(rest === "" ? "No system message\n" : "The system message is set\n");
      case "/set":
        return this.#set(rest);
      case "/show":
        return this.screen.text(this.#settings());
      case "/help":
        return this.screen.text(`${COMMAND_HELP}Several lines: between ${FENCE} and ${FENCE}, or pasted\n`);
    }
    throw new UsageError(`There is no command ${name}; /help lists them`);
  }

  async #retry(): Promise<void> {
    const at = this.#lastAsked();
    if (at < 0) throw new UsageError("There is no message to answer again");
    await this.#say(this.#messages[at].content!, this.#messages.slice(0, at));
  }

  /** Removes the last message and its answer. Returns whether there was one. */
  #undo(): boolean {
    const at = this.#lastAsked();
    if (at >= 0) this.#messages.splice(at);
    return at >= 0;
  }

  #lastAsked(): number {
    return this.#messages.findLastIndex(({ role }) => role === "user");
  }

  #set(words: string): void {
    const [name, text = ""] = words.split(/\s+(.*)/s);
    if (!Object.hasOwn(SETTINGS, name)) {
      throw new UsageError(`/set knows ${Object.keys(SETTINGS).join(", ")} (got "${name}")`);
    }
    const [option, read] = SETTINGS[name];
    this.#changed = { ...this.#changed, [option]: text === "" ? this.options[option] : read(text) };
    this.screen.aside(`${name} is ${this.#changed[option] ?? "the model's own"}\n`);
  }

  #settings(): string {
    const { id, contextLength } = this.model.info;
    const all = { ...this.options, ...this.#changed };
    const values = Object.entries(SETTINGS).map(([name, [option]]) =>
      `  ${name}: ${all[option] ?? "default"}\n`
    );
    return `${id}, ${this.#used} of ${contextLength} tokens used\n${values.join("")}` +
      `  system: ${this.#system ?? "none"}\n`;
  }

  /**
   * Asks after the earlier messages and shows the answer as it arrives. A failure leaves the conversation
   * unchanged.
   */
  async #say(content: string, before: readonly Message[] = this.#messages): Promise<void> {
    const { system: _, asides, ...options } = { ...this.options, ...this.#changed };
    const asked: Message[] = [...before, { role: "user", content }];
    const system: Message[] = this.#system === undefined ? [] : [{ role: "system", content: this.#system }];
    const stream = this.model.chat([...system, ...asked], options);
    this.#answering = stream;
    let thinking = false;
    try {
      for await (const { text, reasoning, progress } of stream) {
        if (progress) this.screen.reading(progress.processed, progress.total);
        if (reasoning && asides) this.screen.aside(reasoning);
        if (text && thinking && asides) this.screen.text("\n\n");
        thinking = text ? false : thinking || reasoning !== undefined;
        if (text) this.screen.text(text);
      }
      const answer = await stream.answer();
      this.screen.text("\n");
      if (asides) this.screen.aside(`${figures(answer)}\n`);
      // An answer that was stopped before its first text leaves no message.
      if (answer.finishReason === "cancelled" && answer.text === "") return;
      this.#messages.splice(0, Infinity, ...asked, { role: "assistant", content: answer.text });
      this.#used = answer.usage.promptTokens + answer.usage.completionTokens;
    } finally {
      this.#answering = undefined;
    }
  }
}

/** Returns the next input. Lines between two fences form one message. */
async function readMessage(lines: InputLines): Promise<Input> {
  const first = await lines.read("> ");
  if (first.type !== "text" || !first.text.startsWith(FENCE)) return first;
  let text = first.text.slice(FENCE.length);
  while (!text.trimEnd().endsWith(FENCE)) {
    const next = await lines.read("… ");
    if (next.type !== "text") return next;
    text += `\n${next.text}`;
  }
  return { type: "text", text: text.trimEnd().slice(0, -FENCE.length).trim() };
}

function figures({ usage, timings, finishReason }: ChatAnswer): string {
  const tokens = usage.completionTokens;
  const rate = timings.decodeMs > 0 && tokens > 1
    ? `, ${((tokens - 1) * 1000 / timings.decodeMs).toFixed(1)} a second`
    : "";
  const end =
    { length: "; cut, as no more was allowed", cancelled: "; interrupted" }[finishReason as string] ?? "";
  return `[${tokens} tokens${rate}${end}]`;
}

function advice(error: Error): string {
  return error instanceof CompyError && error.code === "context_length_exceeded"
    ? ". /undo takes the last exchange back, /clear begins anew; --ctx makes room where the model has it"
    : "";
}

function toNumber(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || Number.isNaN(value)) throw new UsageError(`must be a number (got "${text}")`);
  return value;
}
