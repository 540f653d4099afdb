import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import { type LarkGrammar, oneOf } from "../lark.ts";
import type { Mark } from "../marks.ts";
import type { CheckedTool } from "../tools.ts";
import type { BodySyntax } from "./format.ts";
import { markedSyntax } from "./marked.ts";

/**
 * Marks of a section of calls: `begin`; for each call `call`, a head, `separator`, arguments as JSON and
 * `callEnd`; then `end`.
 */
export interface SectionTags {
  readonly begin: Mark;
  readonly call: Mark;
  readonly separator: Mark;
  readonly callEnd: Mark;
  readonly end: Mark;
}

export interface SectionSyntax {
  readonly tags: SectionTags;
  /** Text between two tool calls. */
  readonly between: string;
  /** Returns the grammar of a call, from its first to its last mark. */
  write(lark: LarkGrammar, tool: CheckedTool): string;
  /**
   * Reads the tool's name from `head`, the text before the separator, or from the text up to the arguments. Returns
   * undefined if there is none.
   */
  readName(input: Input, head: string): Reading<string | undefined>;
  readonly messages?: BodySyntax["messages"];
  readonly toolsInMessages?: boolean;
}

/** Returns a syntax with all tool calls in one section between marks. */
export function sectionSyntax(syntax: SectionSyntax): BodySyntax {
  const { tags, between, messages, toolsInMessages } = syntax;
  const { begin, ...others } = tags;
  return markedSyntax({
    begin,
    others: Object.values(others),
    messages,
    toolsInMessages,
    rest(lark, { tools, many }) {
      const call = lark.rule(oneOf(tools.map((tool) => syntax.write(lark, tool))));
      const next = between && lark.text(between);
      return `${call} ${many ? `(${next} ${call})*` : ""} ${lark.mark(tags.end)}`;
    },
    *readRest(input, answer) {
      while ((yield* input.until([tags.call, tags.end], () => {})) === tags.call) {
        yield* readCall(input, answer, syntax);
      }
    },
  });
}

function* readCall(input: Input, answer: Answer, { tags, readName }: SectionSyntax): Reading {
  let head = "";
  if (!(yield* input.until([tags.separator], (text) => head += text))) return;
  const name = yield* readName(input, head.trim());
  if (name === undefined) return;
  const call = answer.call(name);
  yield* input.json((text) => answer.args(call, text));
  yield* input.until([tags.callEnd], () => {}); // nothing, in a well-formed call
}
