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

  constructor(grammars: Grammars, step: readonly Scheduled[], vocabSize: number, ends: ReadonlySet<number>) {
    const sequences = step.filter(({ sequence, samples }) => samples && sequence.form?.constrained)
      .map(({ sequence }) => sequence);
    if (sequences.length === 0) return;
    const matchers: Matcher[] = [];
    const all = Promise.withResolvers<Uint32Array[]>();
    for (const { form } of sequences) form!.lend((matcher) => (matchers.push(matcher), all.promise));
    computed(grammars, matchers).then(all.resolve, all.reject);
    const inTime = within(all.promise, MASK_TIMEOUT_MS);
    const whole = new Uint32Array(Math.ceil(vocabSize / 32)).fill(0xffffffff);
    for (const [i, sequence] of sequences.entries()) {
      const use = (masks: Uint32Array[]): Uint32Array => {
        const mask = sequence.ignoreEos ? without(masks[i], ends) : masks[i];
        const allows = mask.some((word) => word !== 0);
        const ended = !allows && masks[i].some((word) => word !== 0);
        this.#results.set(
          sequence,
          allows ? "allows" : ended ? "nothing follows" : { failure: "its constraint lets nothing follow" },
        );
        return allows ? mask : whole;
      };
      const fail = (error: unknown): Uint32Array => {
        this.#results.set(sequence, { failure: error instanceof Error ? error.message : String(error) });
        return whole;
      };
      this.#masks.set(sequence, inTime.then(use).catch(fail));
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
}

/** What throws at once is a rejection too. */
async function computed(grammars: Grammars, matchers: readonly Matcher[]): Promise<Uint32Array[]> {
  return await grammars.masks(matchers);
}

function within<T>(promise: Promise<T>, ms: number): Promise<T> {
  const late = Promise.withResolvers<T>();
  const timer = setTimeout(() => late.reject(new Error(`no mask was computed within ${ms / 1000} s`)), ms);
  promise.then(late.resolve, late.reject).finally(() => clearTimeout(timer));
  return late.promise;
}

function without(mask: Uint32Array, tokens: Iterable<number>): Uint32Array {
  const rest = mask.slice();
  for (const token of tokens) rest[token >> 5] &= ~(1 << (token & 31));
  return rest;
}
