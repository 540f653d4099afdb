import type { StepInput, StepOutput } from "../backend/backend.ts";
import type { Sequence } from "../schedule/sequence.ts";

/** The source of drafts: the name of a drafter. */
export type DraftKind = "lookup" | "mtp" | "draft";

/** Grades of confidence: 0 to GRADES - 1. */
export const GRADES = 16;

/** Guessed next tokens of a sequence. */
export interface Draft {
  readonly tokens: Int32Array; // [n]
  /**
   * Confidence in each token if those before it are right: a grade from 0 to GRADES - 1, whose meaning
   * depends on the drafter. The acceptance rate of each grade is learned per sequence.
   */
  readonly grades: Uint8Array; // [n]
}

/** A sequence that can use a draft of at most `most` tokens. */
export interface DraftWanted {
  readonly sequence: Sequence;
  readonly most: number;
}

/** A sequence's rows in a computed and published step. */
export interface ComputedRows {
  readonly sequence: Sequence;
  /** Index of the sequence's first row among the step's tokens. */
  readonly start: number;
  /** Position of that row's token in the sequence. */
  readonly position: number;
  /**
   * Number of leading rows whose tokens belong to the sequence; later rows are rejected drafts. After a
   * recurrent state was reset to an earlier position, rows of the same positions come again.
   */
  readonly valid: number;
}

/**
 * A source of drafts. A wrong draft costs rows of a step but never changes an answer: every token is sampled
 * as without drafts, and mismatched draft tokens are dropped.
 *
 * All calls happen between steps, one at a time, so a drafter may use the backend.
 */
export interface Drafter {
  readonly kind: DraftKind;
  /**
   * Whether drafting takes almost no time. Free drafters are asked in every step, other drafters only if
   * drafts are likely to pay off.
   */
  readonly free: boolean;
  /**
   * Returns one draft per sequence, to follow the sequence's tokens up to `sequence.length`. A draft may be empty.
   * May return synchronously. Drafts may contain tokens that turn out to be impossible.
   */
  draft(wanted: readonly DraftWanted[]): readonly Draft[] | Promise<readonly Draft[]>;
  /**
   * Called after a step is computed and published, for drafters that follow the model. `rows` has no finished
   * sequences.
   */
  computed?(rows: readonly ComputedRows[], input: StepInput, output: StepOutput): void | Promise<void>;
  /** Drops what is stored for a sequence: it ended, or it was preempted and will be computed again. */
  forget?(sequence: Sequence): void;
  close?(): void;
}

export const NO_DRAFT: Draft = { tokens: new Int32Array(0), grades: new Uint8Array(0) };
