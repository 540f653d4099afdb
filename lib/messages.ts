import { type ChatMessage, type Tool, TOOL_NAME, TOOL_NAME_RULE } from "../engine/types.ts";
import { refuse } from "./errors.ts";

/** What the model is to be, or to keep to. */
export interface SystemMessage {
  /** `developer` is for templates that know it. */
  readonly role: "system" | "developer";
  /** The instructions. */
  readonly content: string;
}

/** What the user says. */
export interface UserMessage {
  /** Always this. */
  readonly role: "user";
  /** What is said. */
  readonly content: string;
}

/** What the model has answered. */
export interface AssistantMessage {
  /** Always this. */
  readonly role: "assistant";
  /** Its text; default none. */
  readonly content?: string;
  /** What it thought before, for templates that show it again. */
  readonly reasoning?: string;
  /** What it called; a message of the role `tool` answers each. */
  readonly toolCalls?: readonly ToolCall[];
}

/** What a tool gave that the model had called. */
export interface ToolMessage {
  /** Always this. */
  readonly role: "tool";
  /** The `id` of the call. */
  readonly toolCallId: string;
  /** The result, for the model to read. */
  readonly content: string;
}

/** One message of a conversation. */
export type Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage;

/** A whole call of a tool. */
export interface ToolCall {
  /** Names this call among those of the conversation. */
  readonly id: string;
  /** The tool. */
  readonly name: string;
  /** As the tool's `parameters` describe them. */
  readonly arguments: Readonly<Record<string, unknown>>;
  /** The arguments as the model wrote them; a conversation that goes on with these finds its prompt in the cache. */
  readonly json?: string;
}

const ROLES = ["system", "developer", "user", "assistant", "tool"];

/** The conversation as templates know it. Throws CompyError invalid_request. */
export function templateMessages(messages: string | readonly Message[]): ChatMessage[] {
  if (typeof messages === "string") return [{ role: "user", content: messages.toWellFormed() }];
  if (!Array.isArray(messages) || messages.length === 0) {
    refuse("messages", "must be a string, or an array of at least one message", messages);
  }
  return messages.map(templateMessage);
}

function templateMessage(message: Message, index: number): ChatMessage {
  const { role, content } = message;
  const at = `messages[${index}]`;
  if (!ROLES.includes(role)) refuse(`${at}.role`, `must be ${ROLES.join(", ")}`, role);
  if (typeof content !== "string" && (role !== "assistant" || (content ?? undefined) !== undefined)) {
    refuse(`${at}.content`, "must be a string", content);
  }
  const text = content?.toWellFormed() ?? null;
  if (role === "tool") {
    if (typeof message.toolCallId !== "string" || message.toolCallId === "") {
      refuse(`${at}.toolCallId`, "must be the id of the call", message.toolCallId);
    }
    return { role, content: text, tool_call_id: message.toolCallId };
  }
  if (role !== "assistant") return { role, content: text };
  const { reasoning, toolCalls = [] } = message;
  return {
    role,
    content: text,
    ...(reasoning ? { reasoning_content: reasoning } : {}),
    ...(toolCalls.length > 0 ? { tool_calls: toolCalls.map(templateCall) } : {}),
  };
}

function templateCall({ id, name, arguments: values, json = JSON.stringify(values) }: ToolCall) {
  return { id, type: "function", function: { name, arguments: json } };
}

/** Whether the last message is one that the answer can continue. */
export function canContinue(messages: string | readonly Message[]): boolean {
  if (typeof messages === "string") return false;
  const last = messages.at(-1);
  return last?.role === "assistant" && !last.toolCalls?.length;
}

/** Throws CompyError invalid_request for tools whose names are none, or there twice. */
export function checkTools(tools: readonly Tool[]): void {
  const seen = new Map<string, number>();
  for (const [i, { name }] of tools.entries()) {
    const field = `tools[${i}].name`;
    if (typeof name !== "string" || !TOOL_NAME.test(name)) refuse(field, TOOL_NAME_RULE, name);
    if (seen.has(name)) refuse(field, `must be another name than that of tools[${seen.get(name)}]`, name);
    seen.set(name, i);
  }
}
