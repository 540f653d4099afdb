import type { Grammars, Matcher } from "./grammar/types.ts";
import type { Scheduled } from "./scheduler.ts";
import type { Sequence } from "./sequence.ts";

/** Longer than any limit on a grammar's work; who waits for a mask that does not come waits no longer. */
const MASK_TIMEOUT_MS = 30_000;

/** What came of a sequence's mask. */
export type MaskResult = "allows" | "nothing follows" | { readonly failure: string };

/**
 * The masks of one step's sequences, computed while the backend computes. Whatever becomes of one, the step gets a mask that
 * lets it end; `resultOf` says then what is to become of the sequence.
 */
export class StepMasks {
  readonly #masks = new Map<Sequence, Promise<Uint32Array>>();
  readonly #results = new Map<Sequence, MaskResult>();
  readonly #ends: ReadonlySet<number>;

  constructor(
    grammars: Grammars,
    step: readonly Scheduled[],
    vocabSize: number,
    ends: ReadonlySet<number>,
    timeoutMs = MASK_TIMEOUT_MS,
  ) {
    this.#ends = ends;
    const sequences = step.flatMap(({ sequence, samples }) => {
      return samples && sequence.form?.constrained ? [sequence] : [];
    });
    if (sequences.length === 0) return;
    const inTime = within(lendAll(grammars, sequences), timeoutMs);
    const whole = new Uint32Array(Math.ceil(vocabSize / 32)).fill(0xffffffff);
    for (const [i, sequence] of sequences.entries()) {
      const mask = inTime.then((masks) => this.#use(sequence, masks[i])).catch((error) => {
        this.#results.set(sequence, { failure: error instanceof Error ? error.message : String(error) });
      });
      this.#masks.set(sequence, mask.then((mask) => mask ?? whole));
    }
  }

  /** Undefined where the sequence has no constraint or samples nothing. */
  get(sequence: Sequence): Promise<Uint32Array> | undefined {
    return this.#masks.get(sequence);
  }

  /** Once the step has been computed. */
  resultOf(sequence: Sequence): MaskResult {
    return this.#results.get(sequence) ?? "allows";
  }

  /** The mask for the step; undefined where it allows nothing. */
  #use(sequence: Sequence, mask: Uint32Array): Uint32Array | undefined {
    const rest = sequence.ignoreEos ? without(mask, this.#ends) : mask;
    if (!isEmpty(rest)) return rest;
    this.#results.set(
      sequence,
      isEmpty(mask)
        ? { failure: sequence.form?.failure ?? "its constraint lets nothing follow" }
        : "nothing follows",
    );
  }
}

/** Lends the sequences' matchers to the grammars until all their masks are computed. What throws at once is a rejection too. */
function lendAll(grammars: Grammars, sequences: readonly Sequence[]): Promise<Uint32Array[]> {
  const matchers: Matcher[] = [];
  const { promise, resolve } = Promise.withResolvers<Uint32Array[]>();
  for (const { form } of sequences) {
    form!.lend((matcher) => {
      matchers.push(matcher);
      return promise;
    });
  }
  resolve((async () => await grammars.masks(matchers))());
  return promise;
}

function within<T>(promise: Promise<T>, ms: number): Promise<T> {
  const late = Promise.withResolvers<T>();
  const timer = setTimeout(() => late.reject(new Error(`no mask was computed within ${ms / 1000} s`)), ms);
  promise.then(late.resolve, late.reject).finally(() => clearTimeout(timer));
  return late.promise;
}

function isEmpty(mask: Uint32Array): boolean {
  return mask.every((word) => word === 0);
}

function without(mask: Uint32Array, tokens: Iterable<number>): Uint32Array {
  const rest = mask.slice();
  for (const token of tokens) rest[token >> 5] &= ~(1 << (token & 31));
  return rest;
}
