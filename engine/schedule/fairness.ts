import { awaitsDisk, isSlow } from "./step_part.ts";
import type { Sequence } from "./sequence.ts";

/** Cost of a prompt token and of an answer token, as in "Fairness in Serving Large Language Models" (OSDI 2024). */
const PROMPT_COST = 1;
const ANSWER_COST = 2;
/**
 * A sequence keeps its place and memory until its tenant was served this much more than a waiting tenant that runs
 * no sequence, and until the sequence has answered as much since its admission. So every exchange follows progress.
 */
const SLICE = 256;

interface Tenant {
  /** Cost of the tenant's computed tokens, divided by its weight. */
  served: number;
  weight: number;
  /** The tenant's waiting and running sequences, each with the number of tokens already charged. */
  readonly counted: Map<Sequence, number>;
}

/**
 * Shares an engine among tenants by virtual token counters: the tenant that was served least comes first. Sequences
 * with equal salt belong to one tenant. After a pause, a tenant starts at the lowest count of the active tenants, so
 * that a pause gives no advantage.
 */
export class Fairness {
  readonly #tenants = new Map<string, Tenant>();

  constructor(private readonly slice = SLICE) {}

  /** Counts a sequence that waits from now on. */
  enter(sequence: Sequence): void {
    const { salt, weight } = sequence;
    let tenant = this.#tenants.get(salt);
    if (!tenant || tenant.counted.size === 0) {
      const active = [...this.#tenants.values()].filter(({ counted }) => counted.size > 0);
      const least = active.length > 0 ? Math.min(...active.map(({ served }) => served)) : Infinity;
      for (const [other, { served, counted }] of this.#tenants) {
        if (counted.size === 0 && served <= least) this.#tenants.delete(other);
      }
      tenant = this.#tenants.get(salt) ??
        { served: active.length > 0 ? least : 0, weight, counted: new Map() };
      this.#tenants.set(salt, tenant);
    }
    tenant.weight = weight;
    tenant.counted.set(sequence, 0);
  }

  /** Removes a sequence that has ended. */
  leave(sequence: Sequence): void {
    this.#tenants.get(sequence.salt)?.counted.delete(sequence);
  }

  /** Charges the tenant for the sequence's last `rows` cached tokens. Tokens that are computed again cost nothing. */
  charge(sequence: Sequence, rows: number): void {
    const tenant = this.#tenants.get(sequence.salt);
    const counted = tenant?.counted.get(sequence);
    if (tenant === undefined || counted === undefined) return;
    const { kv: { cached }, promptLength } = sequence;
    const first = Math.max(counted, cached - rows);
    if (first >= cached) return;
    const answer = Math.max(0, cached - Math.max(first, promptLength));
    tenant.served += (PROMPT_COST * (cached - first - answer) + ANSWER_COST * answer) / tenant.weight;
    tenant.counted.set(sequence, cached);
  }

  /**
   * Returns the sequences ordered by service: those of the least-served tenant come first. Sequences of one tenant keep
   * their order.
   */
  byService(sequences: readonly Sequence[]): Sequence[] {
    return sequences.toSorted((a, b) => this.#served(a) - this.#served(b));
  }

  /**
   * Returns the order of admission: the tenant that was served least, its request with the fewest running sequences,
   * and then the earliest sequence.
   */
  order(waiting: readonly Sequence[], running: readonly Sequence[]): Sequence[] {
    const ofRequest = counts(running, ({ request }) => request);
    const byRequest = (a: Sequence, b: Sequence) =>
      (ofRequest.get(a.request) ?? 0) - (ofRequest.get(b.request) ?? 0);
    return this.byService(waiting.toSorted(byRequest));
  }

  /**
   * Returns the first running sequence that may be preempted so that `sequence` gets a place; undefined if no
   * sequence may. After the exchange, the preempted sequence's tenant still runs at least as many sequences, relative to
   * its weight, as the tenant of `sequence`. Within one tenant, the same rule compares the two requests. If the tenant of
   * `sequence` runs nothing, a sequence that has run long may be preempted too.
   */
  yielding(sequence: Sequence, running: readonly Sequence[]): Sequence | undefined {
    const answers = running.filter(isAnswer);
    const ofTenant = counts(answers, ({ salt }) => salt);
    const ofRequest = counts(answers, ({ request }) => request);
    const own = ofTenant.get(sequence.salt) ?? 0;
    const ownRequest = ofRequest.get(sequence.request) ?? 0;
    return answers.filter(mayYield).find((other) => {
      if (other.salt === sequence.salt) {
        return other.request !== sequence.request && ofRequest.get(other.request)! - 1 > ownRequest;
      }
      return (ofTenant.get(other.salt)! - 1) * sequence.weight >= (own + 1) * other.weight ||
        own === 0 && this.#ranLong(other, sequence);
    });
  }

  /** Returns the running sequences that may be preempted so that `sequence` gets memory. None if its tenant runs any. */
  ranLong(sequence: Sequence, running: readonly Sequence[]): Sequence[] {
    if (running.some(({ salt }) => salt === sequence.salt)) return [];
    return running.filter((other) => isAnswer(other) && mayYield(other) && this.#ranLong(other, sequence));
  }

  /**
   * Returns the running sequence that is preempted for memory: the latest sequence of the tenant that was served most.
   * Of several running sequences, the earliest is never preempted.
   */
  last(running: readonly Sequence[]): Sequence {
    return this.byService(running.slice(1)).at(-1) ?? running[0];
  }

  /**
   * Whether `running` has answered for a slice, and its tenant was served so much more than that of `waiting` that the
   * difference exceeds the cost of computing the tokens of `running` again.
   */
  #ranLong(running: Sequence, waiting: Sequence): boolean {
    if (ANSWER_COST * (running.length - running.admission.length) < this.slice) return false;
    const slice = Math.max(this.slice, running.length) / running.weight;
    return this.#served(running) - this.#served(waiting) >= slice;
  }

  #served({ salt }: Sequence): number {
    return this.#tenants.get(salt)?.served ?? 0;
  }
}

function isAnswer({ pooled }: Sequence): boolean {
  return pooled === undefined;
}

/** A sequence that waits for the disk has not run yet. After a preemption it would return without any progress. */
function mayYield(sequence: Sequence): boolean {
  return !isSlow(sequence) && !awaitsDisk(sequence);
}

function counts<K>(sequences: readonly Sequence[], keyOf: (sequence: Sequence) => K): Map<K, number> {
  const all = new Map<K, number>();
  for (const sequence of sequences) {
    const key = keyOf(sequence);
    all.set(key, (all.get(key) ?? 0) + 1);
  }
  return all;
}
