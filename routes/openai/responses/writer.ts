import type { ChatPart, Engine, Usage } from "../../../engine/mod.ts";
import { newResponseId } from "../../../jobs/service/response_store.ts";
import type { ApiError } from "../../core/errors.ts";
import { storedOf } from "../../generation/generation.ts";
import { chatLogprobs } from "../../generation/logprobs.ts";
import type { Piece, ScoredToken } from "../../../engine/answers/pieces.ts";
import type {
  ItemStatus,
  OutputItem,
  ResponseAnswer,
  ResponseLogprobs,
  ResponseSettings,
  ResponseUsage,
} from "./answer.ts";
import type { CalledTool } from "./called_tool.ts";
import { openCall } from "./calls.ts";
import { ItemIds, type OpenItem, type Said } from "./open_item.ts";

export interface ResponseEvent extends Said {
  readonly sequence_number: number;
}

export interface ResponseShape {
  readonly settings: ResponseSettings;
  /** Whether the request asked for log-probabilities of the text. */
  readonly logprobs: boolean;
  /** Whether reasoning is returned as a summary instead of as text. */
  readonly summary: boolean;
  /** The tools by the names that the model reads. */
  readonly tools: ReadonlyMap<string, CalledTool>;
}

/**
 * Writes one answer as the events of a stream. The last event holds the whole answer, so that streamed and whole
 * answers are equal. Items follow each other: an item ends when another kind of text begins.
 */
export class ResponseWriter {
  readonly id = newResponseId();
  /** Creates the ids of the answer's items, and of the request's. */
  readonly ids = new ItemIds(this.id);
  readonly #created = now();
  readonly #output: OutputItem[] = [];
  #open: OpenItem | undefined;
  #sequence = 0;
  #end: Pick<ResponseAnswer, "status" | "completed_at" | "error" | "incomplete_details" | "usage"> = {
    status: "in_progress",
    completed_at: null,
    error: null,
    incomplete_details: null,
    usage: null,
  };

  constructor(private readonly engine: Engine, private readonly shape: ResponseShape) {}

  /** Returns the current answer with its finished items. */
  get response(): ResponseAnswer {
    return {
      id: this.id,
      object: "response",
      created_at: this.#created,
      ...this.#end,
      background: false,
      model: this.engine.model.id,
      output: [...this.#output],
      truncation: "disabled",
      ...this.shape.settings,
    };
  }

  /** Yields the events of a piece. The first piece of any kind begins the answer. */
  *write(piece: Piece): Generator<ResponseEvent> {
    if (this.#sequence === 0) {
      yield this.#number({ type: "response.created", response: this.response });
      yield this.#number({ type: "response.in_progress", response: this.response });
    }
    if (piece.type === "part") yield* this.#part(piece.part, piece.tokens);
    if (piece.type === "finish") yield* this.#finish(piece);
  }

  /** Whether the answer has begun, so that the client knows its id, and has not ended. */
  get isRunning(): boolean {
    return this.#sequence > 0 && this.#end.status === "in_progress";
  }

  /** Returns the answer so far, after its client has disconnected. */
  cancelled(): ResponseAnswer {
    for (const _ of this.#close("incomplete"));
    this.#end = { ...this.#end, status: "cancelled" };
    return this.response;
  }

  /** Yields the events that end a failed stream, even if the answer has not begun. */
  *fail(error: ApiError): Generator<ResponseEvent> {
    const { isRunning } = this;
    const { message, param, code } = error;
    // OpenAI's client reads `error`; its types and other clients expect the same fields outside it.
    yield this.#number({ type: "error", code, message, param, error: error.body().error });
    if (!isRunning) return;
    yield* this.#close("incomplete");
    this.#end = { ...this.#end, status: "failed", error: { code: codeOf(error), message } };
    yield this.#number({ type: "response.failed", response: this.response });
  }

  *#part(part: ChatPart, tokens: readonly ScoredToken[]): Generator<ResponseEvent> {
    if (!this.#open?.takes(part)) {
      yield* this.#close("completed");
      yield* this.#begin(this.#itemFor(part));
    }
    yield* this.#all(this.#open!.add(part, this.#logprobs(tokens)));
  }

  *#finish({ reason, usage }: Extract<Piece, { type: "finish" }>): Generator<ResponseEvent> {
    const isCut = reason === "length";
    yield* this.#close(isCut ? "incomplete" : "completed");
    // Clients expect a message, so an answer without one gets an empty message.
    if (!isCut && !this.#output.some(({ type }) => type !== "reasoning")) {
      yield* this.#begin(this.#message());
      yield* this.#close("completed");
    }
    const status = isCut ? "incomplete" : "completed";
    this.#end = {
      status,
      completed_at: isCut ? null : now(),
      error: null,
      incomplete_details: isCut ? { reason: "max_output_tokens" } : null,
      usage: usageOf(usage),
    };
    yield this.#number({ type: `response.${status}`, response: this.response });
  }

  #itemFor(part: ChatPart): OpenItem {
    switch (part.type) {
      case "content":
        return this.#message();
      case "reasoning":
        return this.#thought();
      case "call":
        return this.#call(part);
      case "arguments":
        throw new Error("Arguments of a call that has not begun");
    }
  }

  #message(): OpenItem {
    return new OpenMessage(this.ids.next("msg"));
  }

  #thought(): OpenItem {
    return new OpenThought(this.ids.next("rs"), this.shape.summary ? AS_SUMMARY : AS_TEXT);
  }

  #call({ id, name }: Extract<ChatPart, { type: "call" }>): OpenItem {
    return openCall(this.ids, id, this.shape.tools.get(name) ?? { type: "function", name });
  }

  *#begin(item: OpenItem): Generator<ResponseEvent> {
    this.#open = item;
    yield this.#number({
      type: "response.output_item.added",
      output_index: this.#output.length,
      item: item.begun(),
    });
    yield* this.#all(item.begin());
  }

  *#close(status: ItemStatus): Generator<ResponseEvent> {
    const open = this.#open;
    if (!open) return;
    yield* this.#all(open.end());
    this.#open = undefined;
    const item = open.item(status);
    yield this.#number({ type: "response.output_item.done", output_index: this.#output.length, item });
    this.#output.push(item);
  }

  *#all(said: readonly Said[]): Generator<ResponseEvent> {
    const place = { item_id: this.#open!.id, output_index: this.#output.length };
    for (const { type, ...fields } of said) yield this.#number({ type, ...place, ...fields });
  }

  #number(said: Said): ResponseEvent {
    const { type, ...fields } = said;
    return { type, sequence_number: this.#sequence++, ...fields };
  }

  #logprobs(tokens: readonly ScoredToken[]): ResponseLogprobs {
    return this.shape.logprobs ? chatLogprobs(this.engine, tokens).content as ResponseLogprobs : [];
  }
}

