import type { ChatMessage } from "../../tokenizer/types.ts";
import { argumentsForm } from "../tools.ts";
import type { CallFormat } from "./format.ts";
import { sectionSyntax } from "./section.ts";

/**
 * Kimi K2:
 * `<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`, then
 * `<|tool_calls_section_end|>`. The number counts calls in the conversation.
 */
export const kimi: CallFormat = {
  name: "kimi",
  recognises: (source) => source.includes("<|tool_calls_section_begin|>"),
  syntax(marks, source) {
    const mark = (name: string) => marks.mark(`<|tool_${name}|>`);
    const tags = {
      begin: mark("calls_section_begin"),
      call: mark("call_begin"),
      separator: mark("call_argument_begin"),
      callEnd: mark("call_end"),
      end: mark("calls_section_end"),
    };
    // The first templates number calls separately in each message.
    const anew = source.includes("loop.index0");
    return sectionSyntax({
      tags,
      between: "",
      messages: (messages) => numbered(messages, anew),
      write(lark, tool) {
        const head = `${lark.mark(tags.call)} ${lark.text(`functions.${tool.name}:`)} /[0-9]{1,4}/`;
        const args = lark.part(argumentsForm(tool));
        return lark.rule(`${head} ${lark.mark(tags.separator)} ${args} ${lark.mark(tags.callEnd)}`);
      },
      *readName(input, head) {
        yield* input.blank();
        return head.replace(/^functions\./, "").replace(/:\d*$/, "");
      },
    });
  },
};

/** Returns the messages with call ids as the model writes them. With `anew`, numbers restart in each message. */
function numbered(messages: readonly ChatMessage[], anew: boolean): ChatMessage[] {
  const ids = new Map<unknown, string>();
  let next = 0;
  return messages.map((message) => {
    const { tool_calls: calls, tool_call_id: id } = message;
    if (ids.has(id)) return { ...message, tool_call_id: ids.get(id) };
    if (!Array.isArray(calls)) return message;
    if (anew) next = 0;
    const named = calls.map((call) => {
      const id = `functions.${call?.function?.name}:${next++}`;
      ids.set(call?.id, id);
      return { ...call, id };
    });
    return { ...message, tool_calls: named };
  });
}
