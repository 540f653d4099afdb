import type { GenerateRequest, TokenEvent } from "../../engine/mod.ts";

/** Counts a request for the caller's limits, the metrics and the log. */
export interface Account {
  /** Admits a request; call the returned function when it has ended. Throws ApiError when a limit is reached. */
  enter(): () => void;
  /** Records that the request was refused or failed with this code. */
  failed(code: string): void;
  /** Starts to count one answer. Several answers to one prompt must pass the same prompt array. */
  watch(model: string, request: Pick<GenerateRequest, "prompt">): AnswerWatch;
  /** Counts prompt tokens of a request without an answer. Call the returned function if the engine refuses it. */
  read(model: string, tokens: number): () => void;
}

/** Counts one answer. Its methods must be fast, because they are called at every token. */
export interface AnswerWatch {
  event(event: TokenEvent): void;
  /** Records that the engine refused the request, so that nothing has run. */
  refused(): void;
}
