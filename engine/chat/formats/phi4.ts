import type { ChatMessage } from "../../tokenizer/types.ts";
import { callAsJson, callsAsText, type MadeCall } from "../history.ts";
import { type CheckedTool, toolSpec } from "../tools.ts";
import type { CallFormat } from "./format.ts";
import { jsonCallList, readJsonCalls } from "./json_call.ts";
import { markedSyntax } from "./marked.ts";

/** Phi-4-mini: `<|tool_call|>[{"name": "f", "arguments": {…}}]<|/tool_call|>`. */
export const phi4: CallFormat = {
  name: "phi4",
  recognises: (source) => source.includes("<|tool|>") || source.includes("<|/tool_call|>"),
  syntax(marks, source) {
    const [begin, end] = [marks.mark("<|tool_call|>"), marks.mark("<|/tool_call|>")];
    // The published Phi-4-mini template reads tools from a field of the system message, and shows no earlier calls.
    const inField = /message\[['"]tools['"]\]/.test(source);
    return markedSyntax({
      begin,
      others: [end],
      toolsInMessages: inField,
      messages: inField ? toolsInField : undefined,
      rest: (lark, { tools, many }) => `${jsonCallList(lark, tools, many)} ${lark.mark(end)}`,
      *readRest(input, answer) {
        yield* readJsonCalls(input, answer);
        yield* input.until([end], () => {});
      },
    });
  },
};

function toolsInField(messages: readonly ChatMessage[], tools: readonly CheckedTool[]): ChatMessage[] {
  const list = (calls: readonly MadeCall[]) => `[${calls.map(callAsJson).join(", ")}]`;
  const shown = callsAsText(messages, "<|tool_call|>", "<|/tool_call|>", list);
  if (tools.length === 0) return shown;
  const [first, ...others] = shown;
  const field = { tools: JSON.stringify(tools.map((tool) => toolSpec(tool).function)) };
  if (first?.role === "system" || first?.role === "developer") {
    return [{ ...first, role: "system", ...field }, ...others];
  }
  return [{ role: "system", content: "", ...field }, ...shown];
}
