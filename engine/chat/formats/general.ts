import type { ChatMessage } from "../../tokenizer/types.ts";
import { textOf } from "../history.ts";
import { type CheckedTool, toolSpec } from "../tools.ts";
import type { CallFormat } from "./format.ts";
import { hermesSyntax } from "./hermes.ts";

/** For templates that know nothing of tools: instructions in the system message, and Hermes' marks. */
export const general: CallFormat = {
  name: "general",
  recognises: () => true,
  syntax(marks, source) {
    // Some templates take no system message.
    const role = /raise_exception\([^)]*system/i.test(source) ? "user" : "system";
    return {
      ...hermesSyntax(marks),
      toolsInMessages: true,
      messages: (messages, tools) => inWords(messages, tools, role),
    };
  },
};

/** The conversation without anything that only templates for tools understand; the first message of `role` tells of tools. */
function inWords(
  messages: readonly ChatMessage[],
  tools: readonly CheckedTool[],
  role: "system" | "user",
): ChatMessage[] {
  const told = joinResults(messages.map(callsInWords));
  if (tools.length === 0) return told;
  const [first, ...others] = told;
  if (first?.role === role || first?.role === "developer") {
    const texts = [textOf(first), instructions(tools)];
    const content = (role === "user" ? texts.reverse() : texts).join("\n\n");
    return [{ ...first, content }, ...others];
  }
  return [{ role, content: instructions(tools) }, ...told];
}

function instructions(tools: readonly CheckedTool[]): string {
  const shown = tools.map((tool) => JSON.stringify(toolSpec(tool))).join("\n");
  return `You can call these functions, each described by a JSON object:
${shown}

To call one, write its name and its arguments as JSON in this form, and nothing after it:
<tool_call>
{"name": "the function's name", "arguments": {"a parameter's name": "its value"}}
</tool_call>`;
}

function callsInWords(message: ChatMessage): ChatMessage {
  if (message.role === "tool") {
    return { role: "user", content: `<tool_response>\n${textOf(message)}\n</tool_response>` };
  }
  const { tool_calls, ...rest } = message;
  if (!Array.isArray(tool_calls) || tool_calls.length === 0) return rest;
  const calls = tool_calls.map(callInWords);
  return { ...rest, content: [textOf(message), ...calls].filter((text) => text !== "").join("\n") };
}

function callInWords(call: { function?: { name?: unknown; arguments?: unknown } }): string {
  const { name, arguments: given } = call.function ?? {};
  const args = typeof given === "string" ? given : JSON.stringify(given ?? {});
  return `<tool_call>\n{"name": ${JSON.stringify(String(name))}, "arguments": ${args}}\n</tool_call>`;
}

/** Results of several calls as one message: templates want roles to take turns. */
function joinResults(messages: readonly ChatMessage[]): ChatMessage[] {
  const joined: ChatMessage[] = [];
  for (const message of messages) {
    const last = joined.at(-1);
    const together = last?.role === "user" && message.role === "user" &&
      textOf(message).startsWith("<tool_response>");
    if (together) joined[joined.length - 1] = { ...last, content: `${textOf(last)}\n${textOf(message)}` };
    else joined.push(message);
  }
  return joined;
}
