export interface TokenLogprob {
  readonly token: number;
  readonly logprob: number;
}

export interface Usage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** Number of prompt tokens found in the KV cache. */
  readonly cachedTokens: number;
  /** Only for batch requests with `maxTokens` 0, if prompts are stored on a disk. */
  readonly stored?: StoredPrompt;
  /** Only for requests with `thinking`: completion tokens inside thinking, without its marks. */
  readonly thinkingTokens?: number;
  /** Only for requests with drafts: counts of correct and wrong draft tokens. */
  readonly drafts?: DraftCounts;
}

/** Counts of draft tokens. */
export interface DraftCounts {
  readonly accepted: number;
  readonly rejected: number;
}

/** A prompt that is stored durably on the disk. */
export interface StoredPrompt {
  /** Number of its tokens that a later request with this prefix need not compute. */
  readonly tokens: number;
  /** Identifies the model and its computation: engines with equal ids find each other's prompts. */
  readonly cache: string;
}

export type FinishReason = "stop" | "length" | "cancelled";

/**
 * An event of a request. They come in this order: progress (of a long prompt, or of one whose beginning was
 * in the KV cache), the prompt's own log-probabilities if requested, tokens, and exactly one finish.
 */
export type TokenEvent =
  | { type: "progress"; processed: number; total: number; cached: number; timeMs: number }
  | { type: "prompt"; logprobs: { token: number; logprob: number | null; top: TokenLogprob[] }[] }
  | {
    type: "token";
    token: number;
    /** Text that is now certain; empty while bytes or a possible stop string are held back. */
    text: string;
    logprob?: number;
    top?: TokenLogprob[];
    /** The token is one of the request's markers, so its text is empty. */
    marker?: true;
  }
  /** Text that was held back before a marker, which comes next. A stop text never spans the marker. */
  | { type: "text"; text: string }
  | {
    type: "finish";
    reason: FinishReason;
    /** The stop text that ended the answer. The constraint may still be incomplete (`length`). */
    stop?: string;
    /** Text that was still held back. */
    text: string;
    usage: Usage;
    timings: { queueMs: number; prefillMs: number; decodeMs: number };
  };
