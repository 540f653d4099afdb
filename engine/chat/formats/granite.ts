import { callAsJson, callsAsText } from "../history.ts";
import type { CallFormat } from "./format.ts";
import { jsonCallList, readJsonCalls } from "./json_call.ts";
import { markedSyntax } from "./marked.ts";

/** Granite 3: `<|tool_call|>[{"name": "f", "arguments": {…}}]`. */
export const granite: CallFormat = {
  name: "granite",
  recognises: (source) => source.includes("<|tool_call|>"),
  syntax(marks, source) {
    return markedSyntax({
      // Published templates of Granite 3 do not show earlier calls.
      messages: source.includes("tool_calls")
        ? undefined
        : (messages) =>
          callsAsText(messages, "<|tool_call|>", "", (calls) => `[${calls.map(callAsJson).join(", ")}]`),
      begin: marks.mark("<|tool_call|>"),
      others: [],
      rest: (lark, { tools, many }) => jsonCallList(lark, tools, many),
      *readRest(input, answer) {
        yield* readJsonCalls(input, answer);
      },
    });
  },
};
