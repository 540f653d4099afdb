import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import type { LarkGrammar } from "../lark.ts";
import type { Mark } from "../marks.ts";
import type { CheckedTool } from "../tools.ts";
import type { AnswerShape, BodySyntax } from "./format.ts";

/** A syntax in which a mark begins the tool calls. */
export interface MarkedSyntax {
  readonly begin: Mark;
  /** Further marks of tool calls, which are dropped from text. */
  readonly others: readonly Mark[];
  /** Returns the grammar after the first `begin`: one tool call, or several if allowed. */
  rest(lark: LarkGrammar, shape: AnswerShape): string;
  /** Reads the tool calls after a `begin` mark. */
  readRest(input: Input, answer: Answer, tools: readonly CheckedTool[]): Reading;
  readonly messages?: BodySyntax["messages"];
  readonly toolsInMessages?: boolean;
}

/** Returns the body syntax of an answer with calls after a mark: text, then calls. */
export function markedSyntax(syntax: MarkedSyntax): BodySyntax {
  const { begin, others, messages, toolsInMessages } = syntax;
  const marks = [begin, ...others];
  return {
    marks,
    messages,
    toolsInMessages,
    body: (lark, shape) => markedBody(lark, shape, begin, syntax.rest(lark, shape)),
    *read(input, answer, { tools, required, formed, strays }) {
      // If only calls are allowed, text before the mark can only be a truncated mark.
      const content = (text: string) => required ? undefined : answer.content(text);
      if (formed && !required) {
        if (yield* input.mark([begin])) yield* syntax.readRest(input, answer, tools);
        else {
          while (yield* input.until(strays, content));
          return;
        }
      }
      for (;;) {
        const mark = yield* input.until([...marks, ...strays], content);
        if (!mark) return;
        if (mark === begin) yield* syntax.readRest(input, answer, tools);
      }
    },
  };
}

function markedBody(lark: LarkGrammar, shape: AnswerShape, begin: Mark, rest: string): string {
  const calls = `${lark.mark(begin)} ${rest}`;
  if (shape.required) return calls;
  if (shape.content !== undefined) return `(${shape.content} | ${calls})`;
  return `(${lark.until(begin)} ${rest} | ${lark.anything})`;
}
