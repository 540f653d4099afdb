import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import type { LarkGrammar } from "../lark.ts";
import type { Mark, Marks } from "../marks.ts";
import type { CheckedTool } from "../tools.ts";
import type { ChatMessage, ChatTemplate } from "../../tokenizer/types.ts";

/** How a model family writes tool calls. Each format is one file in this folder and a line in registry.ts. */
export interface CallFormat {
  readonly name: string;
  /** Returns whether a template's source shows tool calls in this format. */
  recognises(source: string): boolean;
  syntax(marks: Marks, source: string, template: ChatTemplate): CallSyntax;
}

/** The allowed form of an answer after its thinking. */
export interface AnswerShape {
  readonly tools: readonly CheckedTool[];
  /** Whether the answer must contain a tool call. */
  readonly required: boolean;
  /** Whether the answer may contain several tool calls. */
  readonly many: boolean;
  /** The content's grammar; undefined where any text is allowed. */
  readonly content: string | undefined;
}

/** The form of an answer, for its reader. */
export interface ReadShape {
  readonly tools: readonly CheckedTool[];
  readonly required: boolean;
  /** Whether the content is constrained, so that marks inside it are text. */
  readonly formed: boolean;
  /**
   * Marks to drop although they have no meaning at their place: an unmatched end of thinking, and marks around content.
   */
  readonly strays: readonly Mark[];
}

interface Syntax {
  /** Every mark that the format reads. Marks that are tokens reach the reader as markers. */
  readonly marks: readonly Mark[];
  /** Rewrites the conversation's messages for the template. */
  messages?(messages: readonly ChatMessage[], tools: readonly CheckedTool[]): ChatMessage[];
  /** Whether the messages must describe the tools, because the template does not support tools. */
  readonly toolsInMessages?: boolean;
}

/** Syntax of a format in which an answer is thinking, followed by a body with one model's marks. */
export interface BodySyntax extends Syntax {
  readonly whole?: undefined;
  /** Returns the grammar of an answer's body after the thinking. */
  body(lark: LarkGrammar, shape: AnswerShape): string;
  /** Reads an answer's body after the thinking. */
  read(input: Input, answer: Answer, shape: ReadShape): Reading;
}

/** A format whose answers are messages, each on a channel. */
export interface WholeSyntax extends Syntax {
  readonly whole: {
    /** Marks before and after a thought. */
    readonly begin: string;
    readonly end: string;
    /** Marks that begin a message's header or occur in it, and the mark that ends the header. */
    readonly headers: { readonly begin: readonly Mark[]; readonly end: Mark };
    /**
     * Returns the grammar of an answer with thinking, content and, if there are tools, calls. `inside`: the part that
     * the prompt has already begun.
     */
    grammar(lark: LarkGrammar, shape: AnswerShape, inside?: "reasoning" | "content"): string;
    read(input: Input, answer: Answer, inside?: "reasoning" | "content"): Reading;
  };
}

export type CallSyntax = BodySyntax | WholeSyntax;
