import { KV_BLOCK_TOKENS } from "../backend/backend.ts";
import type { CarriedRows } from "../cache/carried_rows.ts";
import type { KvCache } from "../cache/kv_cache.ts";
import type { RecurrentStates } from "../cache/recurrent_state.ts";
import type { EngineLimits } from "./limits.ts";
import { grown } from "./sequence.ts";
import type { Scheduled } from "./step_part.ts";

/** Finds rows and memory for additions to a step: draft rows, and further steps in the same call. */
export class StepRoom {
  /** `running` returns the number of running sequences. */
  constructor(
    private readonly limits: EngineLimits,
    private readonly cache: KvCache,
    private readonly states: RecurrentStates | CarriedRows | undefined,
    private readonly running: () => number,
  ) {}

  /**
   * Gives the sequences of a step, all of which decode, memory for up to `further` similar steps. Returns that number
   * of steps. No sequence is preempted for it.
   */
  forSteps(step: readonly Scheduled[], further: number): number {
    const lacking = (blocks: number, { sequence }: Scheduled) =>
      blocks + this.cache.lacking(sequence, sequence.length + further);
    while (further > 0 && step.reduce(lacking, 0) > this.cache.available) further >>= 1;
    if (further > 0) {
      for (const { sequence } of step) {
        this.cache.extend(sequence, sequence.length + further);
      }
    }
    return further;
  }

  /** Returns the number of draft rows that the step can carry. */
  draftRows(step: readonly Scheduled[]): number {
    let rows = this.limits.stepRows ?? this.limits.maxRows;
    let logits = this.limits.maxLogitRows;
    for (const part of step) {
      rows -= part.rows;
      logits -= part.scores + (part.samples ? 1 : 0);
    }
    return Math.min(rows, logits);
  }

  /**
   * Returns the number of draft rows that a sequence can have in a step. Its last token needs no draft, and no sequence
   * is preempted for draft rows.
   */
  draftRoom({ sequence, rows, samples }: Scheduled): number {
    if (!samples) return 0;
    const most = sequence.maxLength - sequence.length - 1;
    return Math.min(most, this.states?.draftRoom(sequence, rows) ?? most);
  }

  /** Returns the part with the drafts for which there is memory; the part itself if there is none. */
  withDraft(part: Scheduled, draft: Int32Array): Scheduled {
    const { sequence, rows } = part;
    const { length, kv: { blockCount } } = sequence;
    let most = Math.min(draft.length, this.draftRoom(part));
    // Beyond its own blocks, the sequence only takes blocks that the others do not need next.
    const spare = this.cache.available - this.running();
    if (this.cache.lacking(sequence, length + most) > Math.max(0, spare)) {
      most = Math.min(most, blockCount * KV_BLOCK_TOKENS - length);
    }
    if (most <= 0 || !this.cache.extend(sequence, length + most)) return part;
    const state = this.states?.draft(sequence, rows, most);
    const drafts = draft.slice(0, most);
    while (sequence.tokens.length < length + most) {
      sequence.tokens = grown(sequence.tokens, sequence.maxLength);
    }
    sequence.tokens.set(drafts, length);
    return { ...part, drafts, state };
  }
}
