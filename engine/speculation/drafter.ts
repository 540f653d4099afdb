import type { StepInput, StepOutput } from "../backend/backend.ts";
import type { Sequence } from "../sequence.ts";

/** Where drafts come from. */
export type DraftKind = "lookup" | "mtp" | "draft";

/** Grades of trust: 0 to GRADES - 1. */
export const GRADES = 16;

/** Tokens that a sequence may go on with, by guess. */
export interface Draft {
  readonly tokens: Int32Array; // [n]
  /**
   * How far each token can be trusted if those before it are right: a grade from 0 to GRADES - 1 that means whatever its drafter
   * means by it. How often tokens of a grade are right is learned, for each sequence.
   */
  readonly grades: Uint8Array; // [n]
}

/** A sequence that could use a draft of at most so many tokens. */
export interface DraftWanted {
  readonly sequence: Sequence;
  readonly most: number;
}

/** A sequence's rows in a step that has been computed and published. */
export interface ComputedRows {
  readonly sequence: Sequence;
  /** Its first row in the step's tokens. */
  readonly start: number;
  /** The position of that row's token in the sequence. */
  readonly position: number;
  /**
   * Leading rows whose tokens are the sequence's own; those behind them were drafts that are dropped. Where a recurrent state had to
   * go back, rows of the same positions come again.
   */
  readonly valid: number;
}

/**
 * A source of drafts. A draft that is wrong costs rows of a step, and never changes an answer: every token of it is sampled as if
 * there had been no draft, and what differs is dropped.
 *
 * All calls come between steps, one at a time, so that a drafter may have the backend compute for it.
 */
export interface Drafter {
  readonly kind: DraftKind;
  /** Whether drafting takes next to no time: it is asked in every step then, and else only where drafts are likely to pay. */
  readonly free: boolean;
  /**
   * A draft for each of these sequences, which go on after `sequence.tokens` up to `sequence.length`; empty where it has none. It
   * may return at once, and may hold tokens that turn out to be impossible.
   */
  draft(wanted: readonly DraftWanted[]): readonly Draft[] | Promise<readonly Draft[]>;
  /**
   * Only of drafters that follow what the model computes: a step has been computed and published. Sequences that have ended are
   * not among `rows`.
   */
  computed?(rows: readonly ComputedRows[], input: StepInput, output: StepOutput): void | Promise<void>;
  /** The sequence has ended, or waits again and will be computed anew: what is kept for it can go. */
  forget?(sequence: Sequence): void;
  close?(): void;
}

export const NO_DRAFT: Draft = { tokens: new Int32Array(0), grades: new Uint8Array(0) };
