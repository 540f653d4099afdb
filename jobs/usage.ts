/** Tokens of one answer. */
export interface TokenCounts {
  /** Of the prompt, with those that were cached. */
  readonly prompt: number;
  /** Of the prompt, found in the prefix cache. */
  readonly cached: number;
  readonly output: number;
  /** Of the output, those of thinking. */
  readonly reasoning: number;
}

/**
 * What an answer says of its tokens, in the shape of any endpoint: mostly in its `usage`, llama-server's endpoints in itself. Messages
 * counts cached tokens beside `input_tokens`, the others count them among their prompt's; it calls thinking what they call reasoning.
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

/** Counts are u32 in the journal. */
function count(value: unknown): number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 32
    ? value as number
    : 0;
}
