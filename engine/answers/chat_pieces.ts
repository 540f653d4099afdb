import { EngineError } from "../api/errors.ts";
import type { Usage } from "../api/events.ts";
import type { ChatPart, ChatReader } from "../chat/types.ts";
import { characters, type Piece, type PromptProgress, type ScoredToken } from "./pieces.ts";

/** A piece of a chat answer: thinking, content and calls in their order, then one finish. */
export type ChatPiece =
  | { type: "progress"; index: number; progress: PromptProgress }
  /** `tokens`: the tokens of a content part, if log-probabilities were asked for. */
  | { type: "part"; index: number; part: ChatPart; tokens: ScoredToken[] }
  | {
    type: "finish";
    index: number;
    reason: "stop" | "length" | "tool_calls";
    /** The stop text that ended the answer. */
    stop?: string;
    usage: Usage;
  };

/**
 * Reads the pieces of several answers, each with its own reader. Throws EngineError constraint_failed for incomplete
 * calls.
 */
export async function* chatPieces(
  pieces: AsyncIterable<Piece>,
  readers: readonly ChatReader[],
): AsyncGenerator<ChatPiece> {
  const answers = readers.map((reader, index) => new ChatAnswer(reader, index));
  for await (const piece of pieces) yield* answers[piece.index].read(piece);
}

/** Reads one answer. */
class ChatAnswer {
  /** The arguments of each call so far. */
  readonly #arguments: string[] = [];
  readonly #tokens = new ContentTokens();

  constructor(private readonly reader: ChatReader, private readonly index: number) {}

  read(piece: Piece): ChatPiece[] {
    switch (piece.type) {
      case "progress":
        return [piece];
      case "prompt":
        return [];
      case "text":
        return this.#tokens.slices(piece).flatMap(({ text, token }) => {
          this.#tokens.add(text, token);
          return this.#pieces(this.reader.text(text));
        });
      case "marker": {
        const pieces = this.#pieces(this.reader.marker(piece.token));
        this.#tokens.clear();
        return pieces;
      }
      case "finish": {
        const pieces = this.#pieces(this.reader.end());
        if (this.#arguments.length === 0 || piece.reason !== "stop") return [...pieces, piece];
        this.#arguments.forEach(checkArguments);
        return [...pieces, { ...piece, reason: "tool_calls" }];
      }
    }
  }

  #pieces(parts: ChatPart[]): ChatPiece[] {
    const pieces = parts.map((part): ChatPiece => {
      if (part.type === "call") this.#arguments[part.index] = "";
      if (part.type === "arguments") this.#arguments[part.index] += part.text;
      const tokens = part.type === "content" ? this.#tokens.take(part.text) : [];
      return { type: "part", index: this.index, part, tokens };
    });
    // Text before a part that is not content does not belong to later content.
    if (parts.length > 0 && parts.at(-1)!.type !== "content") this.#tokens.clear();
    return pieces;
  }
}

/** Throws EngineError constraint_failed if a call's arguments are not complete JSON. */
function checkArguments(text: string, call: number): void {
  try {
    JSON.parse(text);
  } catch {
    throw new EngineError(
      "constraint_failed",
      `The arguments of call ${call} of the answer are no whole JSON`,
    );
  }
}

/** Finds the tokens of an answer's content among those of thinking, marks and calls. */
class ContentTokens {
  /** Number of characters read so far. */
  #read = 0;
  /** Text that is not content yet, and its tokens with their start in it (UTF-16 units). */
  #text = "";
  #tokens: { token: ScoredToken; start: number }[] = [];

  /** Returns the text split into tokens, if its tokens are known. */
  slices({ text, tokens }: Extract<Piece, { type: "text" }>): { text: string; token?: ScoredToken }[] {
    if (tokens.length === 0) {
      this.#read += characters(text);
      return [{ text }];
    }
    const all = Array.from(text);
    const start = this.#read;
    this.#read += all.length;
    const places = [...tokens.map(({ offset }) => Math.max(offset - start, 0)), Infinity];
    const head = { text: all.slice(0, places[0]).join("") };
    const slices = tokens.map((token, i) => ({ text: all.slice(places[i], places[i + 1]).join(""), token }));
    return head.text === "" ? slices : [head, ...slices];
  }

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
