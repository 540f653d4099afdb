import { type Consumer, jetstream, type JsMsg } from "@nats-io/jetstream";
import type { Msg } from "@nats-io/transport-node";
import { type Execute, sleep } from "../dispatch.ts";
import { BatchError } from "../errors.ts";
import type { ModelIdentity } from "../model_identity.ts";
import { Attempt, Refused } from "./attempt.ts";
import { type Connection, connectionEnded } from "./connection.ts";
import { Slots } from "./slots.ts";
import {
  consumerName,
  decodeMessage,
  encodeMessage,
  type LineAnswer,
  modelDifference,
  parseJson,
  runNotice,
  RUNS_SUBJECT,
  runSubject,
  STREAM,
  versionDifference,
  versionedNotice,
  WIRE_VERSION,
  WireError,
  workItem,
} from "./wire.ts";

export interface WorkerOptions {
  readonly connection: Connection;
  readonly model: ModelIdentity;
  /** Letters, digits, `_`, `.` and `-`; no two workers have the same. */
  readonly name: string;
  /** Lines at once. */
  readonly parallel: number;
  /** Answers a line as a local engine does. */
  readonly answerer: Execute;
  readonly note: (text: string) => void;
  /** Kept up to date. */
  readonly counts: WorkerCounts;
  /** Take no new lines, end what is in flight, return. */
  readonly drainSignal: AbortSignal;
  /** Return now; the lines in flight go to others. */
  readonly signal: AbortSignal;
  /** The engine has failed for good, for the signal's reason: hand the lines in flight to others and throw it. */
  readonly engineFailed?: AbortSignal;
}

/** What a worker has done. */
export interface WorkerCounts {
  lines: number;
}

const FETCH_MS = 5000;
const PAUSE_MS = 500;
const TICK_MS = 250;
/** A run that is silent for a lease, or at least for so long, has no coordinator any more. */
const SILENT_MS = 2000;
const MAX_RUNS = 1000;
/** So many server errors with no good answer among them are the engine's fault, not the lines'. */
const MAX_FAILURES = 8;

interface Run {
  readonly id: string;
  readonly leaseMs: number;
  readonly refused: string | undefined;
  readonly over: AbortController;
  /** Ticks since it was heard of: a process that slept has had none. */
  silent: number;
}

/**
 * Answers lines of all runs that it hears of and that want its model, until a signal comes. Throws BatchError when the
 * connection or the engine has failed for good.
 */
export async function runWorker(options: WorkerOptions): Promise<void> {
  await new Worker(options).work();
}

