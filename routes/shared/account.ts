import type { GenerateRequest, TokenEvent } from "../../engine/types.ts";

/** Who a request is counted for: limits, metrics and the log hear of it here. */
export interface Account {
  /** A request is let in; the returned function says that it has ended. Throws ApiError where a limit is reached. */
  enter(): () => void;
  /** It was refused or failed with this code. */
  failed(code: string): void;
  /** An answer of it begins. Several answers to one prompt have the same array as theirs. */
  watch(model: string, request: Pick<GenerateRequest, "prompt">): AnswerWatch;
  /** So many tokens of texts are read, which get no answers; the returned function says that the engine has refused them. */
  read(model: string, tokens: number): () => void;
}

/** Hears of one answer, so quickly that it costs a token nothing. */
export interface AnswerWatch {
  event(event: TokenEvent): void;
  /** The engine has refused it: nothing has run. */
  refused(): void;
}
