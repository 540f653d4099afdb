import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import { type LarkGrammar, oneOf } from "../lark.ts";
import { type Marks, textMark } from "../marks.ts";
import { cannotName, type Parameter, parametersOf } from "../parameters.ts";
import type { CheckedTool } from "../tools.ts";
import type { CallFormat } from "./format.ts";
import { markedSyntax } from "./marked.ts";
import { readTaggedValue, taggedValue } from "./tagged_value.ts";

/** Qwen3-Coder, Qwen3.5, Nemotron; with other marks Seed-OSS: `<function=f><parameter=p>value</parameter></function>`. */
export const qwenXml: CallFormat = {
  name: "qwen-xml",
  recognises: (source) => source.includes("<function=") && source.includes("<parameter="),
  syntax(marks, source) {
    const isSeed = source.includes("<seed:tool_call>");
    const tag = isSeed ? "seed:tool_call" : "tool_call";
    const line = isSeed ? "" : "\n";
    const [begin, end] = [marks.mark(`<${tag}>`), marks.mark(`</${tag}>`)];
    return markedSyntax({
      begin,
      others: [end],
      rest(lark, { tools, many }) {
        const call = lark.rule(
          `"\\n" ${oneOf(tools.map((tool) => toolCall(lark, tool, line)))} "\\n" ${lark.mark(end)}`,
        );
        return many ? `${call} (${lark.blank} ${lark.mark(begin)} ${call})*` : call;
      },
      *readRest(input, answer, tools) {
        yield* input.blank();
        if (yield* input.accept(["<function="])) yield* readCall(input, answer, tools, line, marks);
        yield* input.until([end], () => {});
      },
    });
  },
};

/** What ends a value; `line` is what stands before and after it. */
const valueEnd = (line: string) => textMark(`${line}</parameter>\n`);

function toolCall(lark: LarkGrammar, tool: CheckedTool, line: string): string {
  const parameters = parametersOf(tool).map((parameter) => {
    const written = writeParameter(lark, tool, parameter, line);
    return parameter.required ? written : `(${written})?`;
  });
  return lark.rule([lark.text(`<function=${tool.name}>\n`), ...parameters, '"</function>"'].join(" "));
}

function writeParameter(
  lark: LarkGrammar,
  tool: CheckedTool,
  { name, value }: Parameter,
  line: string,
): string {
  if (/[>\n]/.test(name)) throw cannotName(tool, name);
  const head = lark.text(`<parameter=${name}>${line}`);
  return `${head} ${taggedValue(lark, value, valueEnd(line), "Python")}`;
}

const NAME_ENDS = [textMark(">")];

function* readCall(
  input: Input,
  answer: Answer,
  tools: readonly CheckedTool[],
  line: string,
  marks: Marks,
): Reading {
  const end = valueEnd(line);
  let name = "";
  if (!(yield* input.until(NAME_ENDS, (text) => name += text))) return;
  const call = answer.call(name);
  const tool = tools.find((tool) => tool.name === name);
  const values = new Map((tool ? parametersOf(tool) : []).map(({ name, value }) => [name, value]));
  answer.args(call, "{");
  for (let separator = "";; separator = ", ") {
    yield* input.blank();
    if (!(yield* input.accept(["<parameter="]))) break;
    let key = "";
    if (!(yield* input.until(NAME_ENDS, (text) => key += text))) return;
    answer.args(call, `${separator}${JSON.stringify(key)}: `);
    if (line !== "") yield* input.accept([line]);
    if (!(yield* readTaggedValue(input, (text) => answer.args(call, text), end, marks, values.get(key)))) {
      return;
    }
  }
  if (yield* input.accept(["</function>"])) answer.args(call, "}");
}