class Worker {
  private readonly runs = new Map<string, Run>();
  private readonly inFlight = new Set<Promise<void>>();
  private readonly slots: Slots;
  /** The connection or the engine has, for the reason of `broken`. */
  private readonly failed = new AbortController();
  private readonly broken: AbortSignal;
  /** Give up what is in flight. */
  private readonly now: AbortSignal;
  /** Take nothing new. */
  private readonly stopping: AbortSignal;
  /** Server errors since the last good answer. */
  private failures = 0;

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
    await new Promise((resolve) => {
      this.stopping.addEventListener("abort", resolve);
      if (this.stopping.aborted) resolve(undefined);
    });
    this.slots.wake();
    if (this.inFlight.size > 0 && !this.now.aborted) note(`Ending ${this.inFlight.size} lines`);
    await Promise.all(this.inFlight);
    clearInterval(ticks);
    notices.unsubscribe();
    const leave = encodeMessage({ worker: this.options.name });
    for (const run of this.runs.values()) {
      if (run.refused === undefined) this.tell(() => nats.publish(runSubject(run.id, "leave"), leave));
    }
    this.broken.throwIfAborted();
  }

  /** Answers a run's roll call; a run that is new begins. */
  private heed(message: Msg): void {
    const { name: worker, parallel, model } = this.options;
    try {
      this.hear(message.data);
    } catch (error) {
      if (error instanceof WireError) return;
      throw error;
    }
    this.tell(() => message.respond(encodeMessage({ version: WIRE_VERSION, worker, parallel, model })));
  }

  private hear(data: Uint8Array): void {
    const { run: id, version } = decodeMessage(versionedNotice, data).head;
    const known = this.runs.get(id);
    if (known !== undefined) known.silent = 0;
    const wrong = versionDifference(version, WIRE_VERSION);
    const notice = wrong === undefined ? decodeMessage(runNotice, data).head : undefined;
    if (notice?.ended) return this.forget(known);
    if (known !== undefined || this.runs.size === MAX_RUNS || this.stopping.aborted) return;
    this.begin({
      id,
      leaseMs: notice?.leaseMs ?? SILENT_MS,
      refused: wrong ?? modelDifference(notice!.model, this.options.model),
      over: new AbortController(),
      silent: 0,
    });
  }

  private begin(run: Run): void {
    this.runs.set(run.id, run);
    if (run.refused !== undefined) return this.options.note(`Refused by run ${run.id}: ${run.refused}`);
    this.options.note(`Working for run ${run.id}`);
    void this.serve(run);
  }

  private forget(run: Run | undefined): void {
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

  /** Takes a run's lines as there is room for them, beside those of other runs. */
  private async serve(run: Run): Promise<void> {
    const over = AbortSignal.any([this.stopping, run.over.signal]);
    const { consumers } = jetstream(this.options.connection.nats);
    let consumer: Consumer | undefined;
    while (!over.aborted) {
      await this.slots.room();
      try {
        consumer ??= await consumers.get(STREAM, consumerName(run.id));
        await this.fetch(run, consumer, over);
      } catch {
        // The server, the stream or its consumer is away for now.
        consumer = undefined;
        await sleep(PAUSE_MS, over);
      }
    }
  }

  private async fetch(run: Run, consumer: Consumer, over: AbortSignal): Promise<void> {
    if (over.aborted) return;
    const items = await consumer.fetch({
      max_messages: Math.ceil(Math.max(this.slots.free, 1) / this.runs.size),
      expires: FETCH_MS,
    });
    const stop = () => items.stop();
    over.addEventListener("abort", stop, { once: true });
    if (over.aborted) stop();
    try {
      for await (const item of items) {
        const held = this.hold(run, item).finally(() => this.inFlight.delete(held));
        this.inFlight.add(held);
      }
    } finally {
      over.removeEventListener("abort", stop);
    }
  }

  /** One item in hand, with signs of life to the queue. Never rejects. */
  private async hold(run: Run, item: JsMsg): Promise<void> {
    const signal = AbortSignal.any([this.now, run.over.signal]);
    const beats = setInterval(() => this.tell(() => item.working()), run.leaseMs / 3);
    await this.slots.take();
    try {
      if (this.stopping.aborted) return this.tell(() => item.nak());
      await this.answer(run, item, signal);
    } catch (error) {
      const state = error instanceof Refused ? error.state : undefined;
      if (state === "gone") this.tell(() => item.ack());
      // A nak for an item that another worker has by now would take it from that one.
      else if (state !== "fenced") this.tell(() => item.nak(signal.aborted ? undefined : PAUSE_MS));
    } finally {
      clearInterval(beats);
      this.slots.giveBack();
    }
  }

  private async answer(run: Run, item: JsMsg, signal: AbortSignal): Promise<void> {
    const { connection, name, answerer, counts } = this.options;
    const { line } = parseJson(workItem, item.data);
    const attempt = new Attempt(connection, run.id, line, name, signal);
    const { url, body } = await attempt.take();
    let answer: LineAnswer;
    try {
      answer = await answerer({ url, body, priority: "batch", signal });
    } catch (error) {
      answer = { failed: String(error instanceof Error ? error.message : error).slice(0, 1000) };
    }
    signal.throwIfAborted();
    this.judge(answer);
    signal.throwIfAborted();
    await attempt.deliver(answer);
    this.tell(() => item.ack());
    counts.lines += 1;
  }

  /** The runner finds out whose fault a server error was; a worker that gives no other answer is of no use to it. */
  private judge(answer: LineAnswer): void {
    if ("status" in answer && answer.status === 200) this.failures = 0;
    // 503: the engine is busy, and the line is asked again.
    else if ("failed" in answer || answer.status >= 500 && answer.status !== 503) this.failures += 1;
    if (this.failures < MAX_FAILURES) return;
    const last = JSON.stringify(answer).slice(0, 400);
    const message =
      `The engine answers with nothing but server errors: the last ${MAX_FAILURES} lines failed in it, ` +
      `the last one with ${last}. The lines in hand go to other workers`;
    this.failed.abort(new BatchError("engine_unavailable", message, true));
  }

  /** To a connection that may be closed by now. */
  private tell(say: () => void): void {
    if (!this.options.connection.nats.isClosed()) say();
  }
}
