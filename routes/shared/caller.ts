import { ApiError } from "./errors.ts";

/** What a key may use; without a bound, as much as the server has. */
export interface KeyLimits {
  /** Requests for answers that run or wait at the same time. */
  readonly requestsAtOnce?: number;
  /** Tokens of prompts and answers together. */
  readonly tokensPerMinute?: number;
}

/** Who sent a request. */
export interface Caller {
  /** The name of the key, for the log; undefined on a server without keys. */
  readonly name: string | undefined;
  /** Whose files and batches the request sees; the same after a restart. */
  readonly owner: string;
  /** Requests of different salts share no cached prompts; the same after a restart. */
  readonly cacheSalt: string | undefined;
  /** The only path that the key opens; undefined where it opens all. */
  readonly onlyPath: string | undefined;
  readonly allowance: Allowance;
}

/**
 * What is left of a key's limits. Tokens come back evenly, up to those of one minute. Nobody knows what an answer will cost, so
 * a request is let in while any are left, and what it takes too much the next ones wait for.
 */
export class Allowance {
  #limits: KeyLimits = {};
  #running = 0;
  /** Tokens left; undefined without a limit. */
  #tokens: number | undefined;
  #at = 0;

  constructor(private readonly name: string, limits: KeyLimits) {
    this.limits = limits;
  }

  /** New limits leave what is running and what was taken. */
  set limits(limits: KeyLimits) {
    const [before, now] = [this.#limits.tokensPerMinute, limits.tokensPerMinute];
    const spent = before === undefined ? 0 : before - this.#tokens!;
    this.#tokens = now === undefined ? undefined : now - spent;
    this.#limits = limits;
  }

  /**
   * Lets a request in; the returned function says that it has ended. Throws ApiError 429 that names the limit which is reached.
   * `now` is milliseconds of performance.now().
   */
  enter(now = performance.now()): () => void {
    const { requestsAtOnce, tokensPerMinute } = this.#limits;
    this.#refill(now);
    if (this.#running >= (requestsAtOnce ?? Infinity)) {
      const limit = requestsAtOnce === 1 ? "1 request" : `${requestsAtOnce} requests`;
      throw limited(`${this.name} has a limit of ${limit} at once, which is reached`, 1);
    }
    if (tokensPerMinute !== undefined && this.#tokens! <= 0) {
      const seconds = Math.floor(-this.#tokens! * 60 / tokensPerMinute) + 1;
      throw limited(
        `${this.name} has a limit of ${tokensPerMinute} tokens a minute, which is reached`,
        seconds,
      );
    }
    this.#running++;
    let left = false;
    return () => {
      if (!left) this.#running--;
      left = true;
    };
  }

  /** Takes tokens of a prompt or an answer. */
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

/** Of every request on a server without keys. */
export function anyone(): Caller {
  return {
    name: undefined,
    owner: "",
    cacheSalt: undefined,
    onlyPath: undefined,
    allowance: new Allowance("Everyone", {}),
  };
}
