import { answerRecord, type JobIds, unansweredRecord } from "./answers.ts";
import { BatchError } from "./errors.ts";
import type { JournalRecord } from "./journal_format.ts";
import type { PendingLine } from "./look_ahead.ts";
import type { Pace } from "./pace.ts";

/**
 * Answers one request as the HTTP endpoint would. Rejects when `signal` ends it, when there is no such answer, and with
 * UnansweredLine when nobody wants it any more. `engine` names the one that answered where there may be several: the
 * failures of an engine say nothing of the others.
 */
export type Execute = (request: {
  url: string;
  body: Record<string, unknown>;
  priority: "batch";
  signal: AbortSignal;
}) => Promise<{ status: number; body: Record<string, unknown>; engine?: string }>;

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

/** So many server errors with no good answer among them are the engine's fault, not the lines'. */
const MAX_DOUBTFUL = 16;
const FIRST_WAIT_MS = 50;
const LONGEST_WAIT_MS = 5000;

/**
 * Keeps lines in flight until none is left or a signal stops it. A line counts as in flight until its answer
 * is durable, so that a crash repeats no more than those. Throws what `next` and `store` throw, and when the engine
 * answers nothing but failures.
 */
export async function dispatch(options: DispatchOptions): Promise<void> {
  const failed = new AbortController();
  const signal = AbortSignal.any([options.signal, failed.signal]);
  const run = new Dispatch({ ...options, signal });
  const workers = Array.from({ length: options.parallel }, async (_, place) => {
    try {
      await run.worker(place);
    } catch (error) {
      failed.abort();
      throw error;
    } finally {
      options.pace.end(); // one that ends has found no line left, or a stop
    }
  });
  // All of them, so that nobody writes any more when the caller hears of the error.
  await Promise.allSettled(workers);
  await Promise.all(workers);
  await run.end();
}

class Dispatch {
  /** Records of server errors, held back until another answer shows that the engine is well. */
  private doubtful: JournalRecord[] = [];

  constructor(private readonly options: DispatchOptions) {}

  async worker(place: number): Promise<void> {
    while (!this.stopping()) {
      await this.options.pace.turn(place);
      if (this.stopping()) return;
      const line = await this.options.next();
      if (line === undefined || this.stopping()) return;
      const answer = await this.answer(line);
      if (answer === undefined) return;
      await this.record(answer.record, answer.doubtful);
    }
  }

  /** Stores what is still in doubt; after a stop it is left to be answered again. */
  async end(): Promise<void> {
    if (!this.stopping() && this.doubtful.length > 0) await this.options.store(this.doubtful.splice(0));
  }

  private stopping(): boolean {
    return this.options.drainSignal.aborted || this.options.signal.aborted;
  }

  /** undefined when a signal came first. */
  private async answer(line: PendingLine): Promise<{ record: JournalRecord; doubtful: boolean } | undefined> {
    const { index, request: { customId } } = line;
    const { ids, signal } = this.options;
    try {
      const found = await this.patientAnswer(line);
      if (found === undefined) return undefined;
      const { answer } = found;
      this.options.pace.answered(workOf(answer?.body?.usage));
      return { record: answerRecord(ids, index, customId, answer), doubtful: answer?.status >= 500 };
    } catch (error) {
      if (error instanceof BatchError) throw error;
      if (signal.aborted) return undefined;
      if (error instanceof UnansweredLine) {
        const record = unansweredRecord(ids, index, customId, error.code, error.message);
        return { record, doubtful: false };
      }
      const message = error instanceof Error ? error.message : String(error);
      return { record: unansweredRecord(ids, index, customId, "request_failed", message), doubtful: true };
    }
  }

  /** Asks again while the engine is busy. undefined when a signal came first. */
  private async patientAnswer({ request: { url, body } }: PendingLine) {
    const { execute, patienceMs, signal, drainSignal } = this.options;
    const since = performance.now();
    for (let waitMs = FIRST_WAIT_MS;; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
      const answer = await unlessAborted(execute({ url, body, priority: "batch", signal }), signal);
      if (signal.aborted) return undefined;
      if (answer?.status !== 429 && answer?.status !== 503) return { answer: answer! };
      if (performance.now() - since > patienceMs) {
        throw unavailable(
          `it has been busy for ${Math.round(patienceMs / 1000)} s (status ${answer.status})`,
        );
      }
      await sleep(waitMs, AbortSignal.any([signal, drainSignal]));
      if (this.stopping()) return undefined;
    }
  }

  private async record(record: JournalRecord, doubtful: boolean): Promise<void> {
    if (doubtful) {
      this.doubtful.push(record);
      if (this.doubtful.length < MAX_DOUBTFUL) return;
      const last = new TextDecoder().decode(record.line.subarray(0, 400));
      throw unavailable(`the last ${MAX_DOUBTFUL} requests failed in it, this way: ${last}`);
    }
    await this.options.store([...this.doubtful.splice(0), record]);
  }
}

/** A token of a prompt is computed beside others, for less than one that is generated; one from the cache is free. */
const PROMPT_TOKEN_WORK = 0.25;

/** `usage` as the endpoint has it. */
function workOf(usage: unknown): number {
  const { prompt_tokens, completion_tokens, prompt_tokens_details } = (usage ?? {}) as Record<
    string,
    unknown
  >;
  const { cached_tokens } = (prompt_tokens_details ?? {}) as Record<string, unknown>;
  const count = (value: unknown) => typeof value === "number" && value > 0 ? value : 0;
  return PROMPT_TOKEN_WORK * Math.max(0, count(prompt_tokens) - count(cached_tokens)) +
    count(completion_tokens);
}

function unavailable(why: string): BatchError {
  const message =
    `The engine does not answer: ${why}. What was answered so far is kept; run the same command again`;
  return new BatchError("engine_unavailable", message, true);
}

/** undefined when the signal comes first: an engine that is slow to stop must not hold the job up. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const stop = () => resolve(undefined);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}

/** Ends early, without an error, when the signal comes. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end, { once: true });
  });
}
