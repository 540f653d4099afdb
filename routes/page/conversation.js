// @ts-check
import { requestFields } from "./settings.js";
import { beginVersion, saysSomething } from "./versions.js";

/* Conversations and the operations on them. This module uses neither the page nor the network. */

/**
 * @typedef {{ id: string, name: string, arguments: string }} Call
 * @typedef {{ text: string, advice: string, kind: string }} Trouble
 * @typedef {{ promptTokens: number, answerTokens: number, cachedTokens: number }} Usage
 * @typedef {{ role: "user", content: string, images?: Image[] }} UserMessage
 * @typedef {import("./images.js").Image} Image
 * @typedef {{ role: "tool", callId: string, name: string, content: string }} ToolMessage
 * @typedef {{ role: "assistant", content: string, reasoning: string, calls: Call[], model: string,
 *   finish: string | null, usage: Usage | null, tokensPerSecond: number | null, firstTokenMs: number | null,
 *   thinkingMs: number | null, trouble: Trouble | null }} Answer
 * @typedef {UserMessage | ToolMessage | Answer} Message
 * @typedef {{ id: string, title: string, named: boolean, created: number, updated: number, model: string,
 *   settings: import("./settings.js").Settings, messages: Message[],
 *   forks?: import("./versions.js").Forks }} Conversation
 */

/**
 * @param {string} model
 * @param {import("./settings.js").Settings} settings
 * @param {number} now milliseconds since 1970
 * @returns {Conversation}
 */
export function newConversation(model, settings, now) {
  const id = Array.from(
    crypto.getRandomValues(new Uint8Array(8)),
    (byte) => byte.toString(16).padStart(2, "0"),
  );
  return {
    id: id.join(""),
    title: "New conversation",
    named: false,
    created: now,
    updated: now,
    model,
    settings: { ...settings },
    messages: [],
  };
}

/**
 * @param {string} model
 * @returns {Answer}
 */
export function newAnswer(model) {
  return {
    role: "assistant",
    content: "",
    reasoning: "",
    calls: [],
    model,
    finish: null,
    usage: null,
    tokensPerSecond: null,
    firstTokenMs: null,
    thinkingMs: null,
    trouble: null,
  };
}

/**
 * Adds a user message. The conversation is named after its first words.
 * @param {Conversation} conversation
 * @param {string} content
 * @param {readonly Image[]} [images]
 */
export function say(conversation, content, images = []) {
  conversation.messages.push({
    role: "user",
    content,
    ...(images.length === 0 ? {} : { images: [...images] }),
  });
  nameByFirstWords(conversation);
}

/**
 * Returns the images of messages, in order.
 * @param {readonly Message[]} messages
 */
export function imagesOf(messages) {
  return messages.flatMap((message) => message.role === "user" ? message.images ?? [] : []);
}

/**
 * Writes a user message again, as a new version of the conversation from there on.
 * @param {Conversation} conversation
 * @param {number} index of the message
 * @param {string} content
 * @param {readonly Image[]} [images]
 */
export function replaceFrom(conversation, index, content, images) {
  beginVersion(conversation, index);
  say(conversation, content, images);
}

/** @param {Conversation} conversation */
export function nameByFirstWords(conversation) {
  if (conversation.named) return;
  const first = conversation.messages.find(({ role }) => role === "user");
  const said = first?.content.trim() || (first?.role === "user" && first.images?.[0]?.name) || "";
  const words = said.replace(/\s+/g, " ");
  if (words !== "") conversation.title = words.length > 60 ? `${words.slice(0, 59).trimEnd()}…` : words;
}

/**
 * Returns the calls of the last answer that have no result yet.
 * @param {Conversation} conversation
 * @returns {Call[]}
 */
export function openCalls({ messages }) {
  const last = messages.findLastIndex(({ role }) => role === "assistant");
  const answer = messages[last];
  if (answer?.role !== "assistant") return [];
  const after = messages.slice(last + 1);
  if (after.some(({ role }) => role === "user")) return [];
  return answer.calls.filter(({ id }) =>
    !after.some((message) => message.role === "tool" && message.callId === id)
  );
}

/**
 * @param {Conversation} conversation
 * @param {Call} call
 * @param {string} content the call's result
 */
export function answerCall(conversation, call, content) {
  conversation.messages.push({ role: "tool", callId: call.id, name: call.name, content });
}

/**
 * Returns true if an answer ended early and can be continued; the server continues after its last character.
 * @param {Answer} answer
 */
export function canContinue({ content, calls, finish, trouble }) {
  return content !== "" && calls.length === 0 &&
    (trouble !== null || finish === "length" || finish === "stopped");
}

/**
 * Returns the body of a request for the next answer, or for the continuation of the last answer if the last
 * message is the assistant's.
 * @param {Conversation} conversation
 * @param {ReadonlyMap<string, string>} [images] data URLs of the images, by their ids
 */
