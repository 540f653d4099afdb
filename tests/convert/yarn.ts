/** YaRN's keys in config.json. */
export interface YarnKeys {
  readonly factor: number;
  readonly original_max_position_embeddings: number;
  readonly beta_fast: number;
  readonly beta_slow: number;
}

/**
 * Returns the rotary frequencies of `size` dimensions, and the factor on cosine and sine. Source: "YaRN" (arXiv 2309.00071), sections 3.2 and 3.3, and
 * transformers' modeling_rope_utils.
 */
export function yarn(
  base: number,
  size: number,
  { factor, original_max_position_embeddings: original, beta_fast, beta_slow }: YarnKeys,
): { frequencies: number[]; magnitude: number } {
  const dimension = (turns: number) =>
    size * Math.log(original / (turns * 2 * Math.PI)) / (2 * Math.log(base));
  const low = Math.max(Math.floor(dimension(beta_fast)), 0);
  const high = Math.min(Math.ceil(dimension(beta_slow)), size - 1);
  const frequencies = Array.from({ length: size / 2 }, (_, i) => {
    const frequency = 1 / base ** (2 * i / size);
    const kept = 1 - Math.min(1, Math.max(0, (i - low) / (low === high ? 0.001 : high - low)));
    return frequency / factor * (1 - kept) + frequency * kept;
  });
  return { frequencies, magnitude: 0.1 * Math.log(factor) + 1 };
}
