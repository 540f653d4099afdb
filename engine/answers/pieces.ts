import type { Engine } from "../api/engine.ts";
import { EngineError } from "../api/errors.ts";
import type { TokenEvent, TokenLogprob, Usage } from "../api/events.ts";
import type { ChatPart, ChatReader } from "../chat/types.ts";
import type { StreamDecoder } from "../tokenizer/types.ts";

export interface ScoredToken {
  readonly token: number;
  readonly logprob: number;
  readonly top: readonly TokenLogprob[];
  /** Number of the answer's Unicode characters before this token. */
  readonly offset: number;
}

export type Timings = Extract<TokenEvent, { type: "finish" }>["timings"];

/** The part of a prompt that is already processed. */
export type PromptProgress = Omit<Extract<TokenEvent, { type: "progress" }>, "type">;

export type PromptTokens = Extract<TokenEvent, { type: "prompt" }>["logprobs"];

/**
 * A piece of an answer, and the answer's index among those of its request. Pieces come in this order: progress, the
 * prompt's own tokens, parts, one finish.
 */
export type Piece =
  | { type: "progress"; index: number; progress: PromptProgress }
  | { type: "prompt"; index: number; tokens: PromptTokens }
  /** `tokens`: the tokens of a content part, if the request asked for log-probabilities. */
  | { type: "part"; index: number; part: ChatPart; tokens: ScoredToken[] }
  | {
    type: "finish";
    index: number;
    reason: "stop" | "length" | "tool_calls";
    /** The stop text that ended the answer. */
    stop?: string;
    usage: Usage;
    timings: Timings;
  };

/** Returns the text of an answer's part; empty for a tool call. */
export function textOf({ part }: Extract<Piece, { type: "part" }>): string {
  return part.type === "call" ? "" : part.text;
}

/** Returns the number of Unicode characters, the unit of text offsets. */
export function characters(text: string): number {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/**
 * Converts the engine's events of one answer into pieces. Without a chat reader, all text is content. The reader holds
 * tokens back until it publishes their text. It drops tokens that only form a stop text or the answer's end , so that
 * log-probabilities cover exactly the text.
 */
export class PieceReader {
  /** Tracks where each token's text begins; undefined if the request did not ask for log-probabilities. */
  #decoder: StreamDecoder | undefined;
  #decoded = 0;
  #sent = 0;
  #waiting: ScoredToken[] = [];
  readonly #content = new ContentTokens();
  /** The arguments of each tool call so far, as text. */
  readonly #arguments: string[] = [];

  constructor(
    private readonly engine: Engine,
    private readonly index: number,
    withLogprobs: boolean,
    private readonly chat?: ChatReader,
  ) {
    if (withLogprobs) this.#decoder = this.#newDecoder();
  }

  /**
   * Returns the pieces of one event. Throws EngineError constraint_failed if the answer ends with an incomplete tool
   * call.
   */
  *read(event: TokenEvent): Generator<Piece> {
    const { index } = this;
    switch (event.type) {
      case "progress": {
        const { type, ...progress } = event;
        yield { type, index, progress };
        break;
      }
      case "prompt":
        yield { type: "prompt", index, tokens: event.logprobs };
        break;
      case "token":
        if (event.marker) return yield* this.#marker(event.token);
        this.#score(event);
        if (event.text !== "") yield* this.#text(event.text);
        break;
      case "text":
        yield* this.#text(event.text);
        break;
      case "finish":
        yield* this.#finish(event);
    }
  }

  *#finish(event: Extract<TokenEvent, { type: "finish" }>): Generator<Piece> {
    const { text, stop, usage, timings } = event;
    let reason: Extract<Piece, { type: "finish" }>["reason"] = event.reason === "stop" ? "stop" : "length";
    if (reason === "stop") {
      const end = this.#sent + characters(text);
      this.#waiting = this.#waiting.filter((token) => token.offset < end);
    }
    if (text !== "" || this.#waiting.length > 0) yield* this.#text(text);
    if (this.chat) yield* this.#parts(this.chat.end());
    if (reason === "stop" && this.#arguments.length > 0) {
      this.#arguments.forEach(checkArguments);
      reason = "tool_calls";
    }
    yield { type: "finish", index: this.index, reason, stop, usage, timings };
  }

  /**
   * Drops waiting tokens at a marker: the engine has published all text before it, even an incomplete last character.
   */
  *#marker(token: number): Generator<Piece> {
    this.#waiting = [];
    if (this.#decoder) {
      this.#decoder = this.#newDecoder();
      this.#decoded = this.#sent;
    }
    if (this.chat) yield* this.#parts(this.chat.marker(token));
    this.#content.clear();
  }

  #newDecoder(): StreamDecoder {
    return this.engine.tokenizer.streamDecoder({ continuation: true });
  }

  #score(event: Extract<TokenEvent, { type: "token" }>): void {
    if (!this.#decoder) return;
    const { token, logprob = 0, top = [] } = event;
    this.#waiting.push({ token, logprob, top, offset: this.#decoded });
    this.#decoded += characters(this.#decoder.push(token));
  }

  *#text(text: string): Generator<Piece> {
    const tokens = this.#waiting;
    this.#waiting = [];
    const start = this.#sent;
    this.#sent += this.#decoder ? characters(text) : 0;
    if (!this.chat) return yield { type: "part", index: this.index, part: { type: "content", text }, tokens };
    for (const slice of slices(text, tokens, start)) {
      this.#content.add(slice.text, slice.token);
      yield* this.#parts(this.chat.text(slice.text));
    }
  }

  *#parts(parts: readonly ChatPart[]): Generator<Piece> {
    for (const part of parts) {
      if (part.type === "call") this.#arguments[part.index] = "";
      if (part.type === "arguments") this.#arguments[part.index] += part.text;
      const tokens = part.type === "content" ? this.#content.take(part.text) : [];
      yield { type: "part", index: this.index, part, tokens };
    }
    // Text before a part that is not content does not belong to later content.
    if (parts.length > 0 && parts.at(-1)!.type !== "content") this.#content.clear();
  }
}

