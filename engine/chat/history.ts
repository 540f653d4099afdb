import type { ChatMessage } from "../tokenizer/types.ts";
import type { Thinking } from "./thinking.ts";

/** Earlier thinking, which requests carry in `reasoning_content`, as the template wants it. */
export function withReasoning(
  messages: readonly ChatMessage[],
  source: string,
  thinking: Thinking | undefined,
): ChatMessage[] {
  const place = reasoningPlace(source);
  return messages.map((message) => {
    const { reasoning_content: reasoning, ...rest } = message;
    if (typeof reasoning !== "string" || reasoning === "" || message.role !== "assistant") {
      return place === "reasoning_content" ? message : rest;
    }
    if (place !== "content") return { ...rest, [place]: reasoning };
    if (!thinking || !source.includes(thinking.end.text) || Array.isArray(rest.content)) return rest;
    const { begin, end, label, afterBegin, beforeEnd, afterEnd } = thinking;
    const text = begin.text + label + afterBegin + reasoning + beforeEnd + end.text + afterEnd;
    return { ...rest, content: text + (rest.content ?? "") };
  });
}

/** The field of a message in which the template looks for thinking; "content" where it has none of its own. */
function reasoningPlace(source: string): "reasoning_content" | "thinking" | "reasoning" | "content" {
  for (const field of ["reasoning_content", "thinking", "reasoning"] as const) {
    const read = new RegExp(
      `message(\\.${field}\\b|\\[['"]${field}['"]\\]|\\.get\\(['"]${field}['"])|['"]${field}['"] in message`,
    );
    if (read.test(source)) return field;
  }
  return "content";
}

/** What a message says; empty where it says nothing. */
export function textOf({ content }: ChatMessage): string {
  return Array.isArray(content) ? content.map(({ text }) => text ?? "").join("\n") : content ?? "";
}
