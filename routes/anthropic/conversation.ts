import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { argumentsText, type ChatMessageBody } from "../generation/messages.ts";
import { joined, type Message, type TextLike, textOf, type ToolResult } from "./content.ts";

const BILLING = "x-anthropic-billing-header:";

type Turn = ChatMessageBody & { content: string | null };

/** Returns a request's messages in OpenAI's format; neighbouring messages of one role become one turn. */
export function conversationOf(
  { system, messages }: { system?: Parameters<typeof joined>[0] | null; messages: readonly Message[] },
): Turn[] {
  const turns: Turn[] = [];
  const add = (turn: Turn) => {
    const last = turns.at(-1);
    if (last?.role === turn.role && isOpen(last)) turns[turns.length - 1] = together(last, turn);
    else turns.push(turn);
  };
  const lasting = typeof system === "string" ? system : withoutBilling(system ?? []);
  if (lasting.length > 0) add({ role: "system", content: joined(lasting) });
  for (const message of messages) turnsOf(message).forEach(add);
  return turns;
}

/**
 * Returns the system text without Claude Code's billing block, which changes with each conversation and would prevent
 * prefix cache hits.
 */
function withoutBilling(system: readonly TextLike[]): readonly TextLike[] {
  return system.length > 0 && textOf(system[0]).startsWith(BILLING) ? system.slice(1) : system;
}

function turnsOf(message: Message): Turn[] {
  switch (message.role) {
    case "system":
      return [{ role: "system", content: joined(message.content) }];
    case "assistant":
      return [assistantTurn(message.content)];
    case "user": {
      const { content } = message;
      if (typeof content === "string" || content.length === 0) {
        return [{ role: "user", content: joined(content as string) }];
      }
      return content.map((block) => {
        return block.type === "tool_result" ? toolTurn(block) : { role: "user", content: textOf(block) };
      });
    }
  }
}

/** Returns true if a following message of the same role can join this turn. */
function isOpen({ role, tool_calls }: Turn): boolean {
  return role !== "tool" && !tool_calls?.length;
}

function together(first: Turn, second: Turn): Turn {
  const reasoning = lines(first.reasoning_content, second.reasoning_content);
  return {
    ...second,
    content: lines(first.content, second.content),
    ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
  };
}

/**
 * Returns two texts joined by a line break. Concatenation keeps ten thousand messages of one role linear in their
 * length.
 */
function lines(first: string | null | undefined, second: string | null | undefined): string {
  return first && second ? `${first}\n${second}` : first || second || "";
}

function assistantTurn(content: Extract<Message, { role: "assistant" }>["content"]): Turn {
  if (typeof content === "string") return { role: "assistant", content };
  const texts = content.flatMap((block) => block.type === "text" ? [block.text] : []);
  const thoughts = content.flatMap((block) => block.type === "thinking" ? [thoughtOf(block)] : []);
  const calls = content.flatMap((block) => {
    if (block.type !== "tool_use") return [];
    const { id, name, input } = block;
    return [{ id, function: { name, arguments: argumentsText(input) } }];
  });
  return {
    role: "assistant",
    content: texts.length === 0 && calls.length > 0 ? null : texts.join("\n"),
    ...(thoughts.length > 0 ? { reasoning_content: thoughts.join("\n") } : {}),
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
  };
}

/** Returns a tool result as a turn. Chat templates have no failed results, so the text of one starts with "Error: ". */
function toolTurn({ tool_use_id, content, is_error }: ToolResult): Turn {
  const text = joined(content ?? "");
  return { role: "tool", tool_call_id: tool_use_id, content: is_error ? `Error: ${text}` : text };
}

const HIDDEN = "hidden:";

/**
 * Returns the signature of a thought. A hidden thought is encoded in its signature, so that the next request returns
 * it.
 */
export function signatureOf(thought: string, shown: boolean): string {
  return shown
    ? createHash("sha256").update(thought).digest("base64")
    : HIDDEN + Buffer.from(thought).toString("base64");
}

function thoughtOf({ thinking, signature }: { thinking: string; signature?: string | null }): string {
  if (thinking !== "" || !signature?.startsWith(HIDDEN)) return thinking;
  return Buffer.from(signature.slice(HIDDEN.length), "base64").toString();
}
