import type { Tokenizer } from "./tokenizer/types.ts";
import type { SamplingParams } from "./types.ts";

/** Powers beyond this are no numbers of 32 bits any more. */
const LARGEST_LOG = Math.log(3.4e38);

/**
 * DRY ("don't repeat yourself"): a token that would go on repeating what the text has said before loses
 * multiplier * base^(n - allowedLength) of its logit, where n is how many tokens before it are repeated already. A repetition
 * does not reach across a breaker, such as a line's end.
 */
export class Dry {
  readonly #sampling: SamplingParams;
  readonly #breakers: BreakerFinder;
  /** Tokens after the last breaker. */
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

  /** As it would be with these tokens behind the text. */
  with(tokens: Int32Array): Dry {
    const dry = new Dry(this.#sampling, this.#breakers.tokenizer, [], this.#breakers.copy());
    dry.#run = this.#run;
    for (const token of tokens) dry.push(token);
    return dry;
  }

  /** Takes the text's next token. */
  push(token: number): void {
    this.#run = this.#breakers.endsWith(token) ? 0 : this.#run + 1;
  }

  /** What tokens lose after the text so far. */
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

/** For each place how many tokens before it are the same as at the text's end: the Z function of the reversed text. */
function suffixMatches(text: Int32Array): Int32Array {
  const n = text.length;
  const matches = new Int32Array(n);
  const last = n - 1;
  // [from, to) is the match that begins nearest to the end among those that reach furthest to the front, both reversed.
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

/** Tells for token after token whether a breaker ends in it, also one that began in tokens before. */
class BreakerFinder {
  readonly #breakers: readonly string[];
  readonly #longest: number;
  #tail: string;

  /** `breakers` and `tail`, the end of the text so far, have one UTF-16 unit a byte. */
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

/** One UTF-16 unit a byte. */
function binary(bytes: Uint8Array): string {
  return String.fromCharCode(...bytes);
}
