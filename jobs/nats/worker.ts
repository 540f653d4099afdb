import { type Consumer, jetstream, type JsMsg } from "@nats-io/jetstream";
import type { Msg } from "@nats-io/transport-node";
import { abortable } from "@std/async/abortable.js";
import { type Execute, type LineRequest, sleep } from "../run/dispatch.ts";
import { BatchError } from "../errors.ts";
import type { ModelIdentity } from "../model_identity.ts";
import { type Call, probeOf } from "../run/probe.ts";
import { Attempt, Refused } from "./attempt.ts";
import { type Connection, connectionEnded } from "./connection.ts";
import { Slots } from "./slots.ts";
import {
  consumerName,
  decodeMessage,
  encodeMessage,
  lastWord,
  type LineAnswer,
  modelDifference,
  runNotice,
  RUNS_SUBJECT,
  runSubject,
  STREAM,
  versionDifference,
  versionedNotice,
  WIRE_VERSION,
  WireError,
} from "./wire.ts";

export interface WorkerOptions {
  readonly connection: Connection;
  readonly model: ModelIdentity;
  /** Name of the worker: letters, digits, `_`, `.` and `-`; unique among workers. */
  readonly name: string;
  /** Number of lines to answer in parallel. */
  readonly parallel: number;
  /** Answers a line as a local engine does. */
  readonly answerer: Execute;
  readonly note: (text: string) => void;
  /** Counts of finished work, updated while the worker runs. */
  readonly counts: WorkerCounts;
  /** On abort, the worker takes no new lines, finishes the lines in progress, and returns. */
  readonly drainSignal: AbortSignal;
  /** On abort, the worker returns at once, and its lines go to other workers. */
  readonly signal: AbortSignal;
  /**
   * Aborts when the engine has failed permanently. The worker then returns its lines to the queue and throws the
   * reason.
   */
  readonly engineFailed?: AbortSignal;
}

/** Counts of a worker's finished work. */
export interface WorkerCounts {
  lines: number;
}

const FETCH_MS = 5000;
const PAUSE_MS = 500;
const TICK_MS = 250;
/** Minimum milliseconds of silence after which a run has lost its coordinator; its lease also applies. */
const SILENT_MS = 2000;
const MAX_RUNS = 1000;
/** Number of server errors without a good answer after which the engine is probed, because it may be at fault. */
const MAX_FAILURES = 8;

interface Run {
  readonly id: string;
  readonly leaseMs: number;
  readonly refused: string | undefined;
  readonly over: AbortController;
  /** Aborts when the worker must give up the lines of the run. */
  readonly signal: AbortSignal;
  /** Number of ticks since the last notice. Ticks are counted instead of time, because a sleeping process has none. */
  silent: number;
}

/**
 * Answers lines of all announced runs that use its model, until a signal aborts. Throws BatchError when the connection
 * or the engine has failed for good.
 */
export async function runWorker(options: WorkerOptions): Promise<void> {
  await new Worker(options).work();
}

class Worker {
  private readonly runs = new Map<string, Run>();
  private readonly inFlight = new Set<Promise<void>>();
  private readonly slots: Slots;
  /** Aborted when the connection or the engine has failed; `broken` has the reason. */
  private readonly failed = new AbortController();
  private readonly broken: AbortSignal;
  /** Aborts when the lines in progress must be given up. */
  private readonly now: AbortSignal;
  /** Aborts when no new lines may be taken. */
  private readonly stopping: AbortSignal;
  /** Number of server errors since the last good answer, and the request of that answer. */
  private failures = 0;
  private good: Call | undefined;
  private probing: Promise<void> | undefined;

  constructor(private readonly options: WorkerOptions) {
    const { engineFailed, signal, drainSignal } = options;
    this.slots = new Slots(options.parallel);
    this.broken = AbortSignal.any([this.failed.signal, ...engineFailed ? [engineFailed] : []]);
    this.now = AbortSignal.any([signal, this.broken]);
    this.stopping = AbortSignal.any([this.now, drainSignal]);
  }

  async work(): Promise<void> {
    const { connection, note } = this.options;
    const { nats } = connection;
    void nats.closed().then((reason) => this.failed.abort(connectionEnded(connection, reason)));
    const notices = nats.subscribe(RUNS_SUBJECT, {
      callback: (error, message) => void (error ?? this.heed(message)),
    });
    const ticks = setInterval(() => this.forgetSilent(), TICK_MS);
    await abortable(new Promise(() => {}), this.stopping).catch(() => {});
    this.slots.wake();
    if (this.inFlight.size > 0 && !this.now.aborted) {
      note(`Stopping after ${this.inFlight.size} running lines`);
    }
    await Promise.all(this.inFlight);
    clearInterval(ticks);
    notices.unsubscribe();
    const leave = encodeMessage({ worker: this.options.name });
    for (const run of this.runs.values()) {
      if (run.refused === undefined) this.tell(() => nats.publish(runSubject(run.id, "leave"), leave));
    }
    this.broken.throwIfAborted();
  }

  /** Answers a run's roll call, and starts to serve a new run. */
  private heed(message: Msg): void {
    const { name: worker, parallel } = this.options;
    let run: Run | undefined;
    try {
      run = this.hear(message.data);
    } catch (error) {
      if (error instanceof WireError) return;
      throw error;
    }
    const refused = run?.refused ?? null;
    if (run !== undefined) this.tell(() => message.respond(encodeMessage({ worker, parallel, refused })));
  }

