import type { Answer } from "../answer.ts";
import type { Input, Reading } from "../input.ts";
import { type LarkGrammar, oneOf } from "../lark.ts";
import { type Marks, textMark } from "../marks.ts";
import { type Parameter, parameterValues, writtenParameters } from "../parameters.ts";
import type { CheckedTool } from "../tools.ts";
import { readTaggedValue, taggedValue } from "./tagged_value.ts";

/** Tags of tool calls with one tag per argument: `<function=f>\n<parameter=p>value</parameter>\n</function>`. */
export interface XmlTags {
  /** Text before and after a tool call's name, and at the call's end. */
  readonly call: readonly [before: string, after: string, end: string];
  /** Text before and after a parameter's name. */
  readonly parameter: readonly [before: string, after: string];
  /** Text before and after a value. */
  readonly line: string;
}

/** Returns the mark that ends a value. */
const valueEnd = ({ line }: XmlTags) => textMark(`${line}</parameter>\n`);

/** Returns the grammar of one tool call with a tag per argument. */
export function xmlCall(lark: LarkGrammar, tools: readonly CheckedTool[], tags: XmlTags): string {
  return oneOf(tools.map((tool) => toolCall(lark, tool, tags)));
}

function toolCall(lark: LarkGrammar, tool: CheckedTool, tags: XmlTags): string {
  const canName = (name: string) => !name.includes(tags.parameter[1]) && !name.includes("\n");
  const parameters = writtenParameters(lark, tool, canName).map((parameter) => {
    const written = writeParameter(lark, parameter, tags);
    return parameter.required ? written : `(${written})?`;
  });
  const [before, after, end] = tags.call;
  return lark.rule([lark.text(`${before}${tool.name}${after}\n`), ...parameters, lark.text(end)].join(" "));
}

function writeParameter(
  lark: LarkGrammar,
  { name, value }: Parameter,
  tags: XmlTags,
): string {
  const [before, after] = tags.parameter;
  const head = lark.text(`${before}${name}${after}${tags.line}`);
  return `${head} ${taggedValue(lark, value, valueEnd(tags), "Python")}`;
}

/** Reads the next tool call. Returns false if it is missing or incomplete. */
export function* readXmlCall(
  input: Input,
  answer: Answer,
  tools: readonly CheckedTool[],
  tags: XmlTags,
  marks: Marks,
): Reading<boolean> {
  const [before, after, callEnd] = tags.call;
  if (!(yield* input.accept([before]))) return false;
  const end = valueEnd(tags);
  let name = "";
  if (!(yield* input.until([textMark(after)], (text) => name += text))) return false;
  const call = answer.call(name);
  const values = parameterValues(tools, name);
  const emit = (json: string) => answer.args(call, json);
  emit("{");
  for (let separator = "";; separator = ", ") {
    yield* input.blank();
    if (!(yield* input.accept([tags.parameter[0]]))) break;
    let key = "";
    if (!(yield* input.until([textMark(tags.parameter[1])], (text) => key += text))) return false;
    emit(`${separator}${JSON.stringify(key)}: `);
    if (tags.line !== "") yield* input.accept([tags.line]);
    if (!(yield* readTaggedValue(input, emit, end, marks, values.get(key)))) return false;
  }
  if (!(yield* input.accept([callEnd]))) return false;
  emit("}");
  return true;
}
