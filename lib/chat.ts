import type { ScoredToken } from "../engine/answers/pieces.ts";
import {
  type ChatPart as EnginePart,
  type Engine,
  isReservedVariable,
  type Tool,
  type ToolChoice,
  tryJson,
} from "../engine/mod.ts";
import { type AnswerStream, LazyAnswer } from "./answer_stream.ts";
import { refuse } from "./errors.ts";
import { type GeneratedPart, type GeneratedText, jsonOf, readEvents, scorer } from "./generate.ts";
import {
  canContinue,
  checkTools,
  imagesOf,
  type Message,
  readImages,
  templateMessages,
  type ToolCall,
} from "./messages.ts";
import {
  checkOptions,
  constraintOf,
  GENERATE_OPTIONS,
  type GenerateOptions,
  type OptionTable,
  requestOf,
} from "./options.ts";

export type { Tool, ToolChoice } from "../engine/mod.ts";

/**
 * Options of `chat`. A constraint such as `schema` applies to the answer's text, not to its thinking or tool calls.
 *
 * ```ts
 * import { type ChatOptions, loadModel } from "compy";
 *
 * const options: ChatOptions = { temperature: 0.7, maxTokens: 40, effort: "low", signal: AbortSignal.timeout(60_000) };
 * await using model = await loadModel();
 * console.log((await model.chat("What is a hen?", options).answer()).text);
 * ```
 */
export interface ChatOptions extends Omit<GenerateOptions, "images"> {
  /**
   * Tools that the model may call. The caller runs the calls and sends their results as messages of the role `tool`.
   */
  readonly tools?: readonly Tool[];
  /**
   * Whether the model calls tools. `auto`: it may. `required`: it must call one. `{ name }`: it must call this tool.
   * Default auto.
   */
  readonly toolChoice?: ToolChoice;
  /** Whether one answer may contain several tool calls. Default true. */
  readonly parallelToolCalls?: boolean;
  /**
   * Amount of thinking before the answer. `none` turns thinking off; the other values need a model that supports them.
   */
  readonly effort?: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max";
  /** Maximum number of thinking tokens in the answer. */
  readonly thinkingBudget?: number;
  /** Variables of the model's template, such as `enable_thinking`. */
  readonly templateVariables?: Readonly<Record<string, string | number | boolean | null>>;
  /** Whether the answer continues the last message. By default true for an assistant message without tool calls. */
  readonly continueLast?: boolean;
}

/**
 * A part of a chat answer: one of `text`, `reasoning`, `toolCall` and `progress` is set.
 *
 * ```ts
 * import { type ChatPart, loadModel } from "compy";
 *
 * const show = ({ text, reasoning, toolCall, progress }: ChatPart) =>
 *   text ?? (reasoning && `(${reasoning})`) ?? toolCall?.name ?? progress?.processed;
 * await using model = await loadModel();
 * for await (const part of model.chat("Hi", { maxTokens: 5 })) console.log(show(part));
 * ```
 */
export interface ChatPart extends GeneratedPart {
  /** A further piece of the model's thinking. */
  readonly reasoning?: string;
  /** A complete tool call. */
  readonly toolCall?: ToolCall;
}

/**
 * A complete answer.
 *
 * ```ts
 * import { type ChatAnswer, loadModel } from "compy";
 *
 * await using model = await loadModel();
 * const { text, reasoning, toolCalls, finishReason }: ChatAnswer = await model.chat("Hi", { maxTokens: 5 }).answer();
 * console.log(text, reasoning, toolCalls.length, finishReason);
 * ```
 */
export interface ChatAnswer extends Omit<GeneratedText, "finishReason"> {
  /** The model's thinking; empty if there is none. */
  readonly reasoning: string;
  /** Complete tool calls, without a call that the end of the answer cut off. */
  readonly toolCalls: readonly ToolCall[];
  /** Reason why the answer ended, as in GeneratedText; `tool_calls` if the model waits for the results of its calls. */
  readonly finishReason: GeneratedText["finishReason"] | "tool_calls";
}

/**
 * A chat answer while it is generated.
 *
 * ```ts
 * import { type Chat, loadModel } from "compy";
 *
 * const textOf = async (chat: Chat) => (await chat.answer()).text;
 * await using model = await loadModel();
 * console.log(await Promise.all(["Hi", "Who are you?"].map((question) => textOf(model.chat(question)))));
 * ```
 */
export type Chat = AnswerStream<ChatPart, ChatAnswer>;

const { images: _, ...ANSWER_OPTIONS } = GENERATE_OPTIONS; // in chat, the user's messages hold the images

const CHAT_OPTIONS: OptionTable<ChatOptions> = {
  ...ANSWER_OPTIONS,
  tools: "list",
  toolChoice: "any",
  parallelToolCalls: "switch",
  effort: "text",
  thinkingBudget: "number",
  templateVariables: "object",
  continueLast: "switch",
};

