/** Shares the CPU among the constraints that are being compiled, in this process. */

import { type Asker, CompilersBusy } from "./types.ts";

interface Waiting {
  readonly asker: Asker;
  readonly start: () => void;
}

/**
 * Maximum number of compilers that run at a time. Each has a limit of CPU time, so there may be more compilers than
 * cores.
 */
const AT_ONCE = Math.max(8, navigator.hardwareConcurrency);
/** Maximum compilers of one tenant's batches, and of its other requests. */
const OF_TENANT = AT_ONCE / 4;
/** The first compiler of a tenant's batches or of its other requests starts if fewer than this run. */
const FIRST_AMONG = 2 * AT_ONCE;
/** Maximum waiting requests of one tenant, and the maximum time that a request waits. */
const MOST_WAITING = 64;
const WAIT_MS = 10_000;

/** Runs compilers so that no tenant waits for the expensive constraints of another. */
export class Compilers {
  readonly #running = new Set<Asker>();
  readonly #waiting = new Set<Waiting>();
  /** Milliseconds of compile time by tenant. Tenants without running or waiting constraints are removed. */
  readonly #used = new Map<string, number>();

  constructor(private readonly waitMs = WAIT_MS) {}

  /**
   * Runs `compile` when it is the asker's turn: the tenant with the least compile time comes first. `hold` keeps the
   * place of a compiler that still runs after its refusal, until the promise resolves. Throws CompilersBusy if a request
   * that is not of a batch waits too long, or if too many requests of its tenant wait.
   */
  async run<T>(asker: Asker, compile: (hold: (until: Promise<void>) => void) => Promise<T>): Promise<T> {
    const turn = { ...asker };
    await this.#turn(turn);
    const start = performance.now();
    let held: Promise<void> | undefined;
    try {
      return await compile((until) => held = until);
    } finally {
      const end = () => this.#ended(turn, performance.now() - start);
      if (held) held.then(end);
      else end();
    }
  }

  /** Resolves when the asker may compile. From then on the asker counts as running. */
  async #turn(asker: Asker): Promise<void> {
    if (this.#mayStart(asker)) return void this.#running.add(asker);
    const others = [...this.#waiting].filter((other) =>
      other.asker.tenant === asker.tenant && !other.asker.batch
    );
    if (!asker.batch && others.length >= MOST_WAITING) throw new CompilersBusy();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiting = { asker, start: resolve };
    this.#waiting.add(waiting);
    const timer = asker.batch ? undefined : setTimeout(() => reject(new CompilersBusy()), this.waitMs);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
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

  /** Compares by urgency: batches come last, and the tenant with the least compile time comes first. */
  #compare(one: Asker, other: Asker): number {
    const used = ({ tenant }: Asker) => this.#used.get(tenant) ?? 0;
    return Number(one.batch) - Number(other.batch) || used(one) - used(other);
  }

  #mayStart({ tenant, batch }: Asker): boolean {
    const running = this.#running.size;
    const own = [...this.#running].filter((other) => other.tenant === tenant && other.batch === batch).length;
    return own === 0 ? running < FIRST_AMONG : own < OF_TENANT && running < AT_ONCE;
  }
}

/** The compilers of all models in this process. */
export const compilers = new Compilers();
