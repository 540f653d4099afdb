import type { Msg } from "@nats-io/transport-node";
import { BatchError } from "../errors.ts";
import type { Execute } from "../runner.ts";
import { type Connection, connectionEnded } from "./connection.ts";
import { WorkQueue } from "./queue.ts";
import { Ranges } from "./ranges.ts";
import {
  answerRequest,
  beatRequest,
  chunkBytes,
  chunkRequest,
  decodeMessage,
  encodeMessage,
  type JoinRequest,
  joinRequest,
  leaseRequest,
  modelDifference,
  type ModelIdentity,
  type RunNotice,
  RUNS_SUBJECT,
  runSubject,
  WIRE_VERSION,
  WireError,
} from "./wire.ts";

export interface CoordinatorOptions {
  readonly connection: Connection;
  readonly model: ModelIdentity;
  /** Take back what no worker has begun, so that the job stops soon. */
  readonly drainSignal: AbortSignal;
  /** Tells a person what happens. */
  readonly note: (text: string) => void;
  /** How long a worker may be silent before its lines go to another. */
  readonly leaseMs?: number;
}

interface KnownWorker {
  readonly parallel: number;
  heardAt: number;
}

export const DEFAULT_LEASE_MS = 15_000;
const TICK_MS = 500;
/** Lines that come within this time make one range. */
const FORM_MS = 5;
/** A queue's answer may be older than what it is asked about. */
const SETTLED_MS = 1000;
const ALONE_NOTE_MS = 30_000;
const MAX_WORKERS = 10_000;
const MAX_NOTED_REFUSALS = 20;
const PUBLISHED_AT_ONCE = 64;
const CLOSE_TIMEOUT_MS = 3000;

/**
 * Answers lines by workers: its `execute` stands where a local engine's does, so that the runner and its journal are
 * the same. What the queue and the workers lose, it hands out again; what comes twice or late, it drops.
 */
export class Coordinator {
  private readonly run = crypto.randomUUID().replaceAll("-", "").slice(0, 16);
  private readonly ranges = new Ranges();
  private readonly workers = new Map<string, KnownWorker>();
  private readonly queue: WorkQueue;
  private readonly leaseMs: number;
  private readonly chunk: number;
  private readonly timer: ReturnType<typeof setInterval>;
  private formTimer: ReturnType<typeof setTimeout> | undefined;
  private ticking: Promise<void> | undefined;
  private publishing: Promise<void> | undefined;
  private refusals = 0;
  private aloneNotedAt = performance.now();
  private closed = false;
  private failure: BatchError | undefined;

  private constructor(private readonly options: CoordinatorOptions) {
    const { connection: { nats } } = options;
    this.leaseMs = options.leaseMs ?? DEFAULT_LEASE_MS;
    this.queue = new WorkQueue(options.connection, this.run, this.leaseMs);
    this.chunk = chunkBytes(nats.info!.max_payload);
    nats.subscribe(runSubject(this.run, "*"), {
      callback: (error, message) => void (error ?? this.reply(message)),
    });
    this.timer = setInterval(() => this.tick(), TICK_MS);
    options.drainSignal.addEventListener("abort", this.drain, { once: true });
    void nats.closed().then((reason) => this.fail(connectionEnded(options.connection, reason)));
  }

  /** Throws BatchError when the queue cannot be made. */
  static async open(options: CoordinatorOptions): Promise<Coordinator> {
    const coordinator = new Coordinator(options);
    try {
      await coordinator.queue.ensure();
    } catch (error) {
      await coordinator.close();
      if (error instanceof BatchError) throw error;
      const message = `Cannot make a work queue on the NATS server at ${options.connection.where}: ${
        messageOf(error)
      }`;
      throw new BatchError("queue_unavailable", message, true, { cause: error });
    }
    coordinator.announce(false);
    return coordinator;
  }

  /** How often ranges were handed out, handed out again, and how many answers came too late. */
  get stats(): Readonly<Ranges["stats"]> {
    return this.ranges.stats;
  }

  /** Answers one line, by whichever worker takes it. After the drain signal, what nobody has begun is "busy" (503). */
  readonly execute: Execute = ({ url, body }) => {
    if (this.failure) return Promise.reject(this.failure);
    if (this.closed || this.options.drainSignal.aborted) return Promise.resolve(NOT_BEGUN);
    return new Promise((resolve, reject) => {
      if (this.ranges.add({ url, body, resolve, reject })) this.form();
      else this.formTimer ??= setTimeout(() => this.form(), FORM_MS);
    });
  };

  /** Says good-bye to workers and leaves nothing in the queue. The connection stays open. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    clearInterval(this.timer);
    clearTimeout(this.formTimer);
    this.options.drainSignal.removeEventListener("abort", this.drain);
    for (const line of this.ranges.close()) line.resolve(NOT_BEGUN);
    const { nats } = this.options.connection;
    if (nats.isClosed()) return;
    this.announce(true);
    const removed = this.queue.remove().then(() => nats.flush());
    // A server that is away must not hold up the end: what is left there is forgotten in time.
    await Promise.race([removed, sleep(CLOSE_TIMEOUT_MS)]).catch(() => {});
  }

  private readonly drain = () => {
    for (const line of this.ranges.withdraw()) line.resolve(NOT_BEGUN);
  };

  private fail(failure: BatchError): void {
    if (this.closed) return;
    this.failure = failure;
    for (const line of this.ranges.close()) line.reject(failure);
  }

  private form(): void {
    clearTimeout(this.formTimer);
    this.formTimer = undefined;
    this.ranges.form();
    this.publish();
  }

  /** Puts into the queue what should be in it. What fails is tried again at the next tick. */
  private publish(): void {
    this.publishing ??= this.publishAll().finally(() => this.publishing = undefined);
  }

