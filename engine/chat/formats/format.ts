import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import type { LarkGrammar } from "../lark.ts";
import type { Mark, Marks } from "../marks.ts";
import type { CheckedTool } from "../tools.ts";
import type { ChatMessage } from "../../tokenizer/types.ts";

/** How a family of models writes calls of tools. One file each in this folder, and a line in registry.ts. */
export interface CallFormat {
  readonly name: string;
  /** Whether a template, by its source, teaches and shows calls in this format. */
  recognises(source: string): boolean;
  syntax(marks: Marks, source: string): CallSyntax;
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

/** A format with one model's marks. */
export interface CallSyntax {
  /** Every mark that it reads; those that are tokens come to the reader as markers. */
  readonly marks: readonly Mark[];
  /** The grammar of an answer after its thinking. */
  body(lark: LarkGrammar, shape: AnswerShape): string;
  /** Reads an answer after its thinking. `formed`: its content has a given form, and marks inside it are text. */
  read(input: Input, answer: Answer, formed: boolean): Reading;
  /** The conversation as the template wants it. */
  messages?(messages: readonly ChatMessage[], tools: readonly CheckedTool[]): ChatMessage[];
  /** The template knows nothing of tools: what it must say of them is in the messages. */
  readonly toolsInMessages?: boolean;
}
