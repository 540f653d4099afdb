import { abortable } from "@std/async/abortable.js";
import { delay } from "@std/async/delay.js";
import { type Answer, answerRecord, type JobIds, unansweredRecord } from "./answers.ts";
import { type Doubt, Doubts, MAX_DOUBTS } from "./doubts.ts";
import { BatchError } from "./errors.ts";
import type { JournalRecord } from "./journal_format.ts";
import type { PendingLine } from "./look_ahead.ts";
import type { Pace } from "./pace.ts";
import { type Call, probeOf } from "./probe.ts";
import { tokenCounts } from "./usage.ts";

/**
 * Answers one request as the HTTP endpoint would. Rejects when `signal` aborts it, when there is no such answer, and with
 * UnansweredLine when the answer is no longer wanted. `engine` names the one that answered where there may be several: the
 * failures of an engine say nothing of the others.
 */
export type Execute = (request: {
  url: string;
  body: Record<string, unknown>;
  priority: "batch";
  signal: AbortSignal;
}) => Promise<Answer>;

/** A line that is to have no answer, but an error: the job was cancelled, or its time is over. */
export class UnansweredLine extends Error {
  override name = "UnansweredLine";
  constructor(readonly code: "batch_cancelled" | "batch_expired", message: string) {
    super(message);
  }
}

export interface DispatchOptions {
  readonly execute: Execute;
  readonly ids: JobIds;
  /** Most lines in flight; how many there are is for `pace` to say. */
  readonly parallel: number;
  readonly pace: Pace;
  readonly patienceMs: number;
  /** undefined when no line is left. */
  readonly next: () => Promise<PendingLine | undefined>;
  /** Resolves when the records are durable. */
  readonly store: (records: JournalRecord[]) => Promise<void>;
  /** Take no new lines. */
  readonly drainSignal: AbortSignal;
  /** Give up what is in flight. */
  readonly signal: AbortSignal;
}

const FIRST_WAIT_MS = 50;
const LONGEST_WAIT_MS = 5000;
const UNWELL_WAIT_MS = 1000;
/** Where an answer names no engine there is one only. */
const ONLY = "";

/**
 * Keeps lines in flight until none is left or a signal stops it. A line counts as in flight until its answer
 * is durable, so that a crash repeats no more than those. Throws what `next` and `store` throw, and when the engine
 * answers nothing but failures.
 */
export async function dispatch(options: DispatchOptions): Promise<void> {
  const failed = new AbortController();
  const signal = AbortSignal.any([options.signal, failed.signal]);
  const run = new Dispatch({ ...options, signal });
  const lanes = Array.from({ length: options.parallel }, async (_, place) => {
    try {
      await run.lane(place);
    } catch (error) {
      failed.abort();
      throw error;
    } finally {
      options.pace.end(); // one that ends has found no line left, or a stop
    }
  });
  // All of them, so that nothing is written any more when the caller gets the error.
  await Promise.allSettled(lanes);
  await Promise.all(lanes);
}

class Dispatch {
  private readonly doubts = new Doubts();
  /** Lines to be asked once more. */
  private readonly again: PendingLine[] = [];
  /** The last one that was answered well. */
  private good: Call | undefined;
  private inFlight = 0;
  private isLastTaken = false;
  private changed = Promise.withResolvers<void>();
  /** Since when no engine has given a good answer, as far as that was looked into. */
  private unwellSince: number | undefined;
  private readonly checks = new Map<string, Promise<void>>();

  constructor(private readonly options: DispatchOptions) {
    for (const signal of [options.drainSignal, options.signal]) {
      signal.addEventListener("abort", () => this.change(), { once: true });
    }
  }

  /** Answers one line after the other. */
  async lane(place: number): Promise<void> {
    while (!this.stopping()) {
      await this.options.pace.turn(place);
      const line = await this.take();
      if (line === undefined) return;
      try {
        await this.ask(line);
      } finally {
        this.landed();
      }
    }
  }

  /** The next line, which counts as in flight then; undefined when all are answered, and after a stop. */
  private async take(): Promise<PendingLine | undefined> {
    while (!this.stopping()) {
      const { promise } = this.changed;
      const line = this.again.shift();
      if (line !== undefined || !this.isLastTaken) {
        this.inFlight += 1;
        const taken = line ?? await this.options.next();
        if (taken !== undefined && !this.stopping()) return taken;
        this.isLastTaken ||= taken === undefined;
        this.landed();
      } else if (this.inFlight > 0) {
        await promise; // a line in flight may have to be asked again
      } else {
        const engine = this.doubts.engine();
        if (engine === undefined) return undefined;
        await this.check(engine);
      }
    }
  }

  /** A line is in flight no more. Lanes that wait are woken for the last one only: there may be thousands of them. */
  private landed(): void {
    this.inFlight -= 1;
    if (this.inFlight === 0) this.change();
  }

  /** Wakes the lanes that wait. */
  private change(): void {
    this.changed.resolve();
    this.changed = Promise.withResolvers();
  }

  private stopping(): boolean {
    return this.options.drainSignal.aborted || this.options.signal.aborted;
  }

