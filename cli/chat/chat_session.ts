import type { ChatAnswer, ChatOptions } from "../../lib/chat.ts";
import { CompyError, toCompyError } from "../../lib/errors.ts";
import type { Message, UserMessage } from "../../lib/messages.ts";
import { loadedOf, type Model } from "../../lib/model.ts";
import type { Input, InputLines } from "./chat_input.ts";
import { CHAT_COMMANDS, CONVERSATION_HELP, FENCE } from "./chat_commands.ts";
import { ChatSettings } from "./chat_settings.ts";
import { loadChat, saveChat } from "./saved_chat.ts";
import { escaped } from "../shared/escape.ts";
import { UsageError } from "../shared/flags.ts";
import { readImageFile } from "../shared/image_file.ts";
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

/** Milliseconds within which two interrupts count as one Ctrl-C, from the terminal and from the task runner. */
const SAME_INTERRUPT_MS = 300;

/** A conversation with one model, message by message. */
export class ChatSession {
  readonly #messages: Message[] = [];
  /** The images of the next message. */
  #attached: Uint8Array<ArrayBuffer>[] = [];
  readonly #settings: ChatSettings;
  #system: string | undefined;
  #used = 0;
  /** The file in which this conversation is saved; it may be replaced. */
  #file: string | undefined;
  #answering: AsyncDisposable | undefined;
  /** Time when Ctrl-C stopped the last answer, in milliseconds; undefined if it did not. */
  #interruptedAt: number | undefined;
  #leaving = false;

  constructor(
    private readonly model: Model,
    private readonly options: SessionOptions,
    private readonly screen: Screen,
  ) {
    const { system, asides: _, ...given } = options;
    this.#system = system;
    this.#settings = new ChatSettings(given);
  }