/** Throws EngineError constraint_failed if a call's arguments are not complete JSON. */
function checkArguments(text: string, call: number): void {
  try {
    JSON.parse(text);
  } catch {
    throw new EngineError(
      "constraint_failed",
      `The arguments of call ${call} of the answer are not complete JSON`,
    );
  }
}

/** Returns a text split into its tokens, if they are known. `start`: the answer's characters before the text. */
function slices(
  text: string,
  tokens: readonly ScoredToken[],
  start: number,
): { text: string; token?: ScoredToken }[] {
  if (tokens.length === 0) return [{ text }];
  const all = Array.from(text);
  const places = [...tokens.map(({ offset }) => Math.max(offset - start, 0)), Infinity];
  const head = { text: all.slice(0, places[0]).join("") };
  const slices = tokens.map((token, i) => ({ text: all.slice(places[i], places[i + 1]).join(""), token }));
  return head.text === "" ? slices : [head, ...slices];
}

/** Finds which of an answer's tokens form its content, and not thinking, marks or tool calls. */
class ContentTokens {
  /** Text that may turn out to be content, and its tokens with their offsets in the text (UTF-16 units). */
  #text = "";
  #tokens: { token: ScoredToken; start: number }[] = [];

  add(text: string, token: ScoredToken | undefined): void {
    if (token) this.#tokens.push({ token, start: this.#text.length });
    // Without log-probabilities there are no tokens to find.
    if (this.#tokens.length > 0) this.#text += text;
  }

  /** Returns the tokens of a content part, without the marks and blanks before it. */
  take(content: string): ScoredToken[] {
    if (this.#tokens.length === 0) return [];
    const found = this.#text.indexOf(content);
    const from = Math.max(found, 0);
    const to = found < 0 ? this.#text.length : from + content.length;
    const ends = [...this.#tokens.slice(1).map(({ start }) => start), this.#text.length];
    const taken = this.#tokens.filter(({ start }, i) => start < to && (ends[i] > from || start >= from));
    const rest = this.#tokens.filter(({ start }) => start >= to);
    this.#tokens = rest.map(({ token, start }) => ({ token, start: start - to }));
    this.#text = this.#tokens.length > 0 ? this.#text.slice(to) : "";
    return taken.map(({ token }) => token);
  }

  clear(): void {
    this.#text = "";
    this.#tokens = [];
  }
}
