/** Token counts of one answer. */
export interface TokenCounts {
  /** Prompt tokens, including cached ones. */
  readonly prompt: number;
  /** Prompt tokens found in the prefix cache. */
  readonly cached: number;
  readonly output: number;
  /** Output tokens that were reasoning. */
  readonly reasoning: number;
}

/**
 * Returns the token counts that an answer reports, for every endpoint. Most report them in `usage`, llama-server's
 * endpoints at the top level. Messages counts cached tokens separately from `input_tokens`, the others include them in
 * the prompt; its "thinking" tokens are the others' "reasoning" tokens.
 */
export function tokenCounts(body: unknown): TokenCounts {
  const answer = record(body);
  if (answer.usage === undefined && answer.tokens_evaluated !== undefined) {
    return {
      prompt: count(answer.tokens_evaluated),
      cached: count(answer.tokens_cached),
      output: count(answer.tokens_predicted),
      reasoning: 0,
    };
  }
  const counts = record(answer.usage);
  const beside = count(counts.cache_read_input_tokens);
  const details = record(counts.prompt_tokens_details ?? counts.input_tokens_details);
  const written = record(counts.completion_tokens_details ?? counts.output_tokens_details);
  const prompt = count(counts.prompt_tokens ?? counts.input_tokens);
  return {
    prompt: prompt + beside + count(counts.cache_creation_input_tokens),
    cached: beside + count(details.cached_tokens),
    output: count(counts.completion_tokens ?? counts.output_tokens),
    reasoning: count(written.reasoning_tokens ?? written.thinking_tokens),
  };
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? value as Record<string, unknown> : {};
}

/** Returns a valid count, else 0, because the journal stores counts as u32. */
function count(value: unknown): number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 32
    ? value as number
    : 0;
}
