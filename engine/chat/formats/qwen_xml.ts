import { ConstraintError } from "../../grammar/types.ts";
import { tryJson } from "../types.ts";
import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import { type LarkGrammar, oneOf } from "../lark.ts";
import { type Mark, type Marks, textMark } from "../marks.ts";
import { type Parameter, parametersOf, type Value } from "../parameters.ts";
import type { CheckedTool } from "../tools.ts";
import type { CallFormat } from "./format.ts";
import { looseJson } from "./loose_value.ts";
import { markedSyntax } from "./marked.ts";

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
const valueEnd = (line: string) => `${line}</parameter>\n`;

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
  if (/[>\n]/.test(name)) {
    throw new ConstraintError(
      `Cannot use the tool ${
        JSON.stringify(tool.name)
      }: this model's calls cannot write the parameter's name ` +
        JSON.stringify(name.slice(0, 80)),
    );
  }
  const head = lark.text(`<parameter=${name}>${line}`);
  if (value.kind === "text") return `${head} ${lark.untilText(valueEnd(line))}`;
  return `${head} ${writeValue(lark, value)} ${lark.text(valueEnd(line))}`;
}

function writeValue(lark: LarkGrammar, value: Exclude<Value, { kind: "text" }>): string {
  if (value.kind === "choice" && isPlainChoice(value)) {
    return oneOf(value.choices.map((text) => lark.text(text)));
  }
  // Templates show Python's words.
  if (value.kind === "boolean") return '("true" | "false" | "True" | "False")';
  return lark.part({ kind: "json_schema", schema: schemaOf(value) });
}

/** Whether the texts can stand as they are. */
function isPlainChoice({ choices }: { choices: readonly string[] }): boolean {
  return choices.every((text) => !text.includes("</parameter>") && text.trim() === text);
}

function schemaOf(value: Exclude<Value, { kind: "text" | "boolean" }>): unknown {
  return value.kind === "choice" ? { enum: value.choices } : value.schema;
}

const NAME_ENDS = [textMark(">")];

function* readCall(
  input: Input,
  answer: Answer,
  tools: readonly CheckedTool[],
  line: string,
  marks: Marks,
): Reading {
  const end = textMark(valueEnd(line));
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
    if (!(yield* readValue(input, (text) => answer.args(call, text), end, marks, values.get(key)))) return;
  }
  if (yield* input.accept(["</function>"])) answer.args(call, "}");
}

/** Text becomes a JSON string as it comes; another value is JSON or Python, and text only if it is neither. */
function* readValue(
  input: Input,
  emit: (json: string) => void,
  end: Mark,
  marks: Marks,
  value?: Value,
): Reading<boolean> {
  const isText = value?.kind === "text" || (value?.kind === "choice" && isPlainChoice(value));
  if (isText) {
    emit('"');
    const ended = yield* input.until([end], (text) => emit(JSON.stringify(text).slice(1, -1)));
    if (ended) emit('"');
    return ended !== undefined;
  }
  let text = "";
  const ended = yield* input.until([end], (piece) => text += piece);
  if (ended) emit(tryJson(text) === undefined ? looseJson(text, marks) ?? JSON.stringify(text) : text.trim());
  return ended !== undefined;
}
