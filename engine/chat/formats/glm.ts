import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import { type LarkGrammar, oneOf } from "../lark.ts";
import type { Mark, Marks } from "../marks.ts";
import { type Parameter, parameterValues, writtenParameters } from "../parameters.ts";
import type { CheckedTool } from "../tools.ts";
import type { CallFormat } from "./format.ts";
import { markedSyntax } from "./marked.ts";
import { readTaggedValue, taggedValue } from "./tagged_value.ts";

/**
 * GLM-4.5 and 4.6: `<tool_call>f\n<arg_key>p</arg_key>\n<arg_value>value</arg_value>\n</tool_call>`; GLM-4.7
 * without the line breaks.
 */
export const glm: CallFormat = {
  name: "glm",
  recognises: (source) => source.includes("<tool_call>") && source.includes("<arg_key>"),
  syntax(marks, source) {
    const tags = tagsOf(marks);
    // Decides whether calls have line breaks: a line break is literal in the template, or escaped in a string.
    const line = /<\/arg_key>(\n|\\n)/.test(source) ? "\n" : "";
    const { begin, ...others } = tags;
    return markedSyntax({
      begin,
      others: Object.values(others),
      rest(lark, { tools, many }) {
        const call = lark.rule(
          `${oneOf(tools.map((tool) => toolCall(lark, tool, tags, line)))} ${lark.mark(tags.end)}`,
        );
        return many ? `${call} (${lark.blank} ${lark.mark(begin)} ${call})*` : call;
      },
      readRest: (input, answer, tools) => readCall(input, answer, tools, tags, marks),
    });
  },
};

const KEY_END = "</arg_key>";

function tagsOf(marks: Marks) {
  return {
    begin: marks.mark("<tool_call>"),
    end: marks.mark("</tool_call>"),
    key: marks.mark("<arg_key>"),
    keyEnd: marks.mark(KEY_END),
    value: marks.mark("<arg_value>"),
    valueEnd: marks.mark("</arg_value>"),
  };
}

type Tags = ReturnType<typeof tagsOf>;

/** Returns the grammar of a tool call. `line` follows the name, each key and each value. */
function toolCall(lark: LarkGrammar, tool: CheckedTool, tags: Tags, line: string): string {
  const canName = (name: string) => name !== "" && !name.includes(KEY_END);
  const parameters = writtenParameters(lark, tool, canName).map((parameter) => {
    const written = writeParameter(lark, parameter, tags, line);
    return parameter.required ? written : `(${written})?`;
  });
  return lark.rule([lark.text(tool.name + line), ...parameters].join(" "));
}

function writeParameter(
  lark: LarkGrammar,
  { name, value }: Parameter,
  { key, keyEnd, value: begin, valueEnd }: Tags,
  line: string,
): string {
  const between = line && lark.text(line);
  const named = `${lark.mark(key)} ${lark.text(name)} ${lark.mark(keyEnd)} ${between}`;
  return `${named} ${lark.mark(begin)} ${taggedValue(lark, value, valueEnd, "JSON")} ${between}`;
}

function* readCall(
  input: Input,
  answer: Answer,
  tools: readonly CheckedTool[],
  { end, key, keyEnd, value, valueEnd }: Tags,
  marks: Marks,
): Reading {
  const next = (emit: (text: string) => void) => input.until([key, end], emit);
  let name = "";
  let mark: Mark | undefined = yield* next((text) => name += text);
  if (!mark) return;
  name = name.trim();
  const call = answer.call(name);
  const values = parameterValues(tools, name);
  answer.args(call, "{");
  for (let separator = ""; mark === key; separator = ", ") {
    let parameter = "";
    if (!(yield* input.until([keyEnd], (text) => parameter += text))) return;
    answer.args(call, `${separator}${JSON.stringify(parameter)}: `);
    if (!(yield* input.until([value], () => {}))) return;
    const emit = (json: string) => answer.args(call, json);
    if (!(yield* readTaggedValue(input, emit, valueEnd, marks, values.get(parameter)))) return;
    mark = yield* next(() => {});
  }
  if (mark) answer.args(call, "}");
}
