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
const AT_ONCE = Math.max(4, navigator.hardwareConcurrency);
/** Maximum compilers of one tenant, and of all batches together: the rest stays free for other tenants and requests. */
const OF_TENANT = AT_ONCE - 1;
const OF_BATCHES = AT_ONCE - 2;
/** Maximum waiting requests of one tenant, and the maximum time that a request waits. */
const MOST_WAITING = 64;
const WAIT_MS = 10_000;
/** Pause before the next attempt when the library is busy: too many of its compilers have exceeded their time. */
const PAUSE_MS = 50;

/** Runs compilers so that no tenant waits for the expensive constraints of another. */
export class Compilers {
  readonly #running = new Set<Asker>();
  readonly #waiting = new Set<Waiting>();
  /** Running askers whose last attempt failed because the library was busy. */
  readonly #stalled = new Set<Asker>();
  /** Milliseconds of compile time by tenant. Tenants without running or waiting constraints are removed. */
  readonly #used = new Map<string, number>();

  constructor(private readonly waitMs = WAIT_MS) {}

  /**
   * Runs `compile` when it is the asker's turn. While the library is busy, tries again; the tenant with the least
   * compile time tries first. `isBusy` recognizes the library's error. Throws CompilersBusy if a request that is not
   * of a batch waits too long, or if too many requests of its tenant wait.
   */
  async run<T>(asker: Asker, compile: () => Promise<T>, isBusy: (error: unknown) => boolean): Promise<T> {
    const until = asker.batch ? Infinity : performance.now() + this.waitMs;
    const turn = { ...asker };
    await this.#turn(turn, until);
    const start = performance.now();
    try {
      for (;;) {
        if (![...this.#stalled].some((other) => this.#compare(other, turn) < 0)) {
          try {
            return await compile();
          } catch (error) {
            if (!isBusy(error)) throw error;
            this.#stalled.add(turn);
          }
        }
        if (performance.now() > until) throw new CompilersBusy();
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    } finally {
      this.#stalled.delete(turn);
      this.#ended(turn, performance.now() - start);
    }
  }

  /** Resolves when the asker may compile. From then on the asker counts as running. */
  async #turn(asker: Asker, until: number): Promise<void> {
    if (this.#mayStart(asker)) return void this.#running.add(asker);
    const others = [...this.#waiting].filter((other) =>
      other.asker.tenant === asker.tenant && !other.asker.batch
    );
    if (!asker.batch && others.length >= MOST_WAITING) throw new CompilersBusy();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiting = { asker, start: resolve };
    this.#waiting.add(waiting);
    const timer = Number.isFinite(until)
      ? setTimeout(() => reject(new CompilersBusy()), Math.max(0, until - performance.now()))
      : undefined;
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
    const running = [...this.#running];
    const ofTenant = running.filter((other) => other.tenant === tenant).length;
    const ofBatches = running.filter((other) => other.batch).length;
    return running.length < AT_ONCE && ofTenant < OF_TENANT && !(batch && ofBatches >= OF_BATCHES);
  }
}

/** The compilers of all models in this process. */
export const compilers = new Compilers();
