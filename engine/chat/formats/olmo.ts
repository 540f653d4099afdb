import type { CallFormat } from "./format.ts";
import { markedSyntax } from "./marked.ts";
import { pythonCall, readPythonCall } from "./python_call.ts";

/** OLMo 3: calls in Python's syntax, one per line, `<function_calls>f(p="text", q=true)</function_calls>`. */
export const olmo: CallFormat = {
  name: "olmo",
  // OLMo 3 Think's templates mention the tag too, but support no tools.
  recognises: (source) => source.includes("<function_calls>") && source.includes("tool_calls"),
  syntax(marks) {
    const [begin, end] = [marks.mark("<function_calls>"), marks.mark("</function_calls>")];
    return markedSyntax({
      begin,
      others: [end],
      rest(lark, { tools, many }) {
        // OLMo's templates write values as JSON.
        const call = pythonCall(lark, tools, "JSON");
        return `${call} ${many ? `("\\n" ${call})*` : ""} ${lark.mark(end)}`;
      },
      *readRest(input, answer) {
        do yield* input.blank(); while (yield* readPythonCall(input, answer));
        yield* input.until([end], () => {}); // nothing, in a well-formed answer
      },
    });
  },
};
