/** Chat features of a model (thinking, tool calls): the types that other folders use. */

import type { Constraint } from "../grammar/types.ts";
import type { ChatMessage } from "../tokenizer/types.ts";

/** Valid names of tools. */
export const TOOL_NAME = /^[A-Za-z0-9_.-]{1,128}$/;
/** The rule of TOOL_NAME in words. */
export const TOOL_NAME_RULE = "must have 1 to 128 letters, digits and _ . -";

/**
 * A function that the model may call.
 *
 * ```ts
 * import { loadModel, type Tool } from "compy";
 *
 * const digit = { type: "integer", minimum: 0, maximum: 9 };
 * const parameters = { type: "object", properties: { a: digit }, required: ["a"], additionalProperties: false };
 * const double: Tool = { name: "double", description: "Twice a number", parameters };
 * await using model = await loadModel();
 * const { toolCalls } = await model.chat("2 + 2?", { tools: [double], toolChoice: "required" }).answer();
 * console.log(toolCalls[0]?.arguments);
 * ```
 */
export interface Tool {
  /** The tool's name: 1 to 128 letters, digits and _ . - */
  readonly name: string;
  /** The purpose of the tool, for the model to read. */
  readonly description?: string;
  /** JSON schema of the tool's arguments; undefined if it has none. */
  readonly parameters?: Readonly<Record<string, unknown>>;
  /**
   * Whether arguments always follow the schema. By default, keywords that cannot be enforced exactly are loosened; with
   * true they are refused.
   */
  readonly strict?: boolean;
}

/**
 * "auto": a text, calls or both; "required": at least one call; a name: a call of that tool.
 *
 * ```ts
 * import { loadModel, type ToolChoice } from "compy";
 *
 * const choice: ToolChoice = { name: "now" }; // or "auto", "none", "required"
 * await using model = await loadModel();
 * const { finishReason } = await model.chat("What time is it?", { tools: [{ name: "now" }], toolChoice: choice }).answer();
 * console.log(finishReason); // tool_calls
 * ```
 */
export type ToolChoice = "none" | "auto" | "required" | { readonly name: string };

export interface ChatRequest {
  readonly messages: readonly ChatMessage[];
  readonly tools?: readonly Tool[];
  readonly toolChoice?: ToolChoice; // default: auto with tools
  /** Whether the answer may contain several tool calls. Default true. */
  readonly parallelToolCalls?: boolean;
  /** The form of the answer's content, without thinking and tool calls. */
  readonly constraint?: Constraint;
  /** Amount of thinking: false disables it; a word is passed to templates that know efforts. */
  readonly effort?: false | string;
  /** Maximum tokens of thinking. After them, the end of thinking is forced. */
  readonly thinkingBudget?: number;
  /** Extra variables for the template (`chat_template_kwargs`). */
  readonly variables?: Readonly<Record<string, unknown>>;
  /** Whether the answer continues the last message, which must be the assistant's. */
  readonly continueFinal?: boolean;
  /** Maximum tokens of the prompt. Above it, `plan` throws TooManyTokens. */
  readonly atMost?: number;
}

/**
 * Marks and limit of thinking, for the engine to count. The engine finds mark tokens by these ids, and other marks by
 * their text.
 */
export interface ThinkingBounds {
  /** Whether the prompt has opened the thinking. */
  readonly open: boolean;
  /**
   * Whether thinking may begin after other text, and more than once. If false, an answer begins with thinking or has
   * none.
   */
  readonly anywhere: boolean;
  /** Tokens with which the model begins thinking. */
  readonly begin: readonly number[];
  /** Tokens that end thinking. These tokens are forced when the thinking budget is spent. */
  readonly end: readonly number[];
  /** Maximum tokens between `begin` and `end`; Infinity for no limit. */
  readonly budget: number;
  /** Headers of messages, if an answer consists of several messages. */
  readonly headers?: MessageHeaders;
}

/** Header format of the messages in an answer. Stop texts do not apply inside headers. */
export interface MessageHeaders {
  /** Whether the answer begins with a header instead of text. */
  readonly open: boolean;
  /** Tokens that begin a header or occur in a header. */
  readonly begin: readonly number[];
  /** The token that ends a header. */
  readonly end: number;
}

/** A prompt for the engine, and the reader of its answer. */
export interface ChatPlan {
  readonly prompt: readonly number[];
  /** The grammar of the whole answer: thinking, marks, calls and content. */
  readonly constraint?: Constraint;
  /** Tokens that are marks here, not text. */
  readonly markers: ReadonlySet<number>;
  readonly thinking?: ThinkingBounds;
  /** Returns a new reader for one answer. */
  reader(): ChatReader;
}

/** A part of an answer. The texts of a tool call's parts form its arguments as JSON. */
export type ChatPart =
  | { readonly type: "reasoning"; readonly text: string }
  | { readonly type: "content"; readonly text: string }
  | { readonly type: "call"; readonly index: number; readonly id: string; readonly name: string }
  | { readonly type: "arguments"; readonly index: number; readonly text: string };

/** Reads an answer as it arrives. Holds back text that may become a mark. */
export interface ChatReader {
  text(text: string): ChatPart[];
  marker(token: number): ChatPart[];
  /** Ends the answer. Returns the text that was held back. */
  end(): ChatPart[];
  /** Whether the next text is thinking. */
  readonly thinking: boolean;
}

/**
 * A model's chat features. `plan` throws ChatTemplateError if the model's template refuses the request, ConstraintError
 * for a tool whose parameters are not an object schema, and TooManyTokens.
 */
export interface ChatForm {
  /** The format of tool calls, for example "hermes". */
  readonly toolFormat: string;
  /** Tokens that are marks instead of text in some answers. */
  readonly markers: ReadonlySet<number>;
  plan(request: ChatRequest): ChatPlan;
}

/** Parses JSON text, for example a tool call's arguments; undefined if it is not JSON. */
export function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Whether the value is a JSON object. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