  /** Runs the conversation until the user leaves or leave() is called. Returns whether every message was answered. */
  async run(lines: InputLines): Promise<boolean> {
    // A Ctrl-C that stopped an answer counts as the first of the two that end the chat.
    let [interrupted, good] = [this.#interruptedAt !== undefined, true];
    while (!this.#leaving) {
      const input = await readMessage(lines);
      if (input.type === "end" || (input.type === "interrupt" && interrupted)) return good;
      interrupted = input.type === "interrupt";
      if (input.type === "interrupt") this.screen.aside("Ctrl-C again, Ctrl-D or /bye leaves\n");
      if (input.type !== "text" || input.text.trim() === "") continue;
      if (input.text.trim() === "/bye") return good;
      this.#interruptedAt = undefined;
      good = await this.#try(() => this.#take(input.text)) && good;
      interrupted = this.#interruptedAt !== undefined;
    }
    return false;
  }

  /**
   * Attaches an image to the next message. Throws UsageError for a file that cannot be read, and CompyError for an
   * image that the model cannot read.
   */
  async attach(path: string): Promise<void> {
    const bytes = await readImageFile(path).catch((error: Error) => {
      throw new UsageError(error.message);
    });
    // Decodes the image now, so that a damaged image is refused here and not with the next message.
    await loadedOf(this.model).engine.readImage(bytes.slice()).catch((error) => {
      throw toCompyError(error);
    });
    this.#attached.push(bytes);
  }

  /** Answers one message, even if it begins like a command. Returns whether the answer is complete. */
  async ask(message: string): Promise<boolean> {
    return await this.#try(() => this.#say(this.#next(message))) && !this.#leaving;
  }

  /**
   * Stops the current answer; the text so far stays in the conversation. A second call before the answer's end leaves
   * the conversation.
   */
  interrupt(): void {
    if (this.#answering === undefined) return;
    const now = performance.now();
    this.#interruptedAt ??= now;
    if (now - this.#interruptedAt > SAME_INTERRUPT_MS) this.#leaving = true;
    this.#answering[Symbol.asyncDispose]();
  }

  /** Stops the current answer and ends the conversation. */
  leave(): void {
    this.#leaving = true;
    this.#answering?.[Symbol.asyncDispose]();
  }

  async #take(text: string): Promise<void> {
    if (text.startsWith("/") && !text.includes("\n")) await this.#command(text.trim());
    else await this.#say(this.#next(text.replace(/^ (?=\/)/, "")));
  }

  /** Returns the user's next message, with the attached images. */
  #next(content: string): UserMessage {
    return { role: "user", content, ...(this.#attached.length > 0 && { images: this.#attached }) };
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
    if (!Object.hasOwn(CHAT_COMMANDS, name)) {
      throw new UsageError(
        `There is no command ${name}; /help lists them. To send this as a message, put a space before it`,
      );
    }
    const { takes } = CHAT_COMMANDS[name];
    if (rest !== "" && takes === undefined) {
      throw new UsageError(`${name} takes no argument (got "${rest}")`);
    }
    switch (name) {
      case "/clear":
        this.#messages.length = this.#used = this.#attached.length = 0;
        this.#file = undefined;
        return this.screen.aside("A new conversation\n");
      case "/retry":
        return await this.#retry();
      case "/undo":
        return this.screen.aside(
          this.#undo() ? "The last exchange is removed\n" : "There is nothing to undo\n",
        );
      case "/system":
        this.#system = rest === "" ? undefined : rest;
        return this.screen.aside(rest === "" ? "No system message\n" : "The system message is set\n");
      case "/image":
        return await this.#image(rest);
      case "/set":
        return this.#set(rest);
      case "/unset":
        return this.screen.aside(this.#settings.reset(rest));
      case "/show":
        return this.screen.text(this.#describe());
      case "/save":
        return await this.#save(rest);
      case "/load":
        return await this.#load(rest);
      case "/help":
        return this.screen.text(CONVERSATION_HELP);
    }
  }

  async #retry(): Promise<void> {
    const at = this.#lastAsked();
    if (at < 0) throw new UsageError("There is no message to answer again");
    await this.#say(this.#messages[at] as UserMessage, this.#messages.slice(0, at));
  }

  async #image(path: string): Promise<void> {
    if (path === "") this.#attached = [];
    else await this.attach(path);
    const count = this.#attached.length;
    this.screen.aside(`The next message has ${count === 1 ? "1 image" : `${count || "no"} images`}\n`);
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
    const [name, value = ""] = words.split(/\s+(.*)/s);
    if (name === "") return this.screen.text(this.#settings.list());
    if (value === "") return this.screen.text(this.#settings.describe(name));
    this.screen.aside(this.#settings.set(name, value));
  }

  #describe(): string {
    const { id, contextLength } = this.model.info;
    return `${escaped(id)}, ${this.#used} of ${contextLength} tokens used\n${this.#settings.list(true)}` +
      `  system: ${escaped(this.#system ?? "none")}\n`;
  }

  async #save(path: string): Promise<void> {
    if (path === "") throw new UsageError("/save needs a file: /save FILE");
    const chat = { messages: this.#all(this.#messages), settings: this.#settings.saved() };
    await saveChat(path, chat, path === this.#file);
    this.#file = path;
    this.screen.aside(`${this.#messages.length} messages are saved in "${path}"\n`);
  }

  /** Replaces the conversation by a saved one; changes nothing if the file is refused. */
  async #load(path: string): Promise<void> {
    if (path === "") throw new UsageError("/load needs a file: /load FILE");
    const { messages: [first, ...rest], settings } = await loadChat(path);
    const unknown = this.#settings.load(settings);
    const hasSystem = first?.role === "system";
    this.#system = hasSystem ? first.content : undefined;
    this.#messages.splice(0, Infinity, ...(hasSystem || first === undefined ? [] : [first]), ...rest);
    this.#used = 0;
    this.#file = path;
    this.screen.aside(`${this.#messages.length} messages are loaded from "${path}"\n`);
    if (unknown.length > 0) this.screen.aside(`Settings that chat does not have: ${shortened(unknown)}\n`);
  }

  /** Returns the messages with the system message before them. */
  #all(messages: readonly Message[]): Message[] {
    return this.#system === undefined
      ? [...messages]
      : [{ role: "system", content: this.#system }, ...messages];
  }

  /**
   * Sends a message after the earlier ones and shows the answer as it arrives. A failure leaves the conversation
   * unchanged.
   */
  async #say(message: UserMessage, before: readonly Message[] = this.#messages): Promise<void> {
    const { asides } = this.options;
    const asked: Message[] = [...before, message];
    const stream = this.model.chat(this.#all(asked), this.#settings.options);
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
      // An answer that was stopped before its first text adds no message.
      if (answer.finishReason === "cancelled" && answer.text === "") return;
      this.#messages.splice(0, Infinity, ...asked, { role: "assistant", content: answer.text });
      if (message.images === this.#attached) this.#attached = [];
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
    { length: "; truncated at the token limit", cancelled: "; interrupted" }[finishReason as string] ?? "";
  return `[${tokens} tokens${rate}${end}]`;
}

function advice(error: Error): string {
  return error instanceof CompyError && error.code === "context_length_exceeded"
    ? ". /undo removes the last exchange, /clear starts a new conversation; a higher --ctx makes room if the model allows it"
    : "";
}

/** Returns at most five names for a message. */
function shortened(names: readonly string[]): string {
  const more = names.length > 5 ? `, and ${names.length - 5} more` : "";
  return names.slice(0, 5).map((name) => escaped(name.slice(0, 60))).join(", ") + more;
}
