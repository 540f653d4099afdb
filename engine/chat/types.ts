/** A model's way to answer in a conversation (thinking, calls of tools) as the rest of the program sees it. */

import type { Constraint } from "../grammar/types.ts";
import type { ChatMessage } from "../tokenizer/types.ts";

/** What a tool may be called. */
export const TOOL_NAME = /^[A-Za-z0-9_.-]{1,128}$/;
/** The same in words. */
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
  /** 1 to 128 letters, digits and _ . - */
  readonly name: string;
  /** What it does, for the model to read. */
  readonly description?: string;
  /** JSON schema of its arguments; absent where it takes none. */
  readonly parameters?: Readonly<Record<string, unknown>>;
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
  /** Default true. */
  readonly parallelToolCalls?: boolean;
  /** The form of the answer's content; thinking and calls are not part of it. */
  readonly constraint?: Constraint;
  /** How much is thought: false is not at all, a word is handed to templates that know such words. */
  readonly effort?: false | string;
  /** Most tokens of thinking, after which its end is forced. */
  readonly thinkingBudget?: number;
  /** Extra variables for the template (`chat_template_kwargs`). */
  readonly variables?: Readonly<Record<string, unknown>>;
  /** The last message is the assistant's, and the answer continues it. */
  readonly continueFinal?: boolean;
  /** `plan` throws TooManyTokens where the prompt has more. */
  readonly atMost?: number;
}

/**
 * Thinking as the engine counts it. Marks that are tokens of the vocabulary are found by these, others by their text, in
 * whichever tokens it is written.
 */
export interface ThinkingBounds {
  /** The prompt has opened it. */
  readonly open: boolean;
  /** It may begin after other text too, and again; else the model thinks first, or not at all, as its answer is read. */
  readonly anywhere: boolean;
  /** Tokens that open it, where the model does. */
  readonly begin: readonly number[];
  /** Tokens that close it; they are forced when the budget is spent. */
  readonly end: readonly number[];
  /** Tokens between `begin` and `end`; Infinity where there is no limit. */
  readonly budget: number;
  /** Where an answer is divided into messages. */
  readonly heads?: MessageHeads;
}

/** What stands before each message of an answer and is no part of its text: stop texts do not look into it. */
export interface MessageHeads {
  /** The answer begins with one, unless it begins with a text. */
  readonly open: boolean;
  /** Tokens that begin one, or stand in it. */
  readonly begin: readonly number[];
  /** The token that ends it. */
  readonly end: number;
}

/** What a conversation asks of the engine, and how its answer is read. */
export interface ChatPlan {
  readonly prompt: readonly number[];
  /** Of the whole answer: thinking, marks, calls and content. */
  readonly constraint?: Constraint;
  /** Tokens that are no text here. */
  readonly markers: ReadonlySet<number>;
  readonly thinking?: ThinkingBounds;
  /** A new reader for each answer. */
  reader(): ChatReader;
}

/** A part of an answer. The texts of one call, put together, are its arguments as JSON. */
export type ChatPart =
  | { readonly type: "reasoning"; readonly text: string }
  | { readonly type: "content"; readonly text: string }
  | { readonly type: "call"; readonly index: number; readonly id: string; readonly name: string }
  | { readonly type: "arguments"; readonly index: number; readonly text: string };

/** Reads an answer as it comes: holds back what may still become a mark. */
export interface ChatReader {
  text(text: string): ChatPart[];
  marker(token: number): ChatPart[];
  /** What was held back. */
  end(): ChatPart[];
  /** Whether what comes next is thinking. */
  readonly thinking: boolean;
}

/**
 * `plan` throws ChatTemplateError for what the model's template refuses, ConstraintError for a tool whose parameters are
 * no schema of an object, and TooManyTokens.
 */
export interface ChatForm {
  /** The format of its calls, e.g. "hermes". */
  readonly toolFormat: string;
  /** Tokens that are no text in some of its answers. */
  readonly markers: ReadonlySet<number>;
  plan(request: ChatRequest): ChatPlan;
}

/** What a text says that should be JSON, as a call's arguments; undefined where it is none. */
export function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
