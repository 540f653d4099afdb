/** Test drafters with right or wrong answers, and test steps with given row costs. */
import type { Random } from "../sampling/random.ts";
import type { Sequence } from "../schedule/sequence.ts";
import { type Draft, type Drafter, type DraftWanted, GRADES } from "./drafter.ts";
import { StepCosts } from "./step_costs.ts";

/** Rows cost nothing and steps are long, so a draft is requested and verified in every step. */
export class FreeRows extends StepCosts {
  override withoutDrafts(): number | undefined {
    return undefined;
  }

  override knowsPlain(): boolean {
    return true;
  }

  override estimates(_sequences: number, from: number, to: number): Float64Array {
    return new Float64Array(to - from + 1).fill(1);
  }
}

/** Drafts earlier answers, with occasional errors. */
export class KnownAnswers implements Drafter {
  readonly kind = "draft";
  /** Counts of requested drafts and of computed steps. */
  asked = 0;
  followed = 0;
  forgotten = 0;

  /** `answers` are in order, by prompt. `right` is the probability that a drafted token stays unchanged. */
  constructor(
    private readonly answers: ReadonlyMap<string, readonly number[]>,
    private readonly random: Pick<Random, "next">,
    private readonly right: number,
    private readonly vocabSize: number,
    readonly free = true,
  ) {}

  draft(wanted: readonly DraftWanted[]): Draft[] | Promise<Draft[]> {
    this.asked++;
    const drafts = wanted.map((want) => this.#draft(want));
    return this.free ? drafts : Promise.resolve(drafts);
  }

  computed(): void {
    this.followed++;
  }

  forget(): void {
    this.forgotten++;
  }

  #draft({ sequence, most }: DraftWanted): Draft {
    const answer = this.answers.get(promptKey(sequence)) ?? [];
    const ahead = answer.slice(sequence.length - sequence.promptLength).slice(0, most);
    const count = Math.floor(this.random.next() * (ahead.length + 1));
    const tokens = Int32Array.from(ahead.slice(0, count), (token) => {
      return this.random.next() < this.right ? token : Math.floor(this.random.next() * this.vocabSize);
    });
    return { tokens, grades: new Uint8Array(count).fill(GRADES - 1) };
  }
}

function promptKey({ tokens, promptLength }: Sequence): string {
  return tokens.subarray(0, promptLength).join();
}
