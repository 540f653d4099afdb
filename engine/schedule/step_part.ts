import type { StepState } from "../backend/backend.ts";
import { dividedSpan, rowsTogether } from "./images.ts";
import { type Sequence, unscored, wantsToken } from "./sequence.ts";

const NO_TOKENS = new Int32Array(0);

/** A sequence's part of one step: its next `rows` tokens. */
export interface Scheduled {
  readonly sequence: Sequence;
  readonly rows: number;
  /** Number of rows whose next token is scored (`unscored`). They are the last rows, or precede the last one. */
  readonly scores: number;
  /** Whether the last row's logits choose a new token. */
  readonly samples: boolean;
  /**
   * Draft tokens, each with a row after the sequence's own rows. They are stored after the sequence's tokens, beyond
   * `length`, until later tokens overwrite them.
   */
  readonly drafts: Int32Array; // [rows of drafts]
  /** Whether the sequence is a text that ends with these rows and needs its pooled row. */
  readonly pools: boolean;
  readonly state?: StepState;
}

/** Returns a sequence's part of a step, with the given rows and logits left in the step. */
export function partOf(sequence: Sequence, rowsLeft: number, logitsLeft: number): Scheduled {
  const pending = sequence.length - sequence.kv.cached;
  const scoring = unscored(sequence);
  const firstRow = scoring ? scoring.first - 1 : 0; // a row's logits give the score of the next token
  let rows = Math.min(pending, rowsLeft);
  if (scoring) rows = Math.min(rows, Math.max(0, firstRow - sequence.kv.cached) + logitsLeft);
  else if (rows === pending && wantsToken(sequence) && logitsLeft === 0) rows--;
  if (sequence.pooled?.whole && rows < pending) rows = 0;
  const divided = dividedSpan(sequence.images, sequence.kv.cached + rows);
  if (divided) rows = Math.max(0, divided.first - sequence.kv.cached);
  const end = sequence.kv.cached + rows;
  return {
    sequence,
    rows,
    scores: scoring ? Math.max(0, Math.min(end, scoring.end - 1) - firstRow) : 0,
    samples: end === sequence.length && wantsToken(sequence),
    drafts: NO_TOKENS,
    pools: end === sequence.length && sequence.pooled !== undefined,
  };
}

/** Returns the number of the sequence's next rows that one step must compute; 0 if a step may compute any number. */
export function togetherRows({ pooled, length, images, kv: { cached } }: Sequence): number {
  return pooled?.whole ? length : rowsTogether(images, cached);
}

/** Returns whether only the last row of the sequence is not computed yet. */
export function isDecoding(sequence: Sequence): boolean {
  return sequence.length - sequence.kv.cached === 1;
}

/** Returns whether the next rows are answer tokens that are not computed yet, mostly forced tokens. */
export function isForced(sequence: Sequence): boolean {
  return !isDecoding(sequence) && sequence.kv.cached >= sequence.promptLength;
}

export function isPrefilling(sequence: Sequence): boolean {
  return !isDecoding(sequence) && sequence.kv.cached < sequence.promptLength;
}

export function isSlow({ stream }: Sequence): boolean {
  return stream.full;
}

/** Returns whether the sequence must wait until its prompt is read from, or written to, the disk. */
export function awaitsDisk({ disk: { restoring, storing } }: Sequence): boolean {
  return restoring !== undefined || storing !== undefined;
}
