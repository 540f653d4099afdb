import { mapInSlices } from "../../pacing/pauses.ts";
import type { ChatMessage } from "../../tokenizer/types.ts";
import { callAsJson, joinedContent, textOf } from "../history.ts";
import { type CheckedTool, toolSpec } from "../tools.ts";
import type { CallFormat } from "./format.ts";
import { hermesSyntax } from "./hermes.ts";

/** The format for templates without tools: instructions in the system message, and Hermes' marks. */
export const general: CallFormat = {
  name: "general",
  recognises: () => true,
  syntax(marks, _, template) {
    return {
      ...hermesSyntax(marks),
      toolsInMessages: true,
      messages: (messages, tools) => inWords(messages, tools, template.takesSystem ? "system" : "user"),
    };
  },
};

/**
 * Returns the conversation without fields that only templates with tools understand. The first message of
 * `role` describes the tools.
 */
function inWords(
  messages: readonly ChatMessage[],
  tools: readonly CheckedTool[],
  role: "system" | "user",
): ChatMessage[] {
  const told = joinResults(mapInSlices(messages, callsInWords));
  if (tools.length === 0) return told;
  const [first, ...others] = told;
  const isSystem = first?.role === "system" || first?.role === "developer";
  // The template itself must be the one to refuse the system message.
  if (isSystem && role === "user") return [first, ...inWords(others, tools, role)];
  if (isSystem || first?.role === role) {
    const contents = [first.content, instructions(tools)];
    const content = joinedContent(role === "user" ? contents.reverse() : contents, "\n\n");
    return [{ ...first, content }, ...others];
  }
  return [{ role, content: instructions(tools) }, ...told];
}

function instructions(tools: readonly CheckedTool[]): string {
  const shown = mapInSlices(tools, (tool) => JSON.stringify(toolSpec(tool))).join("\n");
  return `You can call these functions, each described by a JSON object:
${shown}

To call one, write its name and its arguments as JSON in this form, and nothing after it:
<tool_call>
{"name": "the function's name", "arguments": {"a parameter's name": "its value"}}
</tool_call>`;
}

function callsInWords(message: ChatMessage): ChatMessage {
  if (message.role === "tool") {
    return {
      role: "user",
      content: joinedContent(["<tool_response>\n", message.content, "\n</tool_response>"]),
    };
  }
  const { tool_calls, ...rest } = message;
  if (!Array.isArray(tool_calls) || tool_calls.length === 0) return rest;
  const calls = tool_calls.map((call) => `<tool_call>\n${callAsJson(call)}\n</tool_call>`);
  return { ...rest, content: [textOf(message), ...calls].filter((text) => text !== "").join("\n") };
}

/** Joins consecutive tool results into one message: templates want roles to alternate. */
function joinResults(messages: readonly ChatMessage[]): ChatMessage[] {
  const joined: ChatMessage[] = [];
  for (const message of messages) {
    const last = joined.at(-1);
    const together = last?.role === "user" && message.role === "user" &&
      textOf(message).startsWith("<tool_response>");
    if (together) {
      joined[joined.length - 1] = { ...last, content: joinedContent([last.content, message.content], "\n") };
    } else joined.push(message);
  }
  return joined;
}
