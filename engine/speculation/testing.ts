/** Drafters that know the answers, or do not; steps whose rows cost what a test says. */
import type { Random } from "../random.ts";
import type { Sequence } from "../sequence.ts";
import { type Draft, type Drafter, type DraftWanted, GRADES } from "./drafter.ts";
import { StepCosts } from "./step_costs.ts";

/** Rows that cost nothing, in steps that take long: a draft is asked for in each, and whatever is drafted is verified. */
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

/** Drafts what was answered before, wrong now and then. */
export class KnownAnswers implements Drafter {
  readonly kind = "draft";
  /** Asked for a draft, and told of what was computed. */
  asked = 0;
  followed = 0;
  forgotten = 0;

  /** `answers`: of each prompt, in order; `right`: how likely a drafted token is to be left as it is. */
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
