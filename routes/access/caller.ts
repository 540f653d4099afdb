import { ApiError } from "../core/errors.ts";

/** Limits of an API key; a missing limit means unlimited. */
export interface KeyLimits {
  /** Maximum requests for answers that run or wait at the same time. */
  readonly requestsAtOnce?: number;
  /** Maximum prompt and answer tokens per minute together. */
  readonly tokensPerMinute?: number;
}

/**
 * Tokens that a millisecond of work outside the model costs a key. Tokenizing 100,000 tokens takes about 50 ms and
 * costs 500 further tokens. A key with 100,000 tokens a minute can use a sixth of this shared time.
 */
const TOKENS_PER_MS = 10;

/** The sender of a request. */
export interface Caller {
  /** Name of the API key, for the log; undefined on a server without keys. */
  readonly name: string | undefined;
  /** Owner of the files and batches that the request can see; stable across restarts. */
  readonly owner: string;
  /** Salt of the prompt cache: requests with different salts share no cached prompts. Stable across restarts. */
  readonly cacheSalt: string | undefined;
  /** The caller's share of the engine relative to other callers'. */
  readonly weight: number;
  /** The only path that the key may use; undefined: all paths. */
  readonly onlyPath: string | undefined;
  /** Whether the key may download models, if the server allows downloads. */
  readonly mayPull: boolean;
  readonly allowance: Allowance;
}

/**
 * The remaining allowance of an API key. Tokens refill evenly, up to the amount of one minute. The cost of an answer is
 * not known in advance, so a request is admitted while any tokens are left. If it overdraws them, later requests wait.
 */
export class Allowance {
  #limits: KeyLimits = {};
  #running = 0;
  /** Remaining tokens of the key; undefined without a limit. */
  #tokens: number | undefined;
  #at = 0;

  constructor(private readonly name: string, limits: KeyLimits) {
    this.limits = limits;
  }

  /** Changes the limits. Running requests and used tokens still count. */
  set limits(limits: KeyLimits) {
    const [before, now] = [this.#limits.tokensPerMinute, limits.tokensPerMinute];
    const spent = before === undefined ? 0 : before - this.#tokens!;
    this.#tokens = now === undefined ? undefined : now - spent;
    this.#limits = limits;
  }

  /**
   * Admits a request; call the returned function when it has ended. Throws ApiError 429 that names the reached limit.
   * `now` is in milliseconds of performance.now().
   */
  enter(now = performance.now()): () => void {
    const { requestsAtOnce } = this.#limits;
    if (this.#running >= (requestsAtOnce ?? Infinity)) {
      const limit = requestsAtOnce === 1 ? "1 request" : `${requestsAtOnce} requests`;
      throw limited(`${this.name} has a limit of ${limit} at once and has reached it`, 1);
    }
    this.check(now);
    this.#running++;
    let left = false;
    return () => {
      if (!left) this.#running--;
      left = true;
    };
  }

  /** Throws ApiError 429 while the key has no tokens left. */
  check(now = performance.now()): void {
    const { tokensPerMinute } = this.#limits;
    this.#refill(now);
    if (tokensPerMinute === undefined || this.#tokens! > 0) return;
    const seconds = Math.floor(-this.#tokens! * 60 / tokensPerMinute) + 1;
    throw limited(
      `${this.name} has a limit of ${tokensPerMinute} tokens a minute and has reached it`,
      seconds,
    );
  }

  /** Charges the key tokens for long work on a request outside the model. */
  work(ms: number): void {
    this.take(ms * TOKENS_PER_MS);
  }

  /** Charges the key for tokens of a prompt or an answer. */
  take(tokens: number): void {
    if (this.#tokens !== undefined) this.#tokens -= tokens;
  }

  #refill(now: number): void {
    const { tokensPerMinute } = this.#limits;
    if (tokensPerMinute !== undefined) {
      const back = (now - this.#at) * tokensPerMinute / 60_000;
      this.#tokens = Math.min(this.#tokens! + back, tokensPerMinute);
    }
    this.#at = now;
  }
}

function limited(what: string, seconds: number): ApiError {
  return new ApiError(429, "rate_limit_exceeded", `${what}; send the request again in ${seconds} s`, {
    type: "rate_limit_error",
    headers: { "retry-after": String(seconds) },
  });
}

/** Returns the caller of every request on a server without keys. */
export function anyone(): Caller {
  return {
    name: undefined,
    owner: "",
    cacheSalt: undefined,
    weight: 1,
    onlyPath: undefined,
    mayPull: true,
    allowance: new Allowance("Everyone", {}),
  };
}
