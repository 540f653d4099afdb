/** Shares slow work on other threads among tenants, in this process. */

/** The sender of work, which decides when the work starts. */
export interface Asker {
  /** The tenant that sent the request. The time of work is shared evenly among tenants. */
  readonly tenant: string;
  /** Whether the work belongs to a batch line, which waits for other requests and is never refused. */
  readonly batch: boolean;
}

export interface TurnLimits {
  /** Maximum number of works that run at a time. */
  readonly atOnce: number;
  /** Maximum works of one tenant's batches, and of its other requests. */
  readonly ofTenant: number;
  /** The first work of a tenant's batches or of its other requests starts if fewer than this run. */
  readonly firstAmong: number;
  /** Maximum wait of interactive work, and the error when it is exceeded. Without it, work waits as long as needed. */
  readonly patience?: { readonly ms: number; readonly refusal: () => Error };
}

/** Maximum waiting works of one tenant whose patience has a limit. */
const MOST_WAITING = 64;

interface Waiting {
  readonly asker: Asker;
  readonly start: () => void;
}

/** Starts works in turns, so that no tenant waits for the slow works of another. */
export class FairTurns {
  readonly #running = new Set<Asker>();
  readonly #waiting = new Set<Waiting>();
  /** Milliseconds of work by tenant. Tenants without running or waiting works are removed. */
  readonly #used = new Map<string, number>();

  constructor(private readonly limits: TurnLimits) {}

  /**
   * Runs `work` when it is the asker's turn: the tenant with the least time of work comes first. `hold` keeps the
   * place of a work that still runs after its refusal, until the promise resolves. Throws the refusal if the work waits
   * too long, or if too many works of its tenant wait. `signal` ends the wait.
   */
  async run<T>(
    asker: Asker,
    work: (hold: (until: Promise<void>) => void) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T> {
    const turn = { ...asker };
    await this.#turn(turn, signal);
    const start = performance.now();
    let held: Promise<void> | undefined;
    try {
      return await work((until) => held = until);
    } finally {
      const end = () => this.#ended(turn, performance.now() - start);
      if (held) held.then(end);
      else end();
    }
  }

  /** Resolves when the asker's work may start. From then on the asker counts as running. */
  async #turn(asker: Asker, signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    if (this.#mayStart(asker)) return void this.#running.add(asker);
    const patience = asker.batch ? undefined : this.limits.patience;
    const others = [...this.#waiting].filter((other) =>
      other.asker.tenant === asker.tenant && !other.asker.batch
    );
    if (patience && others.length >= MOST_WAITING) throw patience.refusal();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiting = { asker, start: resolve };
    this.#waiting.add(waiting);
    const timer = patience && setTimeout(() => reject(patience.refusal()), patience.ms);
    const leave = () => {
      this.#waiting.delete(waiting); // at once, so that the work does not start
      reject(signal!.reason);
    };
    signal?.addEventListener("abort", leave, { once: true });
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", leave);
      this.#waiting.delete(waiting);
    }
  }

  #ended(asker: Asker, ms: number): void {
    this.#running.delete(asker);
    const { tenant } = asker;
    this.#used.set(tenant, (this.#used.get(tenant) ?? 0) + ms);
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      this.#waiting.delete(next);
      this.#running.add(next.asker);
      next.start();
    }
    const active = new Set(
      [...this.#running, ...[...this.#waiting].map((other) => other.asker)].map(({ tenant }) => tenant),
    );
    for (const other of this.#used.keys()) if (!active.has(other)) this.#used.delete(other);
  }

  /** Returns the most urgent waiting asker that may start; of equally urgent askers, the earliest. */
  #next(): Waiting | undefined {
    return [...this.#waiting].filter(({ asker }) => this.#mayStart(asker))
      .toSorted((one, other) => this.#compare(one.asker, other.asker))[0];
  }

  /** Compares by urgency: batches come last, and the tenant with the least time of work comes first. */
  #compare(one: Asker, other: Asker): number {
    const used = ({ tenant }: Asker) => this.#used.get(tenant) ?? 0;
    return Number(one.batch) - Number(other.batch) || used(one) - used(other);
  }

  #mayStart({ tenant, batch }: Asker): boolean {
    const { atOnce, ofTenant, firstAmong } = this.limits;
    const running = this.#running.size;
    const own = [...this.#running].filter((other) => other.tenant === tenant && other.batch === batch).length;
    return own === 0 ? running < firstAmong : own < ofTenant && running < atOnce;
  }
}
