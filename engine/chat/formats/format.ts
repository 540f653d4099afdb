import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import type { LarkGrammar } from "../lark.ts";
import type { Mark, Marks } from "../marks.ts";
import type { CheckedTool } from "../tools.ts";
import type { ChatMessage, ChatTemplate } from "../../tokenizer/types.ts";

/** How a model family writes tool calls. Each format is one file in this folder and a line in registry.ts. */
export interface CallFormat {
  readonly name: string;
  /** Whether a template's source shows calls in this format. */
  recognises(source: string): boolean;
  syntax(marks: Marks, source: string, template: ChatTemplate): CallSyntax;
}

/** The allowed form of an answer after its thinking. */
export interface AnswerShape {
  readonly tools: readonly CheckedTool[];
  /** Whether the answer must have a call. */
  readonly required: boolean;
  /** Whether the answer may have several calls. */
  readonly many: boolean;
  /** The content's grammar; undefined where any text is allowed. */
  readonly content: string | undefined;
}

/** What a reader knows about the answer's form. */
export interface ReadShape {
  readonly tools: readonly CheckedTool[];
  readonly required: boolean;
  /** The content is constrained, so marks inside it are text. */
  readonly formed: boolean;
  /**
   * Marks to drop although they mean nothing here: an unmatched end of thinking, and marks around content.
   */
  readonly strays: readonly Mark[];
}

interface Syntax {
  /** Every mark that the format reads. Marks that are tokens reach the reader as markers. */
  readonly marks: readonly Mark[];
  /** Rewrites the conversation for the template. */
  messages?(messages: readonly ChatMessage[], tools: readonly CheckedTool[]): ChatMessage[];
  /** The template does not support tools, so the messages must describe them. */
  readonly toolsInMessages?: boolean;
}

/** A format with one model's marks: an answer is thinking followed by this body. */
export interface BodySyntax extends Syntax {
  readonly whole?: undefined;
  /** Returns the grammar after the thinking. */
  body(lark: LarkGrammar, shape: AnswerShape): string;
  /** Reads the answer after the thinking. */
  read(input: Input, answer: Answer, shape: ReadShape): Reading;
}

/** A format whose answers are messages, each on a channel. */
export interface WholeSyntax extends Syntax {
  readonly whole: {
    /** Text before and after a thought. */
    readonly begin: string;
    readonly end: string;
    /** Marks that begin a message's header or occur in it, and the mark that ends the header. */
    readonly headers: { readonly begin: readonly Mark[]; readonly end: Mark };
    /**
     * Returns the grammar of an answer with thinking, content and, if there are tools, calls. `inside` is the
     * part that the prompt has begun.
     */
    grammar(lark: LarkGrammar, shape: AnswerShape, inside?: "reasoning" | "content"): string;
    read(input: Input, answer: Answer, inside?: "reasoning" | "content"): Reading;
  };
}

export type CallSyntax = BodySyntax | WholeSyntax;
