import { type Draft, GRADES } from "./drafter.ts";

/** Observations that count as much as all earlier ones together. */
const MEMORY = 48;
/** As how many observations of its own the average of all sequences counts for a sequence. */
const PRIOR = 4;

/** How often tokens of each grade of trust were right. Later ones count more. */
export class Acceptance {
  readonly #seen = new Float64Array(GRADES);
  readonly #right = new Float64Array(GRADES);

  /** `before`: what is taken for a grade of which nothing is known, or what is known of all sequences together. */
  constructor(private readonly before: Acceptance | ((grade: number) => number)) {}

  /** How likely a token of this grade is to be right. */
  of(grade: number): number {
    const before = this.before instanceof Acceptance ? this.before.of(grade) : this.before(grade);
    return (this.#right[grade] + PRIOR * before) / (this.#seen[grade] + PRIOR);
  }

  /** Learns from the tokens that came, as far as they tell anything of the draft. */
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