class OpenMessage implements OpenItem {
  readonly #logprobs: ResponseLogprobs = [];
  #text = "";

  constructor(readonly id: string) {}

  takes({ type }: ChatPart): boolean {
    return type === "content";
  }

  begun(): OutputItem {
    return { type: "message", id: this.id, role: "assistant", status: "in_progress", content: [] };
  }

  begin(): Said[] {
    return [{ type: "response.content_part.added", content_index: 0, part: this.#part() }];
  }

  add(part: ChatPart, logprobs: ResponseLogprobs): Said[] {
    const delta = textOf(part);
    this.#text += delta;
    for (const logprob of logprobs) this.#logprobs.push(logprob);
    return [{ type: "response.output_text.delta", content_index: 0, delta, logprobs }];
  }

  end(): Said[] {
    const part = this.#part();
    const { text, logprobs } = part;
    return [
      { type: "response.output_text.done", content_index: 0, text, logprobs },
      { type: "response.content_part.done", content_index: 0, part },
    ];
  }

  item(status: ItemStatus): OutputItem {
    return { type: "message", id: this.id, role: "assistant", status, content: [this.#part()] };
  }

  #part() {
    return {
      type: "output_text" as const,
      text: this.#text,
      annotations: [],
      logprobs: [...this.#logprobs],
    };
  }
}

/** Event names for reasoning as text, and as a summary. */
const AS_TEXT = { part: "content_part", text: "reasoning_text", index: "content_index" };
const AS_SUMMARY = { part: "reasoning_summary_part", text: "reasoning_summary_text", index: "summary_index" };

class OpenThought implements OpenItem {
  #text = "";

  constructor(readonly id: string, private readonly names: typeof AS_TEXT) {}

  takes({ type }: ChatPart): boolean {
    return type === "reasoning";
  }

  begun(): OutputItem {
    return this.#item("in_progress", []);
  }

  begin(): Said[] {
    return [this.#said("part", "added", { part: this.#part() })];
  }

  add(part: ChatPart): Said[] {
    const delta = textOf(part);
    this.#text += delta;
    return [this.#said("text", "delta", { delta })];
  }

  end(): Said[] {
    return [
      this.#said("text", "done", { text: this.#text }),
      this.#said("part", "done", { part: this.#part() }),
    ];
  }

  item(status: ItemStatus): OutputItem {
    return this.#item(status, [this.#part()]);
  }

  #said(what: "part" | "text", happened: string, fields: object): Said {
    const { names } = this;
    return { type: `response.${names[what]}.${happened}`, [names.index]: 0, ...fields };
  }

  #item(status: ItemStatus, parts: { type: string; text: string }[]): OutputItem {
    const content = this.names === AS_SUMMARY ? { summary: parts } : { summary: [], content: parts };
    return { type: "reasoning", id: this.id, status, ...content } as OutputItem;
  }

  #part() {
    return { type: this.names === AS_SUMMARY ? "summary_text" : "reasoning_text", text: this.#text };
  }
}

function textOf(part: ChatPart): string {
  return part.type === "call" ? "" : part.text;
}

function usageOf(usage: Usage): ResponseUsage {
  const { promptTokens, completionTokens, cachedTokens, thinkingTokens } = usage;
  return {
    input_tokens: promptTokens,
    // Storing a prompt has no cost here, so cache writes are not counted as OpenAI does.
    input_tokens_details: { cached_tokens: cachedTokens, cache_write_tokens: 0, ...storedOf([usage]) },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: thinkingTokens ?? 0 },
    total_tokens: promptTokens + completionTokens,
  };
}

/** Returns one of the error codes that the API allows in an answer. */
function codeOf({ status }: ApiError): string {
  if (status === 429) return "rate_limit_exceeded";
  return status >= 500 || status === 422 ? "server_error" : "invalid_prompt";
}

function now(): number {
  return Math.floor(Date.now() / 1000);
}
