/** Constraints, compiled grammars and matchers, as the rest of the engine uses them. */
import type { Asker } from "../pacing/fair_turns.ts";

export type { Asker } from "../pacing/fair_turns.ts";

/** The form that a whole answer must have. */
export type Constraint =
  /** A constraint for JSON text that the schema (2020-12) accepts. */
  | {
    readonly kind: "json_schema";
    readonly schema: unknown;
    /**
     * Whether an object must not have properties that its schema does not list, unless the schema allows them.
     * Default false.
     */
    readonly closed?: boolean;
    /**
     * Name of the tool whose arguments the schema describes, if keywords that cannot be expressed exactly may be
     * loosened.
     */
    readonly looseFor?: string;
  }
  | { readonly kind: "regex"; readonly pattern: string }
  /** A constraint for one of the given texts. */
  | { readonly kind: "choice"; readonly choices: readonly string[] }
  /** A constraint in llguidance's dialect of Lark. `@name` refers to one of `parts`, `<[id]>` to a token. */
  | {
    readonly kind: "lark";
    readonly grammar: string;
    readonly parts?: Readonly<Record<string, Constraint>>;
    /** Keywords of tools' schemas that the grammar does not enforce. */
    readonly loosened?: readonly LoosenedSchema[];
  }
  /** A constraint in llama.cpp's grammar format. */
  | { readonly kind: "gbnf"; readonly grammar: string };

/** Returns the constraint for a grammar text: GBNF if its rules use `::=`, else Lark. */
export function grammarConstraint(grammar: string): Constraint {
  return grammar.includes("::=") ? { kind: "gbnf", grammar } : { kind: "lark", grammar };
}

/**
 * A refused constraint: malformed, unsupported or over a limit. The error's message states the reason and the place
 * in the constraint.
 */
export class ConstraintError extends Error {
  override name = "ConstraintError";

  /** `isUnsatisfiable`: no answer can match the constraint, so loosening does not help. */
  constructor(message: string, readonly isUnsatisfiable = false) {
    super(message);
  }
}

/** Constraints are not available, because the grammar library is missing. */
export class ConstraintsMissing extends Error {
  override name = "ConstraintsMissing";
}

/** The constraint was not compiled in time, because too many others were compiling. */
export class CompilersBusy extends Error {
  override name = "CompilersBusy";
  override message = "Constraints of other requests are still being compiled: try again later";
}

/** A tool schema's keywords that its grammar does not enforce. */
export interface LoosenedSchema {
  readonly tool: string;
  /** JSON pointers of the loosened keywords; "" for the whole schema. */
  readonly keywords: readonly string[];
}

/** Compiles constraints for one model's vocabulary. */
export interface Grammars {
  /** The number of loosened keywords, counted once per schema. */
  readonly loosened: number;
  /**
   * Compiles a constraint on another thread, or returns a cached grammar at once. Refusals are cached too. Throws
   * ConstraintError, ConstraintsMissing and, never for a batch, CompilersBusy.
   */
  compile(constraint: Constraint, asker?: Asker): Promise<Grammar>;
  /**
   * Returns one mask per matcher, with a bit for each token that may come next; an end token's bit is set if the
   * answer may end. All masks are computed together, on other threads than the step. No matcher may be used before the
   * promise resolves.
   *
   * A mask has no bits if nothing can follow or the matcher has failed (a limit was exceeded). The caller may change
   * the masks, which are valid until the next call.
   */
  masks(matchers: readonly Matcher[]): Promise<Uint32Array[]>; // [ceil(vocabSize / 32)] each
  /**
   * Returns the grammar mask after each draft token. From the first disallowed token on, masks have no bits. The
   * matcher does not change.
   */
  draftMasks(matcher: Matcher, tokens: Int32Array): Promise<Uint32Array[]>; // [tokens][ceil(vocabSize / 32)]
  close(): void;
}

/** A compiled constraint, for any number of answers. */
export interface Grammar {
  matcher(): Matcher;
}

/** The state of one answer in a grammar. */
export interface Matcher {
  /**
   * Takes the answer's next token. Returns false and changes nothing if the grammar refuses it. An end token is
   * accepted if the answer may end, and completes it.
   */
  consume(token: number): boolean;
  /**
   * Returns the forced tokens, split as the tokenizer would split their text; empty if the next token is not forced.
   * The matcher does not consume them.
   */
  forced(): readonly number[];
  /** Whether the answer is complete, so that only its end may follow. */
  readonly complete: boolean;
  /** Whether the answer may end here, although more may follow. */
  readonly mayEnd: boolean;
  /** The limit that the answer exceeded, with advice; no token can follow then. Undefined if none was exceeded. */
  readonly failure: string | undefined;
  close(): void;
}
