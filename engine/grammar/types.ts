/** Constraints and what comes of them, as the rest of the engine sees it. */

/** The form that an answer must have, from its first token to its last. */
export type Constraint =
  /** JSON text that the schema (2020-12) accepts. */
  | { readonly kind: "json_schema"; readonly schema: unknown }
  | { readonly kind: "regex"; readonly pattern: string }
  /** One of these texts. */
  | { readonly kind: "choice"; readonly choices: readonly string[] }
  /** llguidance's dialect of Lark; `@name` stands for one of `parts`, `<[id]>` for a token. */
  | {
    readonly kind: "lark";
    readonly grammar: string;
    readonly parts?: Readonly<Record<string, Constraint>>;
  }
  /** llama.cpp's grammars. */
  | { readonly kind: "gbnf"; readonly grammar: string };

/** A grammar in a text: the rules of GBNF are written with ::=, as those of Lark are not. */
export function grammarConstraint(grammar: string): Constraint {
  return grammar.includes("::=") ? { kind: "gbnf", grammar } : { kind: "lark", grammar };
}

/** A constraint that is refused: malformed, not supported, or over a limit. The message says which, and where. */
export class ConstraintError extends Error {
  override name = "ConstraintError";
}

/** Nothing here can hold answers to a form: the library that does is missing. */
export class ConstraintsMissing extends Error {
  override name = "ConstraintsMissing";
}

/** Compiles constraints for one model's vocabulary. */
export interface Grammars {
  /** On a thread of its own; at once where the constraint was compiled before. Throws ConstraintError and ConstraintsMissing. */
  compile(constraint: Constraint): Promise<Grammar>;
  /**
   * For each matcher one bit a token, set where the token may come next: end tokens where the answer may end. All at once, on
   * threads beside the step's. None of the matchers may be used before it resolves. No bit is set where nothing can follow,
   * and where the matcher has failed (a limit was reached). The caller may change the masks; they are valid until the next call.
   */
  masks(matchers: readonly Matcher[]): Promise<Uint32Array[]>; // [ceil(vocabSize / 32)] each
  /**
   * The same after each of these tokens, where those before it have come; no bit is set from the first on that may not come. The
   * matcher stays as it is.
   */
  draftMasks(matcher: Matcher, tokens: Int32Array): Promise<Uint32Array[]>; // [tokens][ceil(vocabSize / 32)]
  close(): void;
}

/** A compiled constraint; any number of answers may follow it. */
export interface Grammar {
  matcher(): Matcher;
}

/** How far one answer is. */
export interface Matcher {
  /**
   * Takes the answer's next token; false, and nothing is changed, where the grammar refuses it. It takes an end token where the
   * answer may end, and is complete then.
   */
  consume(token: number): boolean;
  /**
   * The tokens that must come next, divided as the tokenizer divides their text; empty where there is a choice. They are not
   * consumed.
   */
  forced(): readonly number[];
  /** Whether the answer is whole and nothing but its end may follow. */
  readonly complete: boolean;
  /** Whether the answer may end here, although more may follow. */
  readonly mayEnd: boolean;
  /** Which limit the answer has met in taking a token, and what to do; nothing can follow then. */
  readonly failure: string | undefined;
  close(): void;
}
