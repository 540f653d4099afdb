import type { Engine } from "../api/engine.ts";
import type { TokenEvent, TokenLogprob, Usage } from "../api/events.ts";
import type { StreamDecoder } from "../tokenizer/types.ts";

export interface ScoredToken {
  readonly token: number;
  readonly logprob: number;
  readonly top: readonly TokenLogprob[];
  /** Number of the answer's Unicode characters before this token. */
  readonly offset: number;
}

export type Timings = Extract<TokenEvent, { type: "finish" }>["timings"];

/** How much of the prompt is processed. */
export type PromptProgress = Omit<Extract<TokenEvent, { type: "progress" }>, "type">;

export type PromptTokens = Extract<TokenEvent, { type: "prompt" }>["logprobs"];

/** A piece of an answer. They come in this order: progress, the prompt's own tokens, texts and markers, one finish. */
export type Piece =
  | { type: "progress"; index: number; progress: PromptProgress }
  | { type: "prompt"; index: number; tokens: PromptTokens }
  /** `tokens`: the tokens of `text`, if log-probabilities were asked for. */
  | { type: "text"; index: number; text: string; tokens: ScoredToken[] }
  /** A token that is not text, for example one that opens a call. */
  | { type: "marker"; index: number; token: number }
  /** `stop`: the stop text that ended the answer. */
  | {
    type: "finish";
    index: number;
    reason: "stop" | "length";
    stop?: string;
    usage: Usage;
    timings: Timings;
  };

/** Returns the number of Unicode characters, the unit of text offsets. */
export function characters(text: string): number {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/**
 * Converts the engine's events of one answer into pieces. Tokens wait until their text is published. Tokens that only
 * form a stop text or the answer's end are dropped, so that log-probabilities cover exactly the text.
 */
export class PieceReader {
  readonly #index: number;
  /** Set if log-probabilities were asked for: tracks where each token's text begins. */
  #decoder: StreamDecoder | undefined;
  #decoded = 0;
  #sent = 0;
  #waiting: ScoredToken[] = [];

  constructor(private readonly engine: Engine, index: number, withLogprobs: boolean) {
    this.#index = index;
    if (withLogprobs) this.#decoder = this.#newDecoder();
  }

  read(event: TokenEvent): Piece[] {
    const index = this.#index;
    switch (event.type) {
      case "progress": {
        const { type, ...progress } = event;
        return [{ type, index, progress }];
      }
      case "prompt":
        return [{ type: "prompt", index, tokens: event.logprobs }];
      case "token":
        if (event.marker) return this.#marker(event.token);
        this.#score(event);
        return event.text === "" ? [] : [this.#text(event.text)];
      case "text":
        return [this.#text(event.text)];
      case "finish": {
        const { text, stop, usage, timings } = event;
        const reason = event.reason === "stop" ? "stop" : "length";
        if (reason === "stop") {
          const end = this.#sent + characters(text);
          this.#waiting = this.#waiting.filter((token) => token.offset < end);
        }
        const last = text === "" && this.#waiting.length === 0 ? [] : [this.#text(text)];
        return [...last, { type: "finish", index, reason, stop, usage, timings }];
      }
    }
  }

  /** Drops waiting tokens: the engine has published all text before a marker, even an incomplete last character. */
  #marker(token: number): Piece[] {
    this.#waiting = [];
    if (this.#decoder) {
      this.#decoder = this.#newDecoder();
      this.#decoded = this.#sent;
    }
    return [{ type: "marker", index: this.#index, token }];
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

  #text(text: string): Piece {
    const tokens = this.#waiting;
    this.#waiting = [];
    this.#sent += this.#decoder ? characters(text) : 0;
    return { type: "text", index: this.#index, text, tokens };
  }
}
