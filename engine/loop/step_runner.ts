import { type Backend, type StepInput, type StepOutput, StepStopped } from "../backend/backend.ts";
import type { StoredPrefixes } from "../cache/stored_prefixes.ts";
import type { Grammars } from "../grammar/types.ts";
import { StepPublisher } from "../output/publish.ts";
import { MASK_TIMEOUT_MS, StepMasks } from "../sampling/step_masks.ts";
import { TimeLimit } from "../sampling/time_limit.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import type { Sequence } from "../schedule/sequence.ts";
import { StepWriter } from "../schedule/step_input.ts";
import type { Scheduled } from "../schedule/step_part.ts";
import { StepsAtOnce } from "../schedule/steps_at_once.ts";
import type { Speculation } from "../speculation/speculation.ts";
import type { Tokenizer } from "../tokenizer/types.ts";
import type { Totals } from "./totals.ts";

export interface StepContext {
  readonly backend: Backend;
  readonly scheduler: Scheduler;
  readonly stored: StoredPrefixes | undefined;
  readonly grammars: Grammars;
  readonly tokenizer: Tokenizer;
  readonly totals: Totals;
  readonly speculation: Speculation | undefined;
  readonly vocabSize: number;
  /** Maximum rows of a step. */
  readonly maxRows: number;
  /** Ends a sequence after its prompt is stored on the disk. */
  readonly storePrompt: (sequence: Sequence) => void;
}

/** Schedules steps, computes them on the backend and publishes their results, one at a time. */
export class StepRunner {
  readonly #context: StepContext;
  readonly #publisher: StepPublisher;
  readonly #writer: StepWriter;
  readonly #stepsAtOnce = new StepsAtOnce();
  readonly #maskLimit = new TimeLimit(MASK_TIMEOUT_MS);
  /** The step that the backend is computing. */
  #step: readonly Scheduled[] = [];

  constructor(context: StepContext) {
    this.#context = context;
    this.#publisher = new StepPublisher(context);
    this.#writer = new StepWriter(context.maxRows);
  }

  /** Chooses the next step. Returns false when nothing can run. */
  schedule(): boolean {
    const { backend, scheduler } = this.#context;
    this.#step = scheduler.schedule(backend.stepRows);
    return this.#step.length > 0;
  }

  /** Computes the step, or several similar steps, and publishes the results. */
  async run(): Promise<void> {
    const { scheduler, stored, speculation, grammars, tokenizer, vocabSize } = this.#context;
    let start = performance.now();
    const drafting = speculation?.draft(this.#step, scheduler);
    if (drafting instanceof Promise) {
      this.#step = await drafting;
      start = performance.now(); // the time of drafters that take measurable time is measured separately
      if (this.#step.every(({ sequence }) => sequence.progress.done)) return this.#removeDone();
    } else if (drafting) {
      this.#step = drafting;
    }
    stored?.stepped(this.#step.reduce((rows, part) => rows + part.rows, 0));
    const masks = new StepMasks(grammars, this.#step, vocabSize, tokenizer.endTokens, this.#maskLimit);
    const { input, outputs } = await this.#compute(masks);
    const counted = outputs.flatMap((output, earlier) =>
      this.#publisher.publish({ step: this.#step, masks, output, earlier })
    );
    if (speculation && outputs.length > 0) {
      const ms = performance.now() - start;
      const following = speculation.computed(this.#step, ms, counted, input, outputs[0]);
      if (following) await following;
    }
    this.#removeDone();
  }

  /** Whether the current step computes rows of the sequence. */
  computes(sequence: Sequence): boolean {
    return this.#step.some((part) => part.sequence === sequence);
  }

  /** Stops the current step if all its sequences are done. */
  stopIfDone(): void {
    if (this.#step.every(({ sequence }) => sequence.progress.done)) this.#context.backend.requestStop();
  }

  /** Forgets the current step after a failure. */
  drop(): void {
    this.#step = [];
  }

  close(): void {
    this.#maskLimit.close();
  }

  /**
   * Returns the output of the step, or of several similar steps. Returns none if the step was stopped because all its
   * sequences were cancelled.
   */
  async #compute(masks: StepMasks): Promise<{ input: StepInput; outputs: StepOutput[] }> {
    const { backend, scheduler, totals } = this.#context;
    const { draws } = backend.abilities;
    const wanted = draws ? this.#stepsAtOnce.choose(this.#step) : 1;
    const steps = 1 + scheduler.room.forSteps(this.#step, wanted - 1);
    const input = this.#writer.write(this.#step, masks, steps - 1);
    totals.submitted(steps, input.tokens.length);
    const start = performance.now();
    try {
      return {
        input,
        outputs: steps > 1 ? await draws!.decode(input, steps) : [await backend.step(input)],
      };
    } catch (error) {
      if (error instanceof StepStopped) return { input, outputs: [] };
      throw error;
    } finally {
      this.#stepsAtOnce.took(performance.now() - start, steps);
    }
  }

  /** Ends the step: from now on a cancelled sequence leaves at once, even while parts of prompts are copied. */
  #removeDone(): void {
    for (const { sequence } of this.#step) {
      if (sequence.progress.done) this.#context.scheduler.remove(sequence);
    }
    this.#step = [];
  }
}
