import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import type { LarkGrammar } from "../lark.ts";
import type { Mark, Marks } from "../marks.ts";
import type { CheckedTool } from "../tools.ts";
import type { ChatMessage, ChatTemplate } from "../../tokenizer/types.ts";

/** How a family of models writes calls of tools. One file each in this folder, and a line in registry.ts. */
export interface CallFormat {
  readonly name: string;
  /** Whether a template, by its source, teaches and shows calls in this format. */
  recognises(source: string): boolean;
  syntax(marks: Marks, source: string, template: ChatTemplate): CallSyntax;
}

/** What an answer may be, beside its thinking. */
export interface AnswerShape {
  readonly tools: readonly CheckedTool[];
  /** Whether there must be a call. */
  readonly required: boolean;
  /** Whether there may be more than one. */
  readonly many: boolean;
  /** The content in its form; undefined where it is any text. */
  readonly content: string | undefined;
}

/** What a reader knows of the answer. */
export interface ReadShape {
  readonly tools: readonly CheckedTool[];
  readonly required: boolean;
  /** Its content has a given form, and marks inside it are text. */
  readonly formed: boolean;
  /** Marks that are no text though they mean nothing here: an end of thinking that has no beginning, those around a content. */
  readonly strays: readonly Mark[];
}

interface Syntax {
  /** Every mark that it reads; those that are tokens come to the reader as markers. */
  readonly marks: readonly Mark[];
  /** The conversation as the template wants it. */
  messages?(messages: readonly ChatMessage[], tools: readonly CheckedTool[]): ChatMessage[];
  /** The template knows nothing of tools: what it must say of them is in the messages. */
  readonly toolsInMessages?: boolean;
}

/** A format with one model's marks: an answer is thinking, then what this describes. */
export interface BodySyntax extends Syntax {
  readonly whole?: undefined;
  /** The grammar of what follows the thinking. */
  body(lark: LarkGrammar, shape: AnswerShape): string;
  /** Reads what follows the thinking. */
  read(input: Input, answer: Answer, shape: ReadShape): Reading;
}

/** Answers that are divided otherwise: into messages, each on a channel of its own. */
export interface WholeSyntax extends Syntax {
  readonly whole: {
    /** What stands before and after a thought. */
    readonly begin: string;
    readonly end: string;
    /** Marks of which each begins a message's head, or stands in it, and the one that ends it. */
    readonly heads: { readonly begin: readonly Mark[]; readonly end: Mark };
    /** Of an answer with thinking, content and, if there are tools, calls. `inside`: what the prompt has begun. */
    grammar(lark: LarkGrammar, shape: AnswerShape, inside?: "reasoning" | "content"): string;
    read(input: Input, answer: Answer, inside?: "reasoning" | "content"): Reading;
  };
}

export type CallSyntax = BodySyntax | WholeSyntax;
