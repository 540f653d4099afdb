import { abortable } from "@std/async/abortable.js";
import { delay } from "@std/async/delay.js";
import { type Answer, answerRecord, type JobIds, unansweredRecord } from "../answers.ts";
import { MAX_SUSPECTS, type Suspect, Suspects } from "./suspects.ts";
import { BatchError } from "../errors.ts";
import type { JournalRecord } from "../journal/journal_format.ts";
import type { PendingLine } from "./look_ahead.ts";
import type { Pace } from "./pace.ts";
import { type Call, probeOf } from "./probe.ts";
import { type TokenCounts, tokenCounts } from "../usage.ts";

/** Returns an image's bytes, or the reason why it cannot be read. */
export type ReadImage = (name: string) => Promise<Uint8Array<ArrayBuffer> | string>;

/** A batch line for the engine or workers that answer it. */
export interface LineRequest {
  readonly url: string;
  readonly body: Record<string, unknown>;
  readonly priority: "batch";
  /** Owner of the line: lines of different owners share no cached prompts. */
  readonly owner?: string;
  /** Returns the bytes of an image that the owner uploaded, or the reason why it cannot be read. */
  readonly readUpload?: ReadImage;
  /** Returns the bytes of the image file at a `file:` URL, or the reason why it cannot be read. */
  readonly readImageFile?: ReadImage;
  /** Returns the bytes of the image at an https URL, or the reason why it cannot be fetched. */
  readonly fetchImage?: (url: string, signal?: AbortSignal) => ReturnType<ReadImage>;
  readonly signal: AbortSignal;
}

/**
 * Returns the answer that the HTTP endpoint would give to one request. Rejects when `signal` aborts or the request
 * fails. With several engines, `engine` names the one that answered, because one engine's failures say nothing about
 * the others.
 */
export type Execute = (request: LineRequest) => Promise<Answer>;

/** Error of the lines that get no answer, because the job was cancelled or has expired. */
export class UnansweredLine extends Error {
  override name = "UnansweredLine";
  constructor(readonly code: "batch_cancelled" | "batch_expired", message: string) {
    super(message);
  }
}

/** Changes that a job makes to its requests and answers. */
export interface LineChanges {
  readonly owner?: string;
  /** Returns the body to send instead of a line's own. */
  readonly revise?: (body: Record<string, unknown>) => Record<string, unknown>;
  /** Returns the answer to record: the given one, or a failure that replaces it. May throw BatchError. */
  readonly judge?: (answer: Answer) => Answer | Promise<Answer>;
}

export interface DispatchOptions extends LineChanges {
  readonly execute: Execute;
  readonly ids: JobIds;
  /** Maximum lines in progress; `pace` chooses the present number. */
  readonly parallel: number;
  readonly pace: Pace;
  readonly patienceMs: number;
  /** Called with the token counts of each line's answer. */
  readonly onTokens: (tokens: TokenCounts) => void;
  /** Returns the next line, or undefined when none is left. */
  readonly next: () => Promise<PendingLine | undefined>;
  /** Resolves when the records are durable. */
  readonly store: (records: JournalRecord[]) => Promise<void>;
  /** Aborts when no new lines may be taken. */
  readonly drainSignal: AbortSignal;
  /** Aborts when the lines in flight must be given up. */
  readonly signal: AbortSignal;
  /** Aborts when unanswered lines get an error. Its reason is an UnansweredLine. */
  readonly cancelSignal?: AbortSignal;
}

const FIRST_WAIT_MS = 50;
const LONGEST_WAIT_MS = 5000;
const UNWELL_WAIT_MS = 1000;
/** Key of the only engine, for answers that do not name their engine. */
const ONLY = "";