  private async publishAll(): Promise<void> {
    for (
      let ranges;
      !this.closed && (ranges = this.ranges.unqueued().slice(0, PUBLISHED_AT_ONCE)).length > 0;
    ) {
      const results = await Promise.allSettled(ranges.map(async ({ id, attempt }) => {
        const item = { range: id, attempt };
        await this.queue.put(item);
        this.ranges.queued(item, performance.now());
      }));
      if (results.some(({ status }) => status === "rejected")) return;
    }
  }

  private tick(): void {
    this.announce(false);
    const now = performance.now();
    // The queue notices a silent worker after one lease; this is for when the queue has lost the item.
    this.ranges.expire(now - 1.5 * this.leaseMs);
    if (this.options.drainSignal.aborted) this.drain();
    this.forgetWorkers(now);
    this.ticking ??= this.audit().finally(() => this.ticking = undefined);
  }

  /** Compares the queue with what it should have, and mends it. */
  private async audit(): Promise<void> {
    try {
      await this.queue.ensure();
      const before = performance.now() - SETTLED_MS;
      const expected = this.ranges.waiting(before);
      if (expected > 0 && await this.queue.count() < this.ranges.waiting(before)) {
        this.ranges.requeueWaiting(before);
      }
    } catch {
      // The connection is away, or the stream was removed just now: the next tick tries again.
      return;
    }
    this.publish();
  }

  private forgetWorkers(now: number): void {
    for (const [name, { heardAt }] of this.workers) {
      if (now - heardAt < 2 * this.leaseMs) continue;
      this.workers.delete(name);
      this.options.note(`Worker ${name} is not heard of any more; its lines go to others`);
    }
    if (this.workers.size > 0) this.aloneNotedAt = now;
    if (now - this.aloneNotedAt < ALONE_NOTE_MS) return;
    this.aloneNotedAt = now;
    this.options.note(
      "Waiting for workers: start one with deno task batch worker --nats URL --model FILE, with the same model",
    );
  }

  private announce(ended: boolean): void {
    const notice: RunNotice = { version: WIRE_VERSION, run: this.run, leaseMs: this.leaseMs, ended };
    this.options.connection.nats.publish(RUNS_SUBJECT, encodeMessage(notice));
  }

  private reply(message: Msg): void {
    if (this.closed) return;
    let reply: Uint8Array;
    try {
      reply = this.answer(message.subject.slice(message.subject.lastIndexOf(".") + 1), message.data);
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      reply = encodeMessage({ error: error.message });
    }
    message.respond(reply);
  }

  private answer(verb: string, data: Uint8Array): Uint8Array {
    const now = performance.now();
    switch (verb) {
      case "join":
        return encodeMessage({ refused: this.join(decodeMessage(joinRequest, data).head) });
      case "lease": {
        const { head: { worker, ...item } } = decodeMessage(leaseRequest, data);
        if (!this.workers.has(worker)) return encodeMessage({ state: "stranger" });
        this.hear(worker, now);
        const lease = this.ranges.lease(item, worker, now);
        if (lease === undefined) return encodeMessage({ state: "gone" });
        const { fence, payload } = lease;
        return encodeMessage(
          { state: "granted", fence, total: payload.length },
          payload.subarray(0, this.chunk),
        );
      }
      case "chunk": {
        const { fence, offset } = decodeMessage(chunkRequest, data).head;
        const bytes = this.ranges.payload(fence, offset, now);
        if (bytes === undefined) return encodeMessage({ state: "fenced" });
        return encodeMessage({ state: "chunk" }, bytes.subarray(0, this.chunk));
      }
      case "answer": {
        const { head, bytes } = decodeMessage(answerRequest, data);
        return encodeMessage(this.ranges.answer(head, bytes, now));
      }
      case "beat": {
        const { worker, fences } = decodeMessage(beatRequest, data).head;
        this.hear(worker, now);
        return encodeMessage({ fenced: this.ranges.beat(fences, now) });
      }
    }
    throw new WireError(`a request "${verb}" that is not known`);
  }

  private hear(worker: string, now: number): void {
    const known = this.workers.get(worker);
    if (known) known.heardAt = now;
  }

  /** Why a worker may not take part; null when it may. */
  private join({ version, worker, parallel, model }: JoinRequest): string | null {
    const refused = version !== WIRE_VERSION
      ? `the run speaks version ${WIRE_VERSION} of compy's batch messages, the worker version ${version}; run the ` +
        "same compy on both"
      : modelDifference(this.options.model, model) ??
        (this.workers.size >= MAX_WORKERS ? "too many workers" : null);
    if (refused !== null) {
      if (this.refusals++ < MAX_NOTED_REFUSALS) this.options.note(`Worker ${worker} is refused: ${refused}`);
      return refused;
    }
    if (!this.workers.has(worker)) {
      this.options.note(`Worker ${worker} takes part, ${parallel} lines at once`);
    }
    this.workers.set(worker, { parallel, heardAt: performance.now() });
    return null;
  }
}

/** To the runner: busy, ask again or stop. */
const NOT_BEGUN = { status: 503, body: {} };

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => Deno.unrefTimer(setTimeout(resolve, ms)));
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
