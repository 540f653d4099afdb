import type { Tokenizer } from "../tokenizer/types.ts";
import type { SamplingParams } from "../api/sampling.ts";

/** Largest logarithm of a power that a 32-bit float can hold. */
const LARGEST_LOG = Math.log(3.4e38);

/**
 * DRY ("don't repeat yourself") sampling. A token that would extend a repetition loses multiplier * base^(n -
 * allowedLength) from its logit. Here n is the number of repeated tokens before it. A repetition does not cross a
 * breaker, for example a line break.
 */
export class Dry {
  readonly #sampling: SamplingParams;
  readonly #breakers: BreakerFinder;
  /** Number of tokens since the last DRY breaker. */
  #run = 0;

  constructor(
    sampling: SamplingParams,
    tokenizer: Tokenizer,
    prompt: readonly number[],
    breakers = new BreakerFinder(sampling.dryBreakers.map(bytesOf), tokenizer),
  ) {
    this.#sampling = sampling;
    this.#breakers = breakers;
    for (const token of prompt) this.push(token);
  }

  /** Returns a copy of the DRY state, advanced by `tokens`. */
  with(tokens: Int32Array): Dry {
    const dry = new Dry(this.#sampling, this.#breakers.tokenizer, [], this.#breakers.copy());
    dry.#run = this.#run;
    for (const token of tokens) dry.push(token);
    return dry;
  }

  /** Appends a token to the text. */
  push(token: number): void {
    this.#run = this.#breakers.endsWith(token) ? 0 : this.#run + 1;
  }

  /** Returns the logit penalty of each token that would extend a repetition after `text`. */
  penalties(text: Int32Array): Map<number, number> {
    const { dryMultiplier, dryBase, dryAllowedLength, dryLastN } = this.#sampling;
    const recent = dryLastN < 0 ? text : text.subarray(Math.max(0, text.length - dryLastN));
    const repeated = new Map<number, number>();
    const matches = suffixMatches(recent);
    for (let i = 1; i < recent.length; i++) {
      const length = Math.min(matches[i], this.#run);
      if (length < dryAllowedLength) continue;
      repeated.set(recent[i], Math.max(length, repeated.get(recent[i]) ?? 0));
    }
    for (const [token, length] of repeated) {
      const power = Math.min((length - dryAllowedLength) * Math.log(dryBase), LARGEST_LOG);
      repeated.set(token, Math.min(dryMultiplier * Math.exp(power), Number.MAX_SAFE_INTEGER));
    }
    return repeated;
  }
}

/**
 * Returns for each position the number of preceding tokens that equal the text's last tokens: the Z function of the
 * reversed text.
 */
function suffixMatches(text: Int32Array): Int32Array {
  const n = text.length;
  const matches = new Int32Array(n);
  const last = n - 1;
  // Range [from, to) in the reversed text: the match with the largest end; among equal ends, the first start.
  let from = 0;
  let to = 0;
  for (let i = 1; i < n; i++) {
    let length = i < to ? Math.min(to - i, matches[n - (i - from)]) : 0;
    while (i + length < n && text[last - length] === text[last - i - length]) length++;
    matches[n - i] = length;
    if (i + length > to) [from, to] = [i, i + length];
  }
  return matches;
}

/** Finds DRY breakers that end in the latest token, even if they began in earlier tokens. */
class BreakerFinder {
  readonly #breakers: readonly string[];
  readonly #longest: number;
  #tail: string;

  /** `breakers`, and the text's end in `tail`, have one byte per UTF-16 unit. */
  constructor(breakers: readonly string[], readonly tokenizer: Tokenizer, tail = "") {
    this.#breakers = breakers;
    this.#longest = Math.max(0, ...breakers.map(({ length }) => length));
    this.#tail = tail;
  }

  copy(): BreakerFinder {
    return new BreakerFinder(this.#breakers, this.tokenizer, this.#tail);
  }

  endsWith(token: number): boolean {
    const before = this.#tail.length;
    const joined = this.#tail + binary(this.tokenizer.bytes(token));
    this.#tail = joined.slice(Math.max(0, joined.length - this.#longest + 1));
    return this.#breakers.some((breaker) =>
      joined.indexOf(breaker, Math.max(0, before - breaker.length + 1)) >= 0
    );
  }
}

function bytesOf(text: string): string {
  return binary(new TextEncoder().encode(text));
}

/** Returns a string with one byte per UTF-16 unit. */
function binary(bytes: Uint8Array): string {
  return String.fromCharCode(...bytes);
}