/**
 * Keeps lines in flight until none is left or a signal stops it. A line stays in flight until its answer is durable, so
 * a crash repeats at most the lines in flight. Rethrows errors of `next` and `store`; throws BatchError when the engine
 * answers with failures only.
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
      options.pace.end(); // a lane ends only when no line is left or at a stop
    }
  });
  // Waits for all lanes, so that nothing is written after the caller gets the error.
  await Promise.allSettled(lanes);
  await Promise.all(lanes);
}

class Dispatch {
  private readonly suspects = new Suspects();
  /** Lines to retry. */
  private readonly again: PendingLine[] = [];
  /** The latest request that got a good answer. */
  private good: Call | undefined;
  private inFlight = 0;
  private isLastTaken = false;
  private changed = Promise.withResolvers<void>();
  /** Time since which no engine has given a good answer, as of the last probe; undefined after a good answer. */
  private unwellSince: number | undefined;
  private readonly checks = new Map<string, Promise<void>>();
  /** Aborts when no answer is needed any more. */
  private readonly unwanted: AbortSignal;

  constructor(private readonly options: DispatchOptions) {
    this.unwanted = AbortSignal.any([options.signal, options.cancelSignal ?? []].flat());
    for (const signal of [options.drainSignal, options.signal]) {
      signal.addEventListener("abort", () => this.change(), { once: true });
    }
  }

  /** Answers lines one at a time, until none is left. */
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

  /**
   * Returns the next line and counts it as in progress. Returns undefined if all lines are answered, or after a stop.
   */
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
        await promise; // a line in progress may need a retry
      } else {
        const engine = this.suspects.engine();
        if (engine === undefined) return undefined;
        await this.check(engine);
      }
    }
  }

  /** Counts a line as finished. Waiting lanes wake only when no line is in progress, because there may be thousands. */
  private landed(): void {
    this.inFlight -= 1;
    if (this.inFlight === 0) this.change();
  }

  /** Wakes the waiting lanes. */
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
      return await this.suspect(engineOf(error), { line, record });
    }
    if (answer === undefined) return;
    const tokens = tokenCounts(answer.body);
    this.options.pace.answered(workOf(tokens));
    this.options.onTokens(tokens);
    const record = answerRecord(ids, index, request.customId, answer);
    if (answer.status >= 500 && !answer.final) return await this.suspect(engineOf(answer), { line, record });
    await this.settle(line, record);
    if (!record.completed) return;
    this.good = request;
    await this.well(engineOf(answer));
  }

  private async settle(line: PendingLine, record: JournalRecord): Promise<void> {
    await this.options.store([record]);
    this.suspects.answered(line);
  }

  /** Holds back a failure until a probe or a good answer shows whether the engine works. */
  private async suspect(engine: string, suspect: Suspect): Promise<void> {
    if (this.suspects.add(engine, suspect) >= MAX_SUSPECTS) await this.check(engine);
  }

  /** Records that the engine has given a good answer. */
  private async well(engine: string): Promise<void> {
    this.unwellSince = undefined;
    await this.resolve(this.suspects.well(engine));
  }

  private async resolve({ again, errors }: { again: PendingLine[]; errors: JournalRecord[] }): Promise<void> {
    this.again.push(...again);
    if (again.length > 0) this.change();
    if (errors.length > 0) await this.options.store(errors);
  }

  /** Probes an engine that failed. Throws BatchError if it does not answer and no other engine exists. */
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
    const { count, last } = this.suspects.of(engine);
    if (last === undefined) return;
    let answer: Answer | undefined;
    try {
      answer = await this.patientAnswer(probeOf(last.line.request, this.good));
    } catch (error) {
      if (error instanceof BatchError) throw error;
      if (signal.aborted) return;
      // The job was cancelled, so each line gets UnansweredLine when it is retried.
      if (error instanceof UnansweredLine) return await this.resolve(this.suspects.unwell(engine, false));
    }
    if (this.stopping()) return;
    const isAnswered = answer?.status === 200;
    if (isAnswered) {
      await this.well(engineOf(answer));
    } else {
      const now = performance.now();
      this.unwellSince ??= now;
      if (engine === ONLY || now - this.unwellSince > patienceMs) throw failing(count, last.record);
      // Other engines may work even if none of them got the probe. The wait lets a broken engine leave the run.
      await sleep(UNWELL_WAIT_MS, AbortSignal.any([signal, drainSignal]));
      if (this.stopping()) return;
    }
    await this.resolve(this.suspects.unwell(engine, isAnswered));
  }

  /** Returns the answer, retrying while the engine is busy (429, 503); undefined when a signal aborts. */
  private async patientAnswer(
    { url, body }: Call,
  ): Promise<Answer | undefined> {
    const { execute, owner, revise, judge, patienceMs, signal, drainSignal } = this.options;
    const request = {
      url,
      body: revise?.(body) ?? body,
      priority: "batch",
      owner,
      signal: this.unwanted,
    } as const;
    const since = performance.now();
    for (let waitMs = FIRST_WAIT_MS;; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
      this.options.cancelSignal?.throwIfAborted();
      // An engine that stops slowly must not delay the job.
      const answer = await abortable(execute(request), this.unwanted) ?? NOTHING;
      if (signal.aborted) return undefined;
      const isBusy = (answer.status === 429 || answer.status === 503) && !answer.final;
      if (!isBusy) return await judge?.(answer) ?? answer;
      if (performance.now() - since > patienceMs) {
        throw unavailable(
          `it has been busy for ${Math.round(patienceMs / 1000)} s (status ${answer.status})`,
        );
      }
      await sleep(waitMs, AbortSignal.any([this.unwanted, drainSignal]));
      if (this.stopping()) return undefined;
    }
  }
}

/** Answer in place of a missing answer from `execute`; it becomes an error of the line. */
const NOTHING: Answer = { status: 0, body: {} };

/** Returns the name of the engine that answered or failed; errors may name it in the same field as answers. */
function engineOf(answer: unknown): string {
  const { engine } = (answer ?? {}) as { engine?: unknown };
  return typeof engine === "string" ? engine : ONLY;
}

/**
 * Work of a prompt token relative to a generated one: prompt tokens are computed in parallel. Cached tokens cost
 * nothing.
 */
const PROMPT_TOKEN_WORK = 0.25;

/** Estimates the work of an answer, in units of one generated token. */
function workOf({ prompt, cached, output }: TokenCounts): number {
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

/** Waits `ms` milliseconds, or returns early without an error when the signal aborts. */
export async function sleep(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, { signal }).catch(() => {});
}
