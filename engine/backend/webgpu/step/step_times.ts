import type { Costs, Piece } from "./costs.ts";
import type { PassClock, PassTime } from "../device/pass_clock.ts";
import type { SubmitTime } from "./dispatch.ts";

/** Pieces of one compute pass, and the timestamps that the pass writes. */
export interface Pass {
  readonly pieces: readonly Piece[];
  readonly stamps?: GPUComputePassTimestampWrites;
}

/** A pass with timestamps. */
interface Timed {
  /** Index of the submit within its step. */
  readonly submit: number;
  readonly pieces: readonly Piece[];
  /** Whether the pass times a single piece, to learn its cost. */
  readonly alone: boolean;
}

/**
 * Chooses which passes of a step are timed: one piece of each kernel runs in a separate pass, to measure its time. With
 * `everything`, all other passes are timed too, to measure each submit.
 */
export class StepTimes {
  readonly #timed: Timed[] = [];
  /** Keys of kernels that are timed in separate passes. */
  readonly #alone = new Set<string>();
  readonly #submits: (readonly Piece[])[] = [];
  /** Expected times of the submits at the moment of submission. */
  readonly #expected: number[] = [];

  constructor(
    readonly clock: PassClock,
    private readonly costs: Costs,
    private readonly everything = false,
  ) {
    clock.restart();
  }

  /** Returns a submit's pieces grouped into passes. */
  passes(pieces: readonly Piece[]): Pass[] {
    const submit = this.#submits.push(pieces) - 1;
    this.#expected.push(this.costs.sum(pieces));
    const passes: Pass[] = [];
    let others: Piece[] = [];
    const end = () => {
      if (others.length > 0) {
        passes.push(this.everything ? this.#time(submit, others, false) : { pieces: others });
      }
      others = [];
    };
    for (const piece of pieces) {
      if (this.#isWanted(piece)) {
        end();
        this.#alone.add(piece.kernel.key);
        passes.push(this.#time(submit, [piece], true));
      } else {
        others.push(piece);
      }
    }
    end();
    return passes;
  }

  /**
   * Returns whether to time the piece: each kernel once per step, but not in its first run, because the driver may
   * compile it then.
   */
  #isWanted({ kernel: { key } }: Piece): boolean {
    return this.costs.has(key) && !this.#alone.has(key) && this.#timed.length < this.clock.most;
  }

  #time(submit: number, pieces: readonly Piece[], alone: boolean): Pass {
    this.#timed.push({ submit, pieces, alone });
    return { pieces, stamps: this.clock.next() };
  }

  /** Passes the times of single-piece passes to the cost estimates. */
  learn(times: readonly PassTime[]): void {
    for (const [i, { pieces, alone }] of this.#timed.entries()) {
      if (alone) this.costs.time(pieces[0], times[i].end - times[i].begin);
    }
  }

  /** Returns the time of each submit, if all passes were timed. */
  submits(times: readonly PassTime[]): SubmitTime[] {
    const spans: { begin: number; end: number }[] = [];
    for (const [i, { submit }] of this.#timed.entries()) {
      const { begin, end } = times[i];
      spans[submit] ??= { begin, end };
      spans[submit].end = end;
    }
    return spans.map(({ begin, end }, i) => ({
      ms: end - begin,
      expected: this.#expected[i],
      kernels: this.#submits[i].map(({ kernel }) => kernel.key),
    }));
  }
}
