import type { Candidates, StepOutput } from "../backend/backend.ts";
import {
  constraintFailed,
  end,
  failOne,
  finish,
  keepScores,
  publishHeld,
  publishProgress,
  publishToken,
} from "./publish.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import type { Scheduled } from "../schedule/step_part.ts";
import { type Sequence, unscored } from "../schedule/sequence.ts";
import type { ComputedRows } from "../speculation/drafter.ts";
import type { MaskResult, StepMasks } from "../sampling/step_masks.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import type { Totals } from "../loop/totals.ts";
import { EngineError } from "../api/errors.ts";
import type { FinishReason } from "../api/events.ts";

export interface PublisherContext {
  readonly scheduler: Scheduler;
  readonly tokenizer: Tokenizer;
  readonly totals: Totals;
  /** Stores a sequence's prompt on the disk and then ends the sequence. */
  readonly storePrompt: (sequence: Sequence) => void;
}

/** A step that was computed. */
export interface ComputedStep {
  readonly step: readonly Scheduled[];
  readonly masks: StepMasks;
  readonly output: StepOutput;
  /** Number of outputs of the same backend call before this one. */
  readonly earlier: number;
}

/** Publishes the results of a step's rows to its sequences: scores, tokens and the end. */
export class StepPublisher {
  readonly #context: PublisherContext;

  constructor(context: PublisherContext) {
    this.#context = context;
  }

  /** Publishes one output. Returns the rows of the sequences that continue. */
  publish({ step, masks, output, earlier }: ComputedStep): ComputedRows[] {
    const { scheduler, storePrompt } = this.#context;
    const counted: ComputedRows[] = [];
    let [row, pooled, start] = [0, 0, 0];
    for (const part of step) {
      const { sequence, rows, scores, samples, drafts, pools } = part;
      const position = sequence.kv.cached;
      const scored = output.rows.slice(row, row += scores);
      const sampled = samples ? output.rows.slice(row, row += 1 + drafts.length) : [];
      const pooledRow = pools ? output.pooled![pooled++] : undefined;
      const first = start;
      start += rows + drafts.length;
      if (sequence.progress.done && earlier > 0) continue; // void: computed after the sequence's end
      if (drafts.length === 0) scheduler.advance(part);
      if (sequence.progress.done) continue;
      if (sequence.pooled) {
        if (pooledRow) this.#publishPooled(sequence, pooledRow);
        continue;
      }
      keepScores(sequence, scored);
      if (!sequence.progress.prefilled) this.#publishPrompt(sequence);
      publishHeld(sequence);
      let right = 0;
      if (sampled.length > 0) {
        right = this.#publishTokens(part, sampled, masks);
        if (drafts.length > 0) scheduler.advance(part, right);
      } else if (sequence.kv.cached === sequence.length) {
        if (sequence.disk.mustStore) storePrompt(sequence);
        else finish(sequence, sequence.progress.ending ?? "length");
      }
      if (!sequence.progress.done) counted.push({ sequence, start: first, position, valid: rows + right });
    }
    return counted;
  }

  #publishPooled(sequence: Sequence, row: Float32Array): void {
    this.#context.totals.read(sequence.length, sequence.admission.reused);
    end(sequence);
    sequence.pooled!.give(row);
  }

  #publishPrompt(sequence: Sequence): void {
    publishProgress(sequence);
    if (sequence.kv.cached < sequence.promptLength) return;
    sequence.progress.prefilled = true;
    this.#context.totals.read(sequence.promptLength, sequence.admission.reused);
    this.#context.totals.generated(sequence.length - sequence.promptLength, 0);
    if (sequence.promptLogprobs) sequence.stream.push({ type: "prompt", logprobs: sequence.progress.scores });
  }

  /**
   * Publishes the tokens of a part's rows, up to the first that differs from its draft. Returns how many drafts were
   * right.
   */
  #publishTokens({ sequence, drafts }: Scheduled, sampled: readonly Candidates[], masks: StepMasks): number {
    const first = sequence.length;
    sequence.progress.drafts.rejected += drafts.length;
    let right = 0;
    for (const [i, candidates] of sampled.entries()) {
      // A forced token is already there.
      if (sequence.length === first + i) {
        this.#publishToken(sequence, candidates, i === 0 ? masks.resultOf(sequence) : "allows");
      }
      const ends = sequence.progress.done || sequence.progress.ending !== undefined;
      // Tokens that wait for their scores need rows of their own.
      if (ends || unscored(sequence) || sequence.tokens[first + i] !== drafts[i]) break;
      // The next token has no mask, so a later step computes this row again and samples then.
      if (sequence.length === first + i + 1 && !masks.follow(sequence, i + 1)) break;
      right++;
      sequence.progress.drafts.rejected--;
      sequence.progress.drafts.accepted++;
    }
    this.#context.totals.drafted(drafts.length, right);
    return right;
  }

  #publishToken(sequence: Sequence, candidates: Candidates, mask: MaskResult): void {
    if (mask === "nothing follows") return finish(sequence, "stop");
    if (mask !== "allows") return failOne(sequence, constraintFailed(mask.failure));
    if (candidates.ids.length === 0 || !Number.isFinite(candidates.logSumExp)) {
      const message =
        `The model gave no usable logits for token ${sequence.length}: its weights may be damaged`;
      return failOne(sequence, new EngineError("engine_failed", message));
    }
    const before = sequence.length;
    const ending = this.#chooseToken(sequence, candidates);
    this.#context.totals.generated(sequence.length - before, 1);
    if (ending instanceof EngineError) return failOne(sequence, ending);
    sequence.progress.ending = ending;
    if (ending && sequence.progress.held.length === 0) finish(sequence, ending);
  }

  /** Returns as publishToken does. A matcher error ends its own sequence, not the engine. */
  #chooseToken(sequence: Sequence, candidates: Candidates): FinishReason | EngineError | undefined {
    try {
      return publishToken(sequence, candidates, this.#context.tokenizer);
    } catch (error) {
      if (!sequence.form?.constrained) throw error;
      return constraintFailed(error instanceof Error ? error.message : String(error));
    }
  }
}
