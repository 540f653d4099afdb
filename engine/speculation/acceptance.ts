import { type Draft, GRADES } from "./drafter.ts";

/** Each new observation reduces the weight of earlier ones by 1 / MEMORY, so about MEMORY observations count. */
const MEMORY = 48;
/** Weight of the average over all sequences, in observations of a sequence. */
const PRIOR = 4;

/** Estimates how often tokens of each grade are accepted. Recent tokens weigh more. */
export class Acceptance {
  readonly #seen = new Float64Array(GRADES);
  readonly #right = new Float64Array(GRADES);

  /** `before` is the prior: a function for unknown grades, or the estimates over all sequences. */
  constructor(private readonly before: Acceptance | ((grade: number) => number)) {}

  /** Returns the probability that a token of this grade is accepted. */
  of(grade: number): number {
    const before = this.before instanceof Acceptance ? this.before.of(grade) : this.before(grade);
    return (this.#right[grade] + PRIOR * before) / (this.#seen[grade] + PRIOR);
  }

  /** Updates the estimates by comparing a draft with the tokens that followed, up to the first mismatch. */
  observe({ tokens, grades }: Draft, came: Int32Array): void {
    const compared = Math.min(tokens.length, came.length);
    for (let i = 0; i < compared; i++) {
      const right = tokens[i] === came[i];
      this.#add(grades[i], right);
      if (!right) return;
    }
  }

  #add(grade: number, right: boolean): void {
    const keeps = 1 - 1 / MEMORY;
    this.#seen[grade] = keeps * this.#seen[grade] + 1;
    this.#right[grade] = keeps * this.#right[grade] + (right ? 1 : 0);
    if (this.before instanceof Acceptance) this.before.#add(grade, right);
  }
}
