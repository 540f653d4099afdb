import type { Grammars, Matcher } from "../grammar/types.ts";
import type { TimeLimit } from "./time_limit.ts";
import type { Scheduled } from "../schedule/step_part.ts";
import type { Sequence } from "../schedule/sequence.ts";

/** Maximum milliseconds that a step waits for a mask: longer than any limit on a grammar's work. */
export const MASK_TIMEOUT_MS = 30_000;

const NONE: Promise<Uint32Array[]> = Promise.resolve([]);

/** The outcome of a sequence's mask. */
export type MaskResult = "allows" | "nothing follows" | { readonly failure: string };

/**
 * Computes grammar masks of a step's sequences while the backend computes. If a mask fails, the step gets a mask that
 * lets it end, and `resultOf` returns how the sequence must end.
 */
export class StepMasks {
  /** Masks of each sequence: for its new token, and for the token after each draft. */
  readonly #masks = new Map<Sequence, Promise<Uint32Array>[]>();
  readonly #results = new Map<Sequence, MaskResult>();
  /** Number of each sequence's drafts that the constraint allows, as far as known. */
  readonly #possible = new Map<Sequence, number>();
  readonly #ends: ReadonlySet<number>;

  constructor(
    grammars: Grammars,
    step: readonly Scheduled[],
    vocabSize: number,
    ends: ReadonlySet<number>,
    limit: TimeLimit,
  ) {
    this.#ends = ends;
    const parts = step.filter(({ sequence, samples }) => samples && sequence.form?.constrained);
    if (parts.length === 0) return;
    const lent = lendAll(grammars, parts);
    const inTime = limit.within(lent.masks, tooLate);
    const whole = () => new Uint32Array(Math.ceil(vocabSize / 32)).fill(0xffffffff);
    for (const [i, { sequence, drafts }] of parts.entries()) {
      const mask = inTime.then((masks) => this.#use(sequence, masks[i])).catch((error) => {
        this.#results.set(sequence, { failure: error instanceof Error ? error.message : String(error) });
      });
      const behind = drafts.length === 0
        ? NONE
        : limit.within(lent.drafts[i], tooLate).then((masks) => this.#useDrafts(sequence, masks))
          .catch((): Uint32Array[] => []);
      this.#possible.set(sequence, 0);
      this.#masks.set(sequence, [
        mask.then((mask) => mask ?? whole()),
        ...Array.from(drafts, (_, i) => behind.then((masks) => masks[i] ?? whole())),
      ]);
    }
  }

  /**
   * Returns the mask of the new token, or of the token after `drafts` drafts. Undefined if the sequence has no
   * constraint or samples nothing.
   */
  get(sequence: Sequence, drafts = 0): Promise<Uint32Array> | undefined {
    return this.#masks.get(sequence)?.[drafts];
  }

  /** Returns whether the token after `drafts` drafts has its own mask. Call after the step was computed. */
  follow(sequence: Sequence, drafts: number): boolean {
    return drafts <= (this.#possible.get(sequence) ?? Infinity);
  }

  /** Returns the outcome of the sequence's mask. Call after the step was computed. */
  resultOf(sequence: Sequence): MaskResult {
    return this.#results.get(sequence) ?? "allows";
  }

  /** Returns the masks before the first that allows no token; later rows do not count. */
  #useDrafts(sequence: Sequence, masks: readonly Uint32Array[]): Uint32Array[] {
    if (sequence.ignoreEos) { for (const mask of masks) leaveOut(mask, this.#ends); }
    const end = masks.findIndex(isEmpty);
    const possible = end < 0 ? masks.length : end;
    this.#possible.set(sequence, possible);
    return masks.slice(0, possible);
  }

  /** Returns the mask for the step; undefined if it allows no token. */
  #use(sequence: Sequence, mask: Uint32Array): Uint32Array | undefined {
    if (isEmpty(mask)) {
      const failure = sequence.form?.failure ?? "its constraint allows no next token";
      return void this.#results.set(sequence, { failure });
    }
    if (sequence.ignoreEos) leaveOut(mask, this.#ends);
    if (!isEmpty(mask)) return mask;
    this.#results.set(sequence, "nothing follows");
  }
}

interface Lent {
  readonly masks: Promise<Uint32Array[]>;
  readonly drafts: readonly Promise<Uint32Array[]>[];
}

/**
 * Gives the grammars exclusive use of the sequences' matchers until all masks are computed. Immediate errors become
 * rejections.
 */
function lendAll(grammars: Grammars, parts: readonly Scheduled[]): Lent {
  const matchers: Matcher[] = [];
  const { promise, resolve } = Promise.withResolvers<unknown>();
  for (const { sequence: { form } } of parts) {
    form!.lend((matcher) => {
      matchers.push(matcher);
      return promise;
    });
  }
  // The masks start in a later turn, so that the step need not wait for the masks.
  const later = Promise.resolve();
  const masks = later.then(() => grammars.masks(matchers));
  const drafts = parts.map(({ drafts }, i) =>
    drafts.length === 0 ? NONE : later.then(() => grammars.draftMasks(matchers[i], drafts))
  );
  resolve(Promise.allSettled([masks, ...drafts]));
  return { masks, drafts };
}

function tooLate(seconds: number): string {
  return `no mask was computed within ${seconds} s`;
}

function isEmpty(mask: Uint32Array): boolean {
  return mask.every((word) => word === 0);
}

function leaveOut(mask: Uint32Array, tokens: Iterable<number>): void {
  for (const token of tokens) mask[token >> 5] &= ~(1 << (token & 31));
}
