import { ApiError } from "./errors.ts";

/** Bytes of a body up to which it needs no budget: the limit of connections bounds small bodies. */
const SMALL = 16 * 2 ** 10;
/** Maximum share of the budget for one sender. */
const SHARE = 0.5;
const RETRY_SECONDS = 2;

interface Wait {
  readonly sender: string;
  readonly bytes: number;
  readonly start: () => void;
}

/** The bytes that one body has taken from the budget. */
export interface BodyHold {
  /** Takes more bytes from the budget, before they are read. Throws ApiError if too few become free in time. */
  take(bytes: number): Promise<void>;
  /** Returns all bytes of the body to the budget. */
  release(): void;
}

/**
 * Bounds the memory of all request bodies that are arriving, in total and per sender. Otherwise bodies that never end
 * could fill the memory. A body waits up to `waitMs` for its bytes.
 */
export class BodyBudget {
  readonly #held = new Map<string, number>();
  #all = 0;
  /** Bodies that wait for bytes of the budget, in order of arrival. */
  readonly #waiting = new Set<Wait>();

  constructor(private readonly bytes: number, private readonly waitMs: number) {}

  /** Number of bytes of the bodies that are arriving now. */
  get held(): number {
    return this.#all;
  }

  /** Starts to count a body of a sender, which is a key's name or an address. */
  hold(sender: string): BodyHold {
    let [wanted, taken] = [0, 0];
    return {
      take: async (bytes) => {
        wanted += bytes;
        if (wanted <= SMALL) return;
        const more = wanted - taken;
        await this.#take(sender, more);
        taken += more;
      },
      release: () => {
        this.#change(sender, -taken);
        [wanted, taken] = [0, 0];
        this.#wake();
      },
    };
  }

  async #take(sender: string, bytes: number): Promise<void> {
    if (this.#fits(sender, bytes)) return this.#change(sender, bytes);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const wait: Wait = { sender, bytes, start: resolve };
    this.#waiting.add(wait);
    const timer = setTimeout(() => reject(this.#refusal(sender)), this.waitMs);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(wait);
    }
  }

  /** Admits the waiting bodies that now fit, and counts their bytes at once. */
  #wake(): void {
    for (const wait of this.#waiting) {
      if (!this.#fits(wait.sender, wait.bytes)) continue;
      this.#waiting.delete(wait);
      this.#change(wait.sender, wait.bytes);
      wait.start();
    }
  }

  #fits(sender: string, bytes: number): boolean {
    const own = this.#held.get(sender) ?? 0;
    return this.#all + bytes <= this.bytes && own + bytes <= SHARE * this.bytes;
  }

  #change(sender: string, bytes: number): void {
    const own = (this.#held.get(sender) ?? 0) + bytes;
    if (own > 0) this.#held.set(sender, own);
    else this.#held.delete(sender);
    this.#all += bytes;
  }

  #refusal(sender: string): ApiError {
    const own = this.#held.get(sender) ?? 0;
    const message =
      `Request bodies that are arriving hold ${this.#all} of ${this.bytes} bytes, ${own} of them from ` +
      `this sender, who may hold ${
        SHARE * this.bytes
      }; send fewer large requests at once, in ${RETRY_SECONDS} s`;
    return new ApiError(429, "too_many_transfers", message, {
      type: "rate_limit_error",
      headers: { "retry-after": String(RETRY_SECONDS), connection: "close" },
    });
  }
}