/** Answers a conversation. Errors are thrown when the answer is read. */
export function chat(engine: Engine, said: string | readonly Message[], asked: ChatOptions): Chat {
  // The messages are copied now, because they are only read when the caller reads the answer.
  const messages = Array.isArray(said) ? [...said] : said;
  const options = { ...asked };
  return new LazyAnswer<ChatPart, ChatAnswer>(async (signal, emit) => {
    checkOptions(options, CHAT_OPTIONS);
    const images = await readImages(engine, imagesOf(messages), signal);
    const plan = planOf(engine, messages, options);
    const { reader, ...request } = plan;
    const events = readEvents(engine, { ...requestOf(options, signal), ...request, ...images }, reader());
    const parts = new Parts(emit, scorer(engine.tokenizer, options));
    let calls = false;
    for await (const piece of events.pieces) {
      if (piece.type === "progress") emit({ progress: piece.progress });
      else if (piece.type === "part") parts.add(piece.part, piece.tokens);
      else if (piece.type === "finish") calls = piece.reason === "tool_calls";
    }
    const { reason, ...end } = events.end(options.signal);
    const whole = parts.end();
    return {
      ...whole,
      ...jsonOf(whole.text, options, reason),
      ...end,
      finishReason: calls ? "tool_calls" : reason,
    };
  }, options.signal);
}

function planOf(engine: Engine, messages: string | readonly Message[], options: ChatOptions) {
  const { tools = [], toolChoice = "auto", parallelToolCalls = true, templateVariables = {} } = options;
  checkTools(tools);
  checkChoice(toolChoice, tools);
  const reserved = Object.keys(templateVariables).find(isReservedVariable);
  if (reserved !== undefined) {
    refuse("templateVariables", "must not use names that the template reserves", reserved);
  }
  const constraint = constraintOf(options);
  const { effort, thinkingBudget, continueLast = canContinue(messages) } = options;
  if (continueLast && !canContinue(messages)) {
    refuse(
      "continueLast",
      "the last message must be the assistant's, and without calls, to be continued",
      true,
    );
  }
  const off = effort === "none" || templateVariables.enable_thinking === false;
  return engine.chatForm.plan({
    messages: templateMessages(messages),
    ...(tools.length > 0 ? { tools, toolChoice, parallelToolCalls } : {}),
    constraint,
    ...(off ? { effort: false } : effort === undefined ? {} : { effort }),
    ...(thinkingBudget === undefined ? {} : { thinkingBudget }),
    variables: templateVariables,
    continueFinal: continueLast,
  });
}

function checkChoice(choice: ToolChoice, tools: readonly Tool[]): void {
  if (typeof choice === "string") {
    const known = ["none", "auto", "required"].includes(choice);
    if (!known) refuse("toolChoice", 'must be "none", "auto", "required" or { name }', choice);
    if (choice === "required" && tools.length === 0) refuse("toolChoice", "needs tools", choice);
  } else if (!tools.some(({ name }) => name === choice.name)) {
    refuse("toolChoice.name", "must be the name of one of the tools", choice.name);
  }
}

/** Collects the parts of an answer. It emits a tool call when the call is complete. */
class Parts {
  #text = "";
  #reasoning = "";
  readonly #tokens: ScoredToken[] = [];
  readonly #calls: ToolCall[] = [];
  /** The tool call whose arguments are still incomplete. */
  #open: { readonly id: string; readonly name: string; json: string } | undefined;

  constructor(
    private readonly emit: (part: ChatPart) => void,
    private readonly score: ReturnType<typeof scorer>,
  ) {}

  add(part: EnginePart, tokens: readonly ScoredToken[]): void {
    if (part.type === "arguments") {
      this.#open!.json += part.text;
      return;
    }
    this.#close();
    switch (part.type) {
      case "content":
        this.#text += part.text;
        this.#tokens.push(...tokens);
        return this.emit({ text: part.text, ...this.score(tokens) });
      case "reasoning":
        this.#reasoning += part.text;
        return this.emit({ reasoning: part.text });
      case "call":
        this.#open = { id: part.id, name: part.name, json: "" };
    }
  }

  end() {
    this.#close();
    return {
      text: this.#text,
      reasoning: this.#reasoning,
      toolCalls: this.#calls,
      ...this.score(this.#tokens),
    };
  }

  #close(): void {
    if (!this.#open) return;
    const { id, name, json } = this.#open;
    this.#open = undefined;
    const values = tryJson(json);
    if (values === undefined) return; // the end of the answer has cut off the call
    const toolCall = { id, name, arguments: values as ToolCall["arguments"], json };
    this.#calls.push(toolCall);
    this.emit({ toolCall });
  }
}
