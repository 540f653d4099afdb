import {
  type ChatMessage,
  type ChatTemplate,
  ChatTemplateError,
  type ChatTemplateOptions,
  type Tokenizer,
} from "../tokenizer/types.ts";
import { effortVariables } from "./effort.ts";
import type { CallSyntax } from "./formats/format.ts";
import { textOf, withReasoning } from "./history.ts";
import { type Thinking, type ThinkingState, thinkingState } from "./thinking.ts";
import { type CheckedTool, toolSpec } from "./tools.ts";
import type { ChatRequest } from "./types.ts";

/** The parts of a model that determine its prompts. */
export interface PromptModel {
  readonly template: ChatTemplate;
  readonly tokenizer: Tokenizer;
  /** Source texts of the chat template and of its variant for tools. */
  readonly source: string;
  readonly syntax: CallSyntax;
  readonly thinking: Thinking | undefined;
}

export interface Prompt {
  readonly tokens: number[];
  readonly thinking: ThinkingState;
  /** The part of the last message that the answer continues: thinking or content. */
  readonly continues?: "reasoning" | "content";
}

/** Number of tokens at the end of a prompt that may contain a mark of thinking. */
const TAIL = 64;
/** Placeholder for the point from which the answer continues. User text never contains it. */
const CUT = "\ufdd1continue\ufdd1";

/** Returns the prompt of a conversation. Throws as ChatForm.plan does. */
export function promptOf(model: PromptModel, request: ChatRequest, tools: readonly CheckedTool[]): Prompt {
  const maker = new PromptMaker(model, request, tools);
  return request.continueFinal ? maker.continued() : maker.next();
}

class PromptMaker {
  readonly #options: ChatTemplateOptions;

  constructor(
    private readonly model: PromptModel,
    private readonly request: ChatRequest,
    private readonly tools: readonly CheckedTool[],
  ) {
    this.#options = {
      tools: model.syntax.toolsInMessages ? [] : tools.map(toolSpec),
      variables: { ...effortVariables(model.source, request), ...request.variables },
      atMost: request.atMost,
    };
  }

  /** Returns the prompt of a new answer. */
  next(messages: readonly ChatMessage[] = this.request.messages): Prompt {
    const { thinking } = this.model;
    const tokens = this.#encode(messages);
    const state = this.#state(tokens);
    if (this.request.effort !== false || !thinking) return { tokens, thinking: state };
    // Thinking is disabled: a thought that the template always opens is closed at once.
    const end = state === "open"
      ? this.#marks(thinking.beforeEnd + thinking.end.text + thinking.afterEnd)
      : [];
    return { tokens: tokens.concat(end), thinking: "closed" };
  }

  /** Returns the prompt of an answer that continues the last message. */
  continued(): Prompt {
    const { messages } = this.request;
    const last = messages.at(-1);
    if (last?.role !== "assistant") {
      throw new ChatTemplateError("Cannot continue the last message: it must be the assistant's");
    }
    if (Array.isArray(last.tool_calls) && last.tool_calls.length > 0) {
      throw new ChatTemplateError("Cannot continue the last message: after its calls it is complete");
    }
    const content = textOf(last);
    const reasoning = typeof last.reasoning_content === "string" ? last.reasoning_content : "";
    if (content !== "") {
      const tokens = this.#cut(content) ?? this.#appended(reasoning, content);
      return { tokens, thinking: "closed", continues: "content" };
    }
    if (reasoning === "") return this.next(messages.slice(0, -1));
    return { tokens: this.#appended(reasoning), thinking: "open", continues: "reasoning" };
  }

  /** Returns the rendered conversation up to the end of the last message's content; undefined if that fails. */
  #cut(content: string): number[] | undefined {
    const messages = this.request.messages.with(-1, {
      ...this.request.messages.at(-1)!,
      content: content + CUT,
    });
    try {
      const tokens = this.#encode(messages, { addGenerationPrompt: false, endBefore: CUT });
      return this.#decode(tokens).endsWith(content.trimStart()) ? tokens : undefined;
    } catch (error) {
      if (error instanceof ChatTemplateError) return undefined;
      throw error;
    }
  }

  /** Returns a new answer's prompt, with the last message's text appended. */
  #appended(reasoning: string, content?: string): number[] {
    const parts = [this.#encode(this.request.messages.slice(0, -1))];
    const state = this.#state(parts[0]);
    const marks = this.model.syntax.whole ?? this.#thinkingMarks();
    if (reasoning !== "") {
      if (!marks || state === "closed" && !this.model.syntax.whole) {
        throw new ChatTemplateError(
          "Cannot continue the last message's reasoning_content: thinking is off, or the model does not support it",
        );
      }
      if (state !== "open") parts.push(this.#marks(marks.begin));
      parts.push(this.#text(reasoning));
    }
    if (content === undefined) return parts.flat();
    if (this.model.syntax.whole) {
      throw new ChatTemplateError(
        "Cannot continue the last message: the model's template leaves it out or changes it",
      );
    }
    if (marks && (state === "open" || reasoning !== "")) parts.push(this.#marks(marks.end));
    return [...parts, this.#text(content)].flat();
  }

  #thinkingMarks(): { begin: string; end: string } | undefined {
    const { thinking } = this.model;
    return thinking && {
      begin: thinking.begin.text + thinking.label + thinking.afterBegin,
      end: thinking.beforeEnd + thinking.end.text + thinking.afterEnd,
    };
  }

  #encode(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): number[] {
    const { template, source, syntax, thinking } = this.model;
    const reasoned = withReasoning(messages, source, thinking);
    const written = syntax.messages?.(reasoned, this.tools) ?? reasoned;
    return template.encode(written, { ...this.#options, ...options });
  }

  #state(tokens: readonly number[]): ThinkingState {
    return this.model.thinking
      ? thinkingState(this.model.thinking, this.#decode(tokens.slice(-TAIL)))
      : "closed";
  }

  #decode(tokens: readonly number[]): string {
    return this.model.tokenizer.decode(tokens, { special: true, continuation: true });
  }

  /** Returns the tokens of template text, with control tokens. */
  #marks(text: string): number[] {
    return this.model.tokenizer.encode(text, { parseSpecial: true });
  }

  /** Returns the tokens of user text, without control tokens. */
  #text(text: string): number[] {
    return this.model.tokenizer.encode(text);
  }
}
