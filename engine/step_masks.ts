import type { Grammars, Matcher } from "./grammar/types.ts";
import type { Patience } from "./patience.ts";
import type { Scheduled } from "./scheduler.ts";
import type { Sequence } from "./sequence.ts";

/** Longer than any limit on a grammar's work; who waits for a mask that does not come waits no longer. */
export const MASK_TIMEOUT_MS = 30_000;

const NONE: Promise<Uint32Array[]> = Promise.resolve([]);

/** What came of a sequence's mask. */
export type MaskResult = "allows" | "nothing follows" | { readonly failure: string };

/**
 * The masks of one step's sequences, computed while the backend computes. Whatever becomes of one, the step gets a mask that
 * lets it end; `resultOf` says then what is to become of the sequence.
 */
export class StepMasks {
  /** Of each sequence: of its new token, and of what follows each of its drafts. */
  readonly #masks = new Map<Sequence, Promise<Uint32Array>[]>();
  readonly #results = new Map<Sequence, MaskResult>();
  /** How many of a sequence's drafts may come, as far as that is known. */
  readonly #possible = new Map<Sequence, number>();
  readonly #ends: ReadonlySet<number>;

  constructor(
    grammars: Grammars,
    step: readonly Scheduled[],
    vocabSize: number,
    ends: ReadonlySet<number>,
    patience: Patience,
  ) {
    this.#ends = ends;
    const parts = step.filter(({ sequence, samples }) => samples && sequence.form?.constrained);
    if (parts.length === 0) return;
    const lent = lendAll(grammars, parts);
    const inTime = patience.within(lent.masks, tooLate);
    const whole = () => new Uint32Array(Math.ceil(vocabSize / 32)).fill(0xffffffff);
    for (const [i, { sequence, drafts }] of parts.entries()) {
      const mask = inTime.then((masks) => this.#use(sequence, masks[i])).catch((error) => {
        this.#results.set(sequence, { failure: error instanceof Error ? error.message : String(error) });
      });
      const behind = drafts.length === 0
        ? NONE
        : patience.within(lent.drafts[i], tooLate).then((masks) => this.#useDrafts(sequence, masks))
          .catch((): Uint32Array[] => []);
      this.#possible.set(sequence, 0);
      this.#masks.set(sequence, [
        mask.then((mask) => mask ?? whole()),
        ...Array.from(drafts, (_, i) => behind.then((masks) => masks[i] ?? whole())),
      ]);
    }
  }

  /**
   * Of its new token, or of what follows so many of its drafts. Undefined where the sequence has no constraint or samples nothing.
   */
  get(sequence: Sequence, drafts = 0): Promise<Uint32Array> | undefined {
    return this.#masks.get(sequence)?.[drafts];
  }

  /** Whether what follows so many of the sequence's drafts has a mask of its own. Once the step has been computed. */
  follow(sequence: Sequence, drafts: number): boolean {
    return drafts <= (this.#possible.get(sequence) ?? Infinity);
  }

  /** Once the step has been computed. */
  resultOf(sequence: Sequence): MaskResult {
    return this.#results.get(sequence) ?? "allows";
  }

  /** The masks that allow something: what follows the others does not count. */
  #useDrafts(sequence: Sequence, masks: readonly Uint32Array[]): Uint32Array[] {
    if (sequence.ignoreEos) { for (const mask of masks) leaveOut(mask, this.#ends); }
    const end = masks.findIndex(isEmpty);
    const possible = end < 0 ? masks.length : end;
    this.#possible.set(sequence, possible);
    return masks.slice(0, possible);
  }

  /** The mask for the step; undefined where it allows nothing. */
  #use(sequence: Sequence, mask: Uint32Array): Uint32Array | undefined {
    if (isEmpty(mask)) {
      const failure = sequence.form?.failure ?? "its constraint lets nothing follow";
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

/** Lends the sequences' matchers to the grammars until all their masks are computed. What throws at once is a rejection too. */
function lendAll(grammars: Grammars, parts: readonly Scheduled[]): Lent {
  const matchers: Matcher[] = [];
  const { promise, resolve } = Promise.withResolvers<unknown>();
  for (const { sequence: { form } } of parts) {
    form!.lend((matcher) => {
      matchers.push(matcher);
      return promise;
    });
  }
  // In a later turn: in this one the step is started, which does not wait for them.
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
