import { callsApart } from "../history.ts";
import { jsonCall, readJsonCall } from "./json_call.ts";
import type { CallFormat } from "./format.ts";

/**
 * Llama 3.1 and later: the answer is one tool call as JSON, `{"name": "f", "parameters": {…}}`, or begins with
 * `<|python_tag|>`.
 */
export const llama: CallFormat = {
  name: "llama",
  recognises: (source) =>
    // Functionary's templates use the tag for code, and write calls in another form.
    source.includes("<|python_tag|>") && !source.includes("<function=") ||
    /\{\\?"name\\?": function name, \\?"parameters\\?":/.test(source),
  syntax(marks) {
    const tag = marks.mark("<|python_tag|>");
    return {
      marks: [tag],
      messages: callsApart,
      body(lark, { tools, required, content }) {
        const call = jsonCall(lark, tools, "parameters");
        const tagged = tag.token === undefined ? [] : [`${lark.mark(tag)} ${call}`];
        if (required) return `(${[call, ...tagged].join(" | ")})`;
        // Constrained content may begin with a brace, so only the tag identifies a call.
        if (content !== undefined) return `(${[content, ...tagged].join(" | ")})`;
        const text = lark.rule("/[ \\n\\r\\t]*([^ \\n\\r\\t{](?s:.*))?/");
        return `(${[call, ...tagged, text].join(" | ")})`;
      },
      *read(input, answer, { required, formed, strays }) {
        const content = (text: string) => answer.content(text);
        const blank = formed && !required ? "" : yield* input.blank();
        const tagged = yield* input.mark([tag]);
        const bare = (!formed || required) && (yield* input.peek()) === "{";
        if (tagged || bare) yield* readJsonCall(input, answer);
        else content(blank);
        while (yield* input.until(formed ? [] : [tag, ...strays], content));
      },
    };
  },
};
