import type { Costs, Piece } from "./costs.ts";
import type { PassClock, PassTime } from "../device/pass_clock.ts";
import type { SubmitTime } from "./dispatch.ts";

/** Pieces that one pass runs, and where it puts its stamps. */
export interface Pass {
  readonly pieces: readonly Piece[];
  readonly stamps?: GPUComputePassTimestampWrites;
}

/** A pass that was timed. */
interface Timed {
  /** Of a step. */
  readonly submit: number;
  readonly pieces: readonly Piece[];
  /** For what one piece takes. */
  readonly alone: boolean;
}

/**
 * What of a step is timed: a piece of each kernel, in a pass of its own, so that what it takes is known apart from all others. With
 * `everything` all other passes too, so that each submit's time is known.
 */
export class StepTimes {
  readonly #timed: Timed[] = [];
  /** Keys of kernels that are timed by themselves. */
  readonly #alone = new Set<string>();
  readonly #submits: (readonly Piece[])[] = [];
  /** What submits were expected to take when they were handed over. */
  readonly #expected: number[] = [];

  constructor(
    readonly clock: PassClock,
    private readonly costs: Costs,
    private readonly everything = false,
  ) {
    clock.restart();
  }

  /** A submit's pieces in passes. */
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

  /** Once for each kernel, but not where it runs for the first time: the driver may compile it then. */
  #isWanted({ kernel: { key } }: Piece): boolean {
    return this.costs.has(key) && !this.#alone.has(key) && this.#timed.length < this.clock.most;
  }

  #time(submit: number, pieces: readonly Piece[], alone: boolean): Pass {
    this.#timed.push({ submit, pieces, alone });
    return { pieces, stamps: this.clock.next() };
  }

  /** The costs learn what passes of one piece took. */
  learn(times: readonly PassTime[]): void {
    for (const [i, { pieces, alone }] of this.#timed.entries()) {
      if (alone) this.costs.time(pieces[0], times[i].end - times[i].begin);
    }
  }

  /** What each submit took, where everything was timed. */
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
