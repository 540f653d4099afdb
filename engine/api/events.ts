export interface TokenLogprob {
  readonly token: number;
  readonly logprob: number;
}

export interface Usage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** Number of prompt tokens found in the KV cache. */
  readonly cachedTokens: number;
  /** Set for batch requests with `maxTokens` 0, if prompts are stored on a disk. */
  readonly stored?: StoredPrompt;
  /** Completion tokens inside thinking, without its marks; only for requests with `thinking`. */
  readonly thinkingTokens?: number;
  /** Counts of correct and wrong draft tokens; only for requests that used drafts. */
  readonly drafts?: DraftCounts;
}

/** Counts of draft tokens. */
export interface DraftCounts {
  readonly accepted: number;
  readonly rejected: number;
}

/** A prompt that is stored durably on the disk. */
export interface StoredPrompt {
  /** Number of prompt tokens that a later request with this prefix need not compute. */
  readonly tokens: number;
  /** Identifies the model and its computation: engines with equal ids find each other's prompts. */
  readonly cache: string;
}

export type FinishReason = "stop" | "length" | "cancelled";

/**
 * An event of a request. The order is: progress, log-probabilities of the prompt if requested, tokens, exactly one
 * finish. Progress events come for a long prompt, or if the KV cache had its beginning.
 */
export type TokenEvent =
  | { type: "progress"; processed: number; total: number; cached: number; timeMs: number }
  | { type: "prompt"; logprobs: { token: number; logprob: number | null; top: TokenLogprob[] }[] }
  | {
    type: "token";
    token: number;
    /** Text that is now final; empty while the engine holds back bytes or a possible stop text. */
    text: string;
    logprob?: number;
    top?: TokenLogprob[];
    /** The token is one of the request's markers, so its text is empty. */
    marker?: true;
  }
  /** Text that was held back before a marker; the marker's event follows. A stop text never spans a marker. */
  | { type: "text"; text: string }
  | {
    type: "finish";
    reason: FinishReason;
    /** The stop text that ended the answer. The answer may not complete its constraint then (`length`). */
    stop?: string;
    /** Text that was held back until the answer ended. */
    text: string;
    usage: Usage;
    timings: { queueMs: number; prefillMs: number; decodeMs: number };
  };