  /** Returns the run that a notice announces; undefined if it does not concern this worker. */
  private hear(data: Uint8Array): Run | undefined {
    const { run: id, version } = decodeMessage(versionedNotice, data).head;
    const known = this.runs.get(id);
    if (known !== undefined) known.silent = 0;
    const wrong = versionDifference(version, WIRE_VERSION);
    const notice = wrong === undefined ? decodeMessage(runNotice, data).head : undefined;
    if (notice?.ended) return this.forget(known);
    if (known !== undefined || this.runs.size === MAX_RUNS || this.stopping.aborted) return known;
    const over = new AbortController();
    return this.begin({
      id,
      leaseMs: notice?.leaseMs ?? SILENT_MS,
      refused: wrong ?? modelDifference(notice!.model, this.options.model),
      over,
      signal: AbortSignal.any([this.now, over.signal]),
      silent: 0,
    });
  }

  private begin(run: Run): Run {
    const { id, refused } = run;
    this.runs.set(id, run);
    this.options.note(refused === undefined ? `Working for run ${id}` : `Refused by run ${id}: ${refused}`);
    if (refused === undefined) void this.serve(run);
    return run;
  }

  private forget(run: Run | undefined): undefined {
    if (run === undefined) return;
    this.runs.delete(run.id);
    run.over.abort();
    this.slots.wake();
    if (run.refused === undefined) this.options.note(`Run ${run.id} has ended`);
  }

  private forgetSilent(): void {
    for (const run of this.runs.values()) {
      run.silent += 1;
      if (run.silent * TICK_MS > Math.max(SILENT_MS, run.leaseMs)) this.forget(run);
    }
  }

  /** Takes lines of a run while places are free, and shares the places with other runs. */
  private async serve(run: Run): Promise<void> {
    const over = AbortSignal.any([this.stopping, run.over.signal]);
    const { consumers } = jetstream(this.options.connection.nats);
    let consumer: Consumer | undefined;
    for (; !over.aborted; await this.slots.room()) {
      const share = Math.ceil(this.slots.free / this.runs.size);
      if (share === 0) continue;
      try {
        consumer ??= await consumers.get(STREAM, consumerName(run.id));
        const items = await consumer.fetch({ max_messages: share, expires: FETCH_MS });
        for await (const item of items) {
          const held = this.hold(run, item).finally(() => this.inFlight.delete(held));
          this.inFlight.add(held);
        }
      } catch {
        // The server, the stream or its consumer is unreachable for now.
        consumer = undefined;
        await sleep(PAUSE_MS, over);
      }
    }
  }

  /** Works on one queue item and renews its lease meanwhile. Never rejects. */
  private async hold(run: Run, item: JsMsg): Promise<void> {
    const beats = setInterval(() => this.tell(() => item.working()), run.leaseMs / 3);
    await this.slots.take();
    try {
      if (this.stopping.aborted) return this.tell(() => item.nak());
      await this.answer(run, Number(lastWord(item.subject)));
      this.options.counts.lines += 1;
      this.tell(() => item.ack());
    } catch (error) {
      const state = error instanceof Refused ? error.state : undefined;
      if (state === "gone") this.tell(() => item.ack());
      // A negative acknowledgement could take the item from the worker that holds it now, so none is sent.
      else if (state !== "fenced") this.tell(() => item.nak(run.signal.aborted ? undefined : PAUSE_MS));
    } finally {
      clearInterval(beats);
      this.slots.giveBack();
    }
  }

  private async answer({ id, signal }: Run, line: number): Promise<void> {
    const { connection, name } = this.options;
    const attempt = new Attempt(connection, id, line, name, signal);
    const request = await attempt.take();
    const answer = await this.execute(request, signal);
    signal.throwIfAborted();
    await this.judge(request, answer);
    signal.throwIfAborted();
    await attempt.deliver(answer);
  }

  private async execute(
    { url, body, readImageFile }: Call & Pick<LineRequest, "readImageFile">,
    signal: AbortSignal,
  ): Promise<LineAnswer> {
    try {
      return await this.options.answerer({ url, body, readImageFile, priority: "batch", signal });
    } catch (error) {
      return { failed: String(error instanceof Error ? error.message : error).slice(0, 1000) };
    }
  }

  /**
   * Counts server errors of answers. The runner decides whether a line is at fault; a worker that only fails does not
   * help it.
   */
  private async judge(
    request: Call & Pick<LineRequest, "readImageFile">,
    answer: LineAnswer,
  ): Promise<void> {
    if (isGood(answer)) {
      this.failures = 0;
      if (request.readImageFile === undefined) this.good = request; // a probe cannot read the run's images
    } else if ("failed" in answer || answer.status >= 500 && !isBusy(answer)) {
      this.failures += 1;
      if (this.failures < MAX_FAILURES) return;
      await (this.probing ??= this.probe(request, answer).finally(() => this.probing = undefined));
    }
  }

  /** Probes the engine: many lines may be bad, but an engine that cannot answer a good line is broken. */
  private async probe(failed: Call, last: LineAnswer): Promise<void> {
    const answer = await this.execute(probeOf(failed, this.good), this.now);
    if (isGood(answer)) this.failures = 0;
    if (isGood(answer) || isBusy(answer)) return;
    const message = `The engine answers only with server errors: the last ${this.failures} lines failed, ` +
      `the last one with ${JSON.stringify(last).slice(0, 400)}. The lines in flight go to other workers`;
    this.failed.abort(new BatchError("engine_unavailable", message, true));
  }

  /** Sends a message, unless the connection is already closed. */
  private tell(say: () => void): void {
    if (!this.options.connection.nats.isClosed()) say();
  }
}

function isGood(answer: LineAnswer): boolean {
  return "status" in answer && answer.status === 200;
}

/** Returns whether the answer means "busy", so that the line is retried. */
function isBusy(answer: LineAnswer): boolean {
  return "status" in answer && answer.status === 503;
}
