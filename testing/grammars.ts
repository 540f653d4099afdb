/** Fake grammars for tests: simple expressions over single bytes, strict about how matchers are used. */
import {
  type Asker,
  type Constraint,
  ConstraintError,
  type Grammar,
  type Grammars,
  type Matcher,
} from "../engine/grammar/types.ts";

/** A vocabulary of bytes and end tokens. */
export interface FakeVocabulary {
  readonly vocabSize: number;
  readonly ends: readonly number[];
}

/** Code of the character that matches any letter from a to z. */
const ANY = ".".charCodeAt(0);
const LETTERS = Array.from({ length: 26 }, (_, i) => "a".charCodeAt(0) + i);

/**
 * Compiles a `regex` of alternatives separated by `|`. In an alternative a byte stands for itself, and `.` for a
 * letter. Also compiles a `choice` of the same alternatives.
 */
export class FakeGrammars implements Grammars {
  readonly loosened = 0;
  /** Number of open matchers, for leak checks. */
  open = 0;
  closed = false;
  /** The tenant and priority of each compiled constraint. */
  readonly askers: (Asker | undefined)[] = [];
  /** The number of masks in each call of `masks`. */
  readonly batches: number[] = [];
  /** Promises that delay compiling constraints, and returning masks. */
  compileGate: () => Promise<unknown> = () => Promise.resolve();
  maskGate: () => Promise<unknown> = () => Promise.resolve();
  /** Number of tokens that an answer may have before it exceeds a limit. */
  mostTokens = Infinity;

  constructor(private readonly vocabulary: FakeVocabulary) {}

  async compile(constraint: Constraint, asker?: Asker): Promise<Grammar> {
    this.askers.push(asker);
    await this.compileGate();
    if (constraint.kind !== "regex" && constraint.kind !== "choice") {
      throw new ConstraintError(`Constraints of kind ${constraint.kind} are not supported`);
    }
    const texts = constraint.kind === "regex" ? constraint.pattern.split("|") : constraint.choices;
    if (texts.some((text) => text.includes("("))) throw new ConstraintError("Groups are not supported");
    const choices = texts.map((text) => [...new TextEncoder().encode(text)]);
    return { matcher: () => new FakeMatcher(this, this.vocabulary, choices) };
  }

  async masks(matchers: readonly Matcher[]): Promise<Uint32Array[]> {
    this.batches.push(matchers.length);
    const fakes = matchers as readonly FakeMatcher[];
    for (const matcher of fakes) matcher.lend();
    try {
      await this.maskGate();
      return fakes.map((matcher) => matcher.mask());
    } finally {
      for (const matcher of fakes) matcher.giveBack();
    }
  }

  async draftMasks(given: Matcher, tokens: Int32Array): Promise<Uint32Array[]> {
    const matcher = given as FakeMatcher;
    matcher.lend();
    try {
      await this.maskGate();
      const scout = matcher.scout();
      let valid = true;
      return Array.from(tokens, (token) => {
        valid &&= scout.consume(token);
        return valid ? scout.mask() : new Uint32Array(Math.ceil(this.vocabulary.vocabSize / 32));
      });
    } finally {
      matcher.giveBack();
    }
  }

  close(): void {
    if (this.open > 0) throw new Error(`${this.open} matchers are still open`);
    this.closed = true;
  }
}

class FakeMatcher implements Matcher {
  failure: string | undefined;
  #choices: readonly (readonly number[])[];
  #length = 0;
  #ended = false;
  #lent = 0;
  #closed = false;

  constructor(
    private readonly grammars: FakeGrammars,
    private readonly vocabulary: FakeVocabulary,
    choices: readonly (readonly number[])[],
  ) {
    this.#choices = choices;
    grammars.open++;
  }

  consume(token: number): boolean {
    this.#check();
    if (this.#length >= this.grammars.mostTokens) this.failure = "its tokens are too much work";
    if (this.failure) return false;
    if (this.vocabulary.ends.includes(token)) return this.mayEnd && (this.#ended = true);
    const left = this.#ended ? [] : this.#choices.filter((choice) => accepts(choice[this.#length], token));
    if (left.length === 0) return false;
    this.#choices = left;
    this.#length++;
    return true;
  }

  forced(): readonly number[] {
    this.#check();
    const forced: number[] = [];
    for (let at = this.#length;; at++) {
      const [first, ...others] = this.#choices.map((choice) => choice[at]);
      if (first === undefined || first === ANY || others.some((other) => other !== first)) return forced;
      forced.push(first);
    }
  }

  get complete(): boolean {
    this.#check();
    return this.#ended || this.#choices.every((choice) => choice.length === this.#length);
  }

  get mayEnd(): boolean {
    this.#check();
    return this.#choices.some((choice) => choice.length === this.#length);
  }

  close(): void {
    this.#check();
    this.#closed = true;
    this.grammars.open--;
  }

  /** Marks the matcher as in use. It may be used twice at a time: for its mask, and for draft masks. */
  lend(): void {
    if (this.#closed) throw new Error("A matcher is used after it was closed");
    this.#lent++;
  }

  giveBack(): void {
    this.#lent--;
  }

  /** Returns a copy that does not count as open. */
  scout(): FakeMatcher {
    const scout = new FakeMatcher(this.grammars, this.vocabulary, this.#choices);
    this.grammars.open--;
    scout.#length = this.#length;
    scout.#ended = this.#ended;
    return scout;
  }

  mask(): Uint32Array {
    const { vocabSize, ends } = this.vocabulary;
    const mask = new Uint32Array(Math.ceil(vocabSize / 32));
    if (this.failure) return mask;
    const allow = (token: number) => mask[token >> 5] |= 1 << (token & 31);
    for (const choice of this.#choices) {
      const next = choice[this.#length];
      for (const token of next === undefined ? ends : next === ANY ? LETTERS : [next]) allow(token);
    }
    return mask;
  }

  #check(): void {
    if (this.#closed) throw new Error("A matcher is used after it was closed");
    if (this.#lent > 0) throw new Error("A matcher is used while it computes a mask");
  }
}

function accepts(wanted: number | undefined, token: number): boolean {
  return wanted === ANY ? LETTERS.includes(token) : wanted === token;
}
