import { type ChatPart, type Engine, parseWrittenJson, type Usage } from "../../engine/mod.ts";
import type { Piece } from "../../engine/answers/pieces.ts";
import { storedOf } from "../generation/generation.ts";
import type { ContentBlock, MessageAnswer, MessageEvent, MessageUsage, StopReason } from "./answer.ts";
import { signatureOf } from "./conversation.ts";

/** The options of a request that affect its answer. */
export interface MessageShape {
  readonly promptTokens: number;
  readonly maxTokens: number;
  /** How thoughts are returned. "none" also hides the thoughts of a model that thinks without a request. */
  readonly thoughts: "none" | "shown" | "omitted";
}

/** Yields the answer as the events of a stream. */
export async function* messageEvents(
  engine: Engine,
  shape: MessageShape,
  pieces: AsyncIterable<Piece>,
): AsyncGenerator<MessageEvent> {
  const blocks = new Blocks(shape.thoughts);
  let started = false;
  for await (const piece of pieces) {
    if (!started) {
      started = true;
      yield { type: "message_start", message: emptyMessage(engine, shape, piece) };
      yield { type: "ping" };
    } else if (piece.type === "progress") yield { type: "ping" };
    if (piece.type === "part") yield* blocks.add(piece.part);
    if (piece.type === "finish") {
      yield* blocks.close();
      const ending = { stop_details: null, container: null, ...endingOf(piece, shape) };
      yield { type: "message_delta", delta: ending, usage: usageOf(piece.usage) };
    }
  }
  yield { type: "message_stop" };
}

/** Returns the whole answer, assembled from the events of a stream. */
export async function wholeMessage(events: AsyncIterable<MessageEvent>): Promise<MessageAnswer> {
  let message: MessageAnswer | undefined;
  const json: string[] = [];
  for await (const event of events) {
    if (event.type === "message_start") message = event.message;
    else if (event.type === "content_block_start") {
      message!.content.push({ ...event.content_block });
      json.push("");
    } else if (event.type === "content_block_delta") {
      const block = message!.content[event.index];
      const { delta } = event;
      if (delta.type === "input_json_delta") json[event.index] += delta.partial_json;
      if (delta.type === "signature_delta" && block.type === "thinking") block.signature = delta.signature;
      if (delta.type === "thinking_delta" && block.type === "thinking") block.thinking += delta.thinking;
      if (delta.type === "text_delta" && block.type === "text") block.text += delta.text;
    } else if (event.type === "content_block_stop") {
      const block = message!.content[event.index];
      if (block.type === "tool_use") block.input = inputOf(json[event.index]);
    } else if (event.type === "message_delta") {
      Object.assign(message!, event.delta);
      Object.assign(message!.usage, event.usage);
    }
  }
  return message!;
}

/** Returns the input of a tool call, or {} when the answer ended inside the call. */
function inputOf(json: string): Record<string, unknown> {
  try {
    return parseWrittenJson(json) as Record<string, unknown>;
  } catch {
    return {};
  }
}

/** Turns the parts of an answer into consecutive content blocks. */
class Blocks {
  #index = -1;
  #open: ContentBlock["type"] | undefined;
  #thought = "";

  constructor(private readonly thoughts: MessageShape["thoughts"]) {}

  *add(part: ChatPart): Generator<MessageEvent> {
    switch (part.type) {
      case "content":
        if (this.#open !== "text") yield* this.#begin({ type: "text", text: "" });
        yield this.#delta({ type: "text_delta", text: part.text });
        break;
      case "reasoning":
        if (this.thoughts === "none") return;
        if (this.#open !== "thinking") {
          yield* this.#begin({ type: "thinking", thinking: "", signature: "" });
        }
        this.#thought += part.text;
        if (this.thoughts === "shown") yield this.#delta({ type: "thinking_delta", thinking: part.text });
        break;
      case "call": {
        const { id, name } = part;
        yield* this.#begin({ type: "tool_use", id, name, input: {}, caller: { type: "direct" } });
        break;
      }
      case "arguments":
        yield this.#delta({ type: "input_json_delta", partial_json: part.text });
    }
  }

  *close(): Generator<MessageEvent> {
    if (this.#open === undefined) return;
    if (this.#open === "thinking") {
      const signature = signatureOf(this.#thought, this.thoughts === "shown");
      yield this.#delta({ type: "signature_delta", signature });
      this.#thought = "";
    }
    this.#open = undefined;
    yield { type: "content_block_stop", index: this.#index };
  }

  *#begin(block: ContentBlock): Generator<MessageEvent> {
    yield* this.close();
    this.#index++;
    this.#open = block.type;
    yield { type: "content_block_start", index: this.#index, content_block: block };
  }

  #delta(delta: Extract<MessageEvent, { type: "content_block_delta" }>["delta"]): MessageEvent {
    return { type: "content_block_delta", index: this.#index, delta };
  }
}

function endingOf(
  { reason, stop, usage }: Extract<Piece, { type: "finish" }>,
  { maxTokens }: MessageShape,
): { stop_reason: StopReason; stop_sequence: string | null } {
  if (reason === "tool_calls") return { stop_reason: "tool_use", stop_sequence: null };
  if (stop !== undefined) return { stop_reason: "stop_sequence", stop_sequence: stop };
  if (reason === "stop") return { stop_reason: "end_turn", stop_sequence: null };
  const hasRoom = usage.completionTokens < maxTokens;
  return { stop_reason: hasRoom ? "model_context_window_exceeded" : "max_tokens", stop_sequence: null };
}

/** Returns the message as it is when the answer begins; `first` is the answer's first piece. */
function emptyMessage(engine: Engine, { promptTokens }: MessageShape, first: Piece): MessageAnswer {
  const cachedTokens = first.type === "progress" ? first.progress.cached : 0;
  return {
    id: `msg_${crypto.randomUUID().replaceAll("-", "")}`,
    type: "message",
    role: "assistant",
    model: engine.model.id,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    stop_details: null,
    container: null,
    usage: {
      ...usageOf({ promptTokens, completionTokens: 0, cachedTokens }),
      cache_creation: null,
      inference_geo: null,
      service_tier: "standard",
      speed: null,
    },
  };
}

/** Returns the usage as Anthropic counts it: input tokens exclude tokens read from the cache. */
function usageOf(usage: Usage): MessageUsage {
  const { promptTokens, completionTokens, cachedTokens, thinkingTokens = 0 } = usage;
  return {
    input_tokens: promptTokens - cachedTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cachedTokens,
    output_tokens: completionTokens,
    output_tokens_details: { thinking_tokens: thinkingTokens },
    server_tool_use: null,
    ...storedOf([usage]),
  };
}
