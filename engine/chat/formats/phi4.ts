import type { ChatMessage } from "../../tokenizer/types.ts";
import { textOf } from "../history.ts";
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
    // The published template has the tools in the system message's field, and shows no calls.
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
  const shown = messages.map(({ tool_calls: calls, ...message }): ChatMessage => {
    if (!Array.isArray(calls) || calls.length === 0) return { ...message };
    const list = JSON.stringify(
      calls.map(({ function: called }) => ({ ...called, arguments: parsed(called) })),
    );
    return { ...message, content: `${textOf(message)}<|tool_call|>${list}<|/tool_call|>` };
  });
  if (tools.length === 0) return shown;
  const [first, ...others] = shown;
  const field = { tools: JSON.stringify(tools.map((tool) => toolSpec(tool).function)) };
  if (first?.role === "system" || first?.role === "developer") {
    return [{ ...first, role: "system", ...field }, ...others];
  }
  return [{ role: "system", content: "", ...field }, ...shown];
}

function parsed(called?: { arguments?: unknown }): unknown {
  try {
    return JSON.parse(String(called?.arguments));
  } catch {
    return called?.arguments ?? {};
  }
}