export function requestBody({ model, settings, messages }, images = new Map()) {
  const system = (settings.system ?? "").trim();
  return {
    // A server with one model uses it when the request names none.
    ...(model === "" ? {} : { model }),
    messages: [
      ...(system === "" ? [] : [{ role: "system", content: system }]),
      ...messages.filter(saysSomething).map((message) => onTheWire(message, images)),
    ],
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
    ...requestFields(settings),
  };
}

/**
 * @param {Message} message
 * @param {ReadonlyMap<string, string>} urls
 */
function onTheWire(message, urls) {
  switch (message.role) {
    case "user": {
      const { content, images = [] } = message;
      if (images.length === 0) return { role: "user", content };
      const parts = images.map(({ id }) => ({ type: "image_url", image_url: { url: urls.get(id) ?? "" } }));
      return { role: "user", content: content === "" ? parts : [...parts, { type: "text", text: content }] };
    }
    case "tool":
      return { role: "tool", tool_call_id: message.callId, content: message.content };
    case "assistant": {
      const { content, reasoning, calls } = message;
      return {
        role: "assistant",
        content: content === "" && calls.length > 0 ? null : content,
        ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
        ...(calls.length === 0 ? {} : {
          tool_calls: calls.map(({ id, name, arguments: text }) => ({
            id,
            type: "function",
            function: { name, arguments: text },
          })),
        }),
      };
    }
  }
}

/** Reads the chunks of a stream into an answer and measures speeds. Times are in milliseconds of any one clock. */
export class AnswerReader {
  /** Time of the first token. */
  #first = /** @type {number | undefined} */ (undefined);
  #last = 0;
  /** Chunks with text; they count as tokens until the usage reports the real number. */
  #chunks = 0;
  #callOffset;

  /**
   * @param {Answer} answer
   * @param {number} start
   */
  constructor(answer, start) {
    this.answer = answer;
    this.start = start;
    this.#callOffset = answer.calls.length;
  }

  /**
   * @param {any} chunk of a chat completion
   * @param {number} now
   * @returns {{ processed: number, total: number } | undefined} how much of the prompt is read, where the chunk says
   */
  read(chunk, now) {
    const { answer } = this;
    if (chunk.usage) this.#measure(chunk.usage, chunk.timings);
    const choice = chunk.choices?.[0];
    if (choice?.finish_reason) answer.finish = choice.finish_reason;
    const delta = choice?.delta ?? {};
    const calls = delta.tool_calls ?? [];
    if (delta.content || delta.reasoning_content || calls.length > 0) {
      this.#mark(now, Boolean(delta.reasoning_content));
    }
    if (delta.reasoning_content) answer.reasoning += delta.reasoning_content;
    if (delta.content) answer.content += delta.content;
    for (const part of calls) {
      const index = this.#callOffset + part.index;
      answer.calls[index] ??= { id: "", name: "", arguments: "" };
      const call = answer.calls[index];
      call.id ||= part.id ?? "";
      call.name ||= part.function?.name ?? "";
      call.arguments += part.function?.arguments ?? "";
    }
    const progress = chunk.prompt_progress;
    return progress && { processed: progress.processed, total: progress.total };
  }

  /** Tokens per second so far; undefined before the second token. */
  get rate() {
    if (this.#first === undefined || this.#chunks < 2) return undefined;
    return 1000 * (this.#chunks - 1) / Math.max(this.#last - this.#first, 1);
  }

  /**
   * @param {number} now
   * @param {boolean} thinking
   */
  #mark(now, thinking) {
    this.#chunks++;
    this.#last = now;
    if (this.#first === undefined) {
      this.#first = now;
      this.answer.firstTokenMs = now - this.start;
    }
    if (thinking) this.answer.thinkingMs = now - this.#first;
  }

  /**
   * @param {any} usage
   * @param {any} timings as llama-server has them, where the server sends them
   */
  #measure(usage, timings) {
    const { answer } = this;
    answer.usage = {
      promptTokens: usage.prompt_tokens ?? 0,
      answerTokens: usage.completion_tokens ?? 0,
      cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
    };
    const seconds = (this.#last - (this.#first ?? 0)) / 1000;
    const measured = answer.usage.answerTokens > 1 && seconds > 0
      ? (answer.usage.answerTokens - 1) / seconds
      : null;
    answer.tokensPerSecond = timings?.predicted_per_second ?? measured;
  }
}

/**
 * Returns the conversation for other programs: the body of a request, plus its title and times.
 * @param {Conversation} conversation
 * @param {ReadonlyMap<string, string>} [images] data URLs of the images, by their ids
 */
export function exported(conversation, images) {
  const { model, messages } = requestBody(conversation, images);
  const { title, created, updated, settings } = conversation;
  const times = { created: new Date(created).toISOString(), updated: new Date(updated).toISOString() };
  return `${JSON.stringify({ title, ...times, model, ...requestFields(settings), messages }, null, 2)}\n`;
}
