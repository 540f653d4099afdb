import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import { type LarkGrammar, oneOf } from "../lark.ts";
import type { Marks } from "../marks.ts";
import { type Parameter, parameterValues, writtenParameters } from "../parameters.ts";
import type { CheckedTool } from "../tools.ts";
import type { CallFormat } from "./format.ts";
import { markedSyntax } from "./marked.ts";
import { isWrittenAsText, readTaggedValue, taggedValue } from "./tagged_value.ts";

/** The token in all tags of the format. */
const DSML = "｜DSML｜";

/**
 * DeepSeek V3.2 and V4: `<｜DSML｜invoke name="f"><｜DSML｜parameter name="p" string="true">value</｜DSML｜parameter>
 * </｜DSML｜invoke>`, with line breaks. A block named `function_calls` (V4: `tool_calls`) contains all calls. Sources:
 * SGLang, srt/function_call/deepseekv32_detector.py; llama.cpp, common/parsers/deepseek.cpp.
 */
export const dsml: CallFormat = {
  name: "dsml",
  recognises: (source) => source.includes(DSML),
  syntax(marks, source) {
    const tags = tagsOf(marks, source.includes("function_calls") ? "function_calls" : "tool_calls");
    const { begin, ...others } = tags;
    return markedSyntax({
      begin,
      others: Object.values(others),
      rest(lark, { tools, many }) {
        const call = lark.rule(oneOf(tools.map((tool) => toolCall(lark, tool, tags))));
        return `"\\n" ${call} ${many ? `(${call})*` : ""} ${lark.mark(tags.end)}`;
      },
      *readRest(input, answer, tools) {
        do yield* input.blank(); while (yield* readCall(input, answer, tools, tags, marks));
        yield* input.until([tags.end], () => {}); // skips text only in a malformed answer
      },
    });
  },
};

function tagsOf(marks: Marks, block: string) {
  const token = marks.mark(DSML);
  const tag = (before: string, after: string) => marks.around(before, token, after);
  return {
    begin: tag("<", `${block}>`),
    end: tag("</", `${block}>`),
    call: tag("<", 'invoke name="'),
    callEnd: tag("</", "invoke>"),
    parameter: tag("<", 'parameter name="'),
    valueEnd: tag("</", "parameter>"),
  };
}

type Tags = ReturnType<typeof tagsOf>;

/** Texts after the name of a call, and between a parameter's name and its `string` value. */
const [NAMED, KIND] = ['">', '" string="'];

function toolCall(lark: LarkGrammar, tool: CheckedTool, tags: Tags): string {
  const canName = (name: string) => !name.includes(KIND) && !name.includes("\n");
  const parameters = writtenParameters(lark, tool, canName).map((parameter) => {
    const written = writeParameter(lark, parameter, tags);
    return parameter.required ? written : `(${written})?`;
  });
  const head = `${lark.mark(tags.call)} ${lark.text(`${tool.name}${NAMED}\n`)}`;
  return lark.rule(`${head} ${parameters.join(" ")} ${lark.mark(tags.callEnd)} "\\n"`);
}

function writeParameter(lark: LarkGrammar, { name, value }: Parameter, tags: Tags): string {
  const head = lark.text(`${name}${KIND}${isWrittenAsText(value, tags.valueEnd)}${NAMED}`);
  return `${lark.mark(tags.parameter)} ${head} ${taggedValue(lark, value, tags.valueEnd, "JSON")} "\\n"`;
}

/** Reads the next tool call. Returns false if it is missing or incomplete. */
function* readCall(
  input: Input,
  answer: Answer,
  tools: readonly CheckedTool[],
  tags: Tags,
  marks: Marks,
): Reading<boolean> {
  if (!(yield* input.mark([tags.call]))) return false;
  const name = yield* input.before(NAMED);
  if (name === undefined) return false;
  const call = answer.call(name);
  const values = parameterValues(tools, name);
  const emit = (json: string) => answer.args(call, json);
  emit("{");
  for (let separator = "";; separator = ", ") {
    yield* input.blank();
    if (!(yield* input.mark([tags.parameter]))) break;
    const key = yield* input.before(KIND);
    const kind = key === undefined ? undefined : yield* input.accept([`true${NAMED}`, `false${NAMED}`]);
    if (key === undefined || kind === undefined) return false;
    emit(`${separator}${JSON.stringify(key)}: `);
    const known = values.get(key);
    const isText = known !== undefined && isWrittenAsText(known, tags.valueEnd);
    const value = kind.startsWith("true") ? { kind: "text" } as const : isText ? undefined : known;
    if (!(yield* readTaggedValue(input, emit, tags.valueEnd, marks, value))) return false;
  }
  if (!(yield* input.mark([tags.callEnd]))) return false;
  emit("}");
  return true;
}
