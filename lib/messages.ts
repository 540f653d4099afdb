import {
  type ChatMessage,
  type Engine,
  type GenerateRequest,
  type PromptImage,
  type Tool,
  TOOL_NAME,
  TOOL_NAME_RULE,
} from "../engine/mod.ts";
import { refuse } from "./errors.ts";

/**
 * Instructions for the model.
 *
 * ```ts
 * import { loadModel, type SystemMessage } from "compy";
 *
 * const rules: SystemMessage = { role: "system", content: "You answer in one word." };
 * await using model = await loadModel();
 * await model.chat([rules, { role: "user", content: "Hi" }], { maxTokens: 5 }).answer();
 * ```
 */
export interface SystemMessage {
  /** Role of the message. `developer` needs a template that knows this role. */
  readonly role: "system" | "developer";
  /** The instructions as text. */
  readonly content: string;
}

/**
 * A message of the user.
 *
 * ```ts
 * import { loadModel, type UserMessage } from "compy";
 *
 * const asked: UserMessage = { role: "user", content: "Who are you?" };
 * await using model = await loadModel();
 * await model.chat([asked]).answer(); // as model.chat("Who are you?")
 * ```
 */
export interface UserMessage {
  /** Role of the message, always "user". */
  readonly role: "user";
  /** Text of the user's message. */
  readonly content: string;
  /** Images that come before the text. The model must read images. */
  readonly images?: readonly ImageFile[];
}

/**
 * The content of a PNG, JPEG, WebP or GIF file: its bytes, or a Blob such as a chosen File.
 *
 * ```ts
 * import { type ImageFile, loadModel } from "compy";
 *
 * await using model = await loadModel(); // the demo model reads no images
 * const describe = async (...images: ImageFile[]) =>
 *   (await model.chat([{ role: "user", content: "What is this?", images }]).answer()).text;
 * if (model.info.images) console.log(await describe(await Deno.readFile("hen.png")));
 * ```
 */
export type ImageFile = Uint8Array | Blob;

/**
 * An answer of the model.
 *
 * ```ts
 * import { type AssistantMessage, loadModel } from "compy";
 *
 * const begun: AssistantMessage = { role: "assistant", content: "My name" };
 * await using model = await loadModel();
 * const { text } = await model.chat([{ role: "user", content: "Who are you?" }, begun], { temperature: 0 }).answer();
 * console.log(begun.content + text); // a last message of the assistant is continued
 * ```
 */
export interface AssistantMessage {
  /** Role of the message, always "assistant". */
  readonly role: "assistant";
  /** The answer's text; by default empty. */
  readonly content?: string;
  /** The model's thinking before the answer, for templates that repeat it. */
  readonly reasoning?: string;
  /** The tool calls of this answer. A message of the role `tool` follows for each. */
  readonly toolCalls?: readonly ToolCall[];
}

/**
 * The result of a tool call.
 *
 * ```ts
 * import { loadModel, type ToolMessage } from "compy";
 *
 * const call = { id: "call_1", name: "weather", arguments: { city: "Rome" } };
 * const result: ToolMessage = { role: "tool", toolCallId: call.id, content: "Sunny, 24 degrees" };
 * await using model = await loadModel();
 * await model.chat(
 *   [{ role: "user", content: "Rome?" }, { role: "assistant", toolCalls: [call] }, result],
 *   { maxTokens: 10 },
 * ).answer();
 * ```
 */
export interface ToolMessage {
  /** Role of the message, always "tool". */
  readonly role: "tool";
  /** The `id` of the tool call that this is the result of. */
  readonly toolCallId: string;
  /** The tool's result as text. */
  readonly content: string;
}

/**
 * One message of a conversation.
 *
 * ```ts
 * import { loadModel, type Message } from "compy";
 *
 * const conversation: Message[] = [{ role: "user", content: "Who are you?" }];
 * await using model = await loadModel();
 * const { text } = await model.chat(conversation).answer();
 * conversation.push({ role: "assistant", content: text }, { role: "user", content: "And who am I?" });
 * await model.chat(conversation, { maxTokens: 10 }).answer(); // what was read before is found in the cache
 * ```
 */
export type Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage;

/**
 * A tool call.
 *
 * ```ts
 * import { loadModel, type ToolCall } from "compy";
 *
 * const run = ({ name, arguments: { a, b } }: ToolCall) => name === "add" ? Number(a) + Number(b) : undefined;
 * const digit = { type: "integer", minimum: 0, maximum: 9 };
 * const add = {
 *   name: "add",
 *   parameters: { type: "object", properties: { a: digit, b: digit }, required: ["a", "b"], additionalProperties: false },
 * };
 * await using model = await loadModel();
 * const { toolCalls } = await model.chat("1 + 2?", { tools: [add], toolChoice: "required" }).answer();
 * console.log(toolCalls.map(run));
 * ```
 */
export interface ToolCall {
  /** Identifies the tool call in the conversation. */
  readonly id: string;
  /** Name of the called tool. */
  readonly name: string;
  /** Parsed arguments of the tool call. */
  readonly arguments: Readonly<Record<string, unknown>>;
  /** Arguments as the model wrote them. Send them back, so that the conversation is found in the cache. */
  readonly json?: string;
}

const ROLES = ["system", "developer", "user", "assistant", "tool"];

/** Returns the conversation in the form for chat templates. Throws CompyError invalid_request. */
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
  if (role === "user" && message.images?.length) {
    const images = message.images.map(() => ({ type: "image" }));
    return { role, content: text === "" ? images : [...images, { type: "text", text: text! }] };
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

/** Returns the images of the user's messages, in order. */
export function imagesOf(messages: string | readonly Message[]): ImageFile[] {
  if (typeof messages === "string") return [];
  return messages.flatMap((message) => message.role === "user" ? message.images ?? [] : []);
}

/**
 * Decodes images, without changing the caller's bytes. Returns an object with the request's field `images`, or an empty
 * object without images. Throws CompyError invalid_request for another value, EngineError not_supported if the model
 * does not read images, and EngineError invalid_request for an image that cannot be read.
 */
export async function readImages(
  engine: Engine,
  images: readonly ImageFile[],
  signal: AbortSignal,
): Promise<Pick<GenerateRequest, "images">> {
  const read: PromptImage[] = [];
  for (const image of images) {
    if (!(image instanceof Uint8Array || image instanceof Blob)) {
      refuse("images", "must be an array of Uint8Array or Blob", image);
    }
    const bytes = image instanceof Blob ? new Uint8Array(await image.arrayBuffer()) : new Uint8Array(image);
    read.push(await engine.readImage(bytes, signal));
  }
  return { images: read };
}

/** Returns whether the answer can continue the last message. */
export function canContinue(messages: string | readonly Message[]): boolean {
  if (typeof messages === "string") return false;
  const last = messages.at(-1);
  return last?.role === "assistant" && !last.toolCalls?.length;
}

/** Throws CompyError invalid_request for a tool with an invalid or repeated name. */
export function checkTools(tools: readonly Tool[]): void {
  const seen = new Map<string, number>();
  for (const [i, { name }] of tools.entries()) {
    const field = `tools[${i}].name`;
    if (typeof name !== "string" || !TOOL_NAME.test(name)) refuse(field, TOOL_NAME_RULE, name);
    if (seen.has(name)) refuse(field, `must differ from the name of tools[${seen.get(name)}]`, name);
    seen.set(name, i);
  }
}