  private async ask(line: PendingLine): Promise<void> {
    const { index, request } = line;
    const { ids, signal } = this.options;
    let answer: Answer | undefined;
    try {
      answer = await this.patientAnswer(request);
    } catch (error) {
      if (error instanceof BatchError) throw error;
      if (signal.aborted) return;
      if (error instanceof UnansweredLine) {
        return await this.settle(
          line,
          unansweredRecord(ids, index, request.customId, error.code, error.message),
        );
      }
      const message = error instanceof Error ? error.message : String(error);
      const record = unansweredRecord(ids, index, request.customId, "request_failed", message);
      return await this.doubt(engineOf(error), { line, record });
    }
    if (answer === undefined) return;
    this.options.pace.answered(workOf(answer.body));
    const record = answerRecord(ids, index, request.customId, answer);
    if (answer.status >= 500 && !answer.final) return await this.doubt(engineOf(answer), { line, record });
    await this.settle(line, record);
    if (!record.completed) return;
    this.good = request;
    await this.well(engineOf(answer));
  }

  private async settle(line: PendingLine, record: JournalRecord): Promise<void> {
    await this.options.store([record]);
    this.doubts.answered(line);
  }

  /** Holds a failure back until it is known whether the engine is well. */
  private async doubt(engine: string, doubt: Doubt): Promise<void> {
    if (this.doubts.add(engine, doubt) >= MAX_DOUBTS) await this.check(engine);
  }

  /** The engine has given a good answer. */
  private async well(engine: string): Promise<void> {
    this.unwellSince = undefined;
    await this.resolve(this.doubts.well(engine));
  }

  private async resolve({ again, errors }: { again: PendingLine[]; errors: JournalRecord[] }): Promise<void> {
    this.again.push(...again);
    if (again.length > 0) this.change();
    if (errors.length > 0) await this.options.store(errors);
  }

  /** Finds out whether an engine that failed is well. Throws where it is not, and there is no other. */
  private check(engine: string): Promise<void> {
    let check = this.checks.get(engine);
    if (check === undefined) {
      check = this.probe(engine).finally(() => this.checks.delete(engine));
      this.checks.set(engine, check);
    }
    return check;
  }

  private async probe(engine: string): Promise<void> {
    const { signal, drainSignal, patienceMs } = this.options;
    const { count, last } = this.doubts.of(engine);
    if (last === undefined) return;
    let answer: Answer | undefined;
    try {
      answer = await this.patientAnswer(probeOf(last.line.request, this.good));
    } catch (error) {
      if (error instanceof BatchError) throw error;
      if (signal.aborted) return;
      // The job was cancelled: each line gets that answer when it is asked.
      if (error instanceof UnansweredLine) return await this.resolve(this.doubts.unwell(engine, false));
    }
    if (this.stopping()) return;
    const isAnswered = answer?.status === 200;
    if (isAnswered) {
      await this.well(engineOf(answer));
    } else {
      const now = performance.now();
      this.unwellSince ??= now;
      if (engine === ONLY || now - this.unwellSince > patienceMs) throw failing(count, last.record);
      // Others may be well, though none of them got the probe. An engine that failed has some time to leave.
      await sleep(UNWELL_WAIT_MS, AbortSignal.any([signal, drainSignal]));
      if (this.stopping()) return;
    }
    await this.resolve(this.doubts.unwell(engine, isAnswered));
  }

  /** Asks again while the engine is busy. undefined when a signal came first. */
  private async patientAnswer(
    { url, body }: Call,
  ): Promise<Answer | undefined> {
    const { execute, patienceMs, signal, drainSignal } = this.options;
    const since = performance.now();
    for (let waitMs = FIRST_WAIT_MS;; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
      // An engine that is slow to stop must not hold the job up.
      const answer = await abortable(execute({ url, body, priority: "batch", signal }), signal);
      if (signal.aborted) return undefined;
      const isBusy = (answer?.status === 429 || answer?.status === 503) && !answer.final;
      if (!isBusy) return answer ?? { status: 0, body: {} };
      if (performance.now() - since > patienceMs) {
        throw unavailable(
          `it has been busy for ${Math.round(patienceMs / 1000)} s (status ${answer.status})`,
        );
      }
      await sleep(waitMs, AbortSignal.any([signal, drainSignal]));
      if (this.stopping()) return undefined;
    }
  }
}

/** Errors may name their engine as answers do. */
function engineOf(answer: unknown): string {
  const { engine } = (answer ?? {}) as { engine?: unknown };
  return typeof engine === "string" ? engine : ONLY;
}

/** A token of a prompt is computed beside others, for less than one that is generated; one from the cache is free. */
const PROMPT_TOKEN_WORK = 0.25;

/** `body` as the endpoint has it. */
function workOf(body: unknown): number {
  const { prompt, cached, output } = tokenCounts(body);
  return PROMPT_TOKEN_WORK * Math.max(0, prompt - cached) + output;
}

function failing(count: number, { line }: JournalRecord): BatchError {
  const requests = count === 1 ? "request" : `${count} requests`;
  const last = new TextDecoder().decode(line.subarray(0, 400));
  return unavailable(
    `the last ${requests} failed in it, and so did one that it should answer. The last one: ${last}`,
  );
}

function unavailable(why: string): BatchError {
  const message =
    `The engine does not answer: ${why}. The answers so far are kept; run the same command again`;
  return new BatchError("engine_unavailable", message, true);
}

/** Ends early, without an error, when the signal comes. */
export async function sleep(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, { signal }).catch(() => {});
}
