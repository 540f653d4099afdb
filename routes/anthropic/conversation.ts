import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { IMAGE } from "../generation/image_urls.ts";
import { argumentsText, type ChatMessageBody, type Part } from "../generation/messages.ts";
import {
  fileOfSource,
  type Image,
  joined,
  type Message,
  type TextLike,
  textOf,
  type ToolResult,
  urlOfSource,
} from "./content.ts";

const BILLING = "x-anthropic-billing-header:";

type Turn = ChatMessageBody & { content: string | Part[] | null };

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
  for (const [i, message] of messages.entries()) turnsOf(message, `messages[${i}].content`).forEach(add);
  return turns;
}

/**
 * Returns the system text without Claude Code's billing block, which changes with each conversation and would prevent
 * prefix cache hits.
 */
function withoutBilling(system: readonly TextLike[]): readonly TextLike[] {
  return system.length > 0 && textOf(system[0]).startsWith(BILLING) ? system.slice(1) : system;
}

/** Returns a message as turns. `place`: the field of its content. */
function turnsOf(message: Message, place: string): Turn[] {
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
      return content.map((block, i) => {
        if (block.type === "tool_result") return toolTurn(block, `${place}[${i}].content`);
        return { role: "user", content: partsOf([block], (_) => `${place}[${i}]`) };
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
    content: bothContents(first.content, second.content),
    ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
  };
}

/** Returns two contents as one. Of parts, the first content's array grows, so that many messages stay linear. */
function bothContents(first: Turn["content"], second: Turn["content"]): Turn["content"] {
  if (!Array.isArray(first) && !Array.isArray(second)) return lines(first, second);
  const parts = asParts(first);
  for (const part of asParts(second)) parts.push(part);
  return parts;
}

function asParts(content: Turn["content"]): Part[] {
  if (Array.isArray(content)) return content;
  return content ? [{ type: "text", text: content }] : [];
}

/** Returns blocks as text or, with images, as parts. `placeOf` returns the name of a block. */
function partsOf(blocks: readonly (TextLike | Image)[], placeOf: (i: number) => string): string | Part[] {
  if (!blocks.some(({ type }) => type === "image")) return joined(blocks as readonly TextLike[]);
  return blocks.map((block, i): Part => {
    if (block.type !== "image") return { type: "text", text: textOf(block) };
    const [image_url, file_id] = [urlOfSource(block.source), fileOfSource(block.source)];
    return { type: IMAGE, image_url, ...file_id && { file_id }, param: `${placeOf(i)}.source` };
  });
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
function toolTurn({ tool_use_id, content, is_error }: ToolResult, place: string): Turn {
  const found = typeof content === "string" ? content : partsOf(content ?? [], (i) => `${place}[${i}]`);
  const failed = is_error
    ? typeof found === "string" ? `Error: ${found}` : [{ type: "text", text: "Error:" }, ...found]
    : found;
  return { role: "tool", tool_call_id: tool_use_id, content: failed };
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
