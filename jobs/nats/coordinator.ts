import type { Msg } from "@nats-io/transport-node";
import { abortable } from "@std/async/abortable.js";
import { deadline } from "@std/async/deadline.js";
import type { z } from "zod";
import { BatchError } from "../errors.ts";
import type { ModelIdentity } from "../model_identity.ts";
import type { Execute } from "../run/runner.ts";
import { type Connection, connectionEnded } from "./connection.ts";
import { OpenLines } from "./open_lines.ts";
import { WorkQueue } from "./queue.ts";
import {
  answerRequest,
  decodeMessage,
  encodeMessage,
  imageRequest,
  joinMessage,
  lastWord,
  leaveMessage,
  type RunNotice,
  RUNS_SUBJECT,
  runSubject,
  STREAM,
  takeRequest,
  WIRE_VERSION,
  WireError,
} from "./wire.ts";

export interface CoordinatorOptions {
  readonly connection: Connection;
  readonly model: ModelIdentity;
  /** On abort, the lines that no worker has begun are withdrawn, so that the job stops soon. */
  readonly drainSignal: AbortSignal;
  /** Reports events to the user. */
  readonly note: (text: string) => void;
  /** Milliseconds for which a worker may be silent before its lines go to another worker. */
  readonly leaseMs?: number;
}

const DEFAULT_LEASE_MS = 15_000;
const TICK_MS = 500;
const ALONE_NOTE_MS = 30_000;
const MAX_WORKERS = 10_000;
const MAX_NOTED_REFUSALS = 20;
/** Maximum number of partly fetched images in memory. */
const MAX_IMAGES = 8;
const CLOSE_TIMEOUT_MS = 3000;

/**
 * Lets workers answer the lines of a job. Its `execute` replaces a local engine's, so the runner and its journal do not
 * change. JetStream delivers the lines, and redelivers them when a worker falls silent.
 */
export class Coordinator {
  private readonly run = crypto.randomUUID().replaceAll("-", "").slice(0, 16);
  private readonly lines = new OpenLines();
  /**
   * Number of roll calls that each joined worker has missed. Calls are counted instead of time, because a sleeping
   * process makes none.
   */
  private readonly workers = new Map<string, number>();
  /** Refused workers that were reported to the user. */
  private readonly refused = new Set<string>();
  /** Partly fetched images, by attempt and URL. The most recently used image comes last. */
  private readonly images = new Map<string, Uint8Array<ArrayBuffer>>();
  private readonly queue: WorkQueue;
  private readonly leaseMs: number;
  private readonly timer: ReturnType<typeof setInterval>;
  private mending: Promise<void> | undefined;
  private aloneNotedAt = performance.now();
  private closed = false;
  private failure: BatchError | undefined;

  private constructor(private readonly options: CoordinatorOptions) {
    const { connection, drainSignal } = options;
    const { nats } = connection;
    this.leaseMs = options.leaseMs ?? DEFAULT_LEASE_MS;
    this.queue = new WorkQueue(connection, this.run, this.leaseMs);
    nats.subscribe(runSubject(this.run, "*"), {
      callback: (error, message) => void (error ?? this.receive(message)),
    });
    this.timer = setInterval(() => this.tick(), TICK_MS);
    drainSignal.addEventListener("abort", this.drain, { once: true });
    void nats.closed().then((reason) => this.fail(connectionEnded(connection, reason)));
  }

  /** Creates the coordinator and its queue. Throws BatchError when the queue cannot be made. */
  static async open(options: CoordinatorOptions): Promise<Coordinator> {
    const coordinator = new Coordinator(options);
    try {
      await coordinator.queue.ensure();
    } catch (error) {
      await coordinator.close();
      const why = error instanceof Error ? error.message : String(error);
      const message =
        `Cannot make the stream "${STREAM}" on the NATS server at ${options.connection.where}: ${why}. If there ` +
        `is one of another configuration, remove it with "nats stream rm ${STREAM}"`;
      throw new BatchError("queue_unavailable", message, true, { cause: error });
    }
    await coordinator.queue.removeForgotten().catch(() => {}); // retried at the end of the run
    coordinator.announce(false);
    return coordinator;
  }

  /** Returns the number of attempts that repeated a line, and of answers that came too late. */
  get stats(): Readonly<OpenLines["stats"]> {
    return this.lines.stats;
  }

  /** Answers one line through any worker. After the drain signal, lines that no worker has begun get "busy" (503). */
  readonly execute: Execute = async ({ url, body, readImageFile, signal }) => {
    signal.throwIfAborted();
    if (this.failure) throw this.failure;
    if (this.closed || this.options.drainSignal.aborted) return NOT_BEGUN;
    const { promise, resolve, reject } = Promise.withResolvers<Awaited<ReturnType<Execute>>>();
    const line = this.lines.add({ url, body, readImageFile, resolve, reject });
    this.queue.add(line);
    try {
      return await abortable(promise, signal);
    } finally {
      this.lines.remove(line);
    }
  };

  /** Ends the run and removes it from the queue. Unanswered lines get "busy" (503). */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    clearInterval(this.timer);
    this.options.drainSignal.removeEventListener("abort", this.drain);
    for (const line of this.lines.close()) line.resolve(NOT_BEGUN);
    const { nats } = this.options.connection;
    if (nats.isClosed()) return;
    this.announce(true);
    // An unreachable server must not delay the end: its leftovers expire by themselves.
    await deadline(this.queue.remove().then(() => nats.flush()), CLOSE_TIMEOUT_MS).catch(() => {});
  }

  private readonly drain = () => {
    for (const line of this.lines.withdraw()) line.resolve(NOT_BEGUN);
  };

  private fail(failure: BatchError): void {
    if (this.closed) return;
    clearInterval(this.timer);
    this.failure = failure;
    for (const line of this.lines.close()) line.reject(failure);
  }

  private tick(): void {
    if (this.options.connection.nats.isClosed()) return;
    this.announce(false);
    this.forgetSilent();
    if (this.options.drainSignal.aborted) this.drain();
    // A failed repair is retried at the next tick.
    this.mending ??= this.queue.mend(this.lines.ids()).catch(() => {}).finally(() =>
      this.mending = undefined
    );
  }

  private forgetSilent(): void {
    for (const [name, missed] of this.workers) {
      this.workers.set(name, missed + 1);
      if (missed * TICK_MS > this.leaseMs) {
        this.forget(name, true, "sends no messages any more; its lines go to other workers");
      }
    }
    const now = performance.now();
    if (this.workers.size > 0) this.aloneNotedAt = now;
    if (now - this.aloneNotedAt < ALONE_NOTE_MS) return;
    this.aloneNotedAt = now;
    this.options.note(
      "Waiting for workers: start one with deno task batch worker --nats URL --model FILE, with the same model",
    );
  }

  private forget(worker: string, silent: boolean, why: string): void {
    if (!this.workers.delete(worker)) return;
    this.lines.fenceOff(worker, silent);
    this.options.note(`Worker ${worker} ${why}`);
  }

  /** Sends the roll call, to which workers reply with "join". */
  private announce(ended: boolean): void {
    const { connection: { nats }, model } = this.options;
    const notice: RunNotice = { version: WIRE_VERSION, run: this.run, leaseMs: this.leaseMs, model, ended };
    nats.publish(RUNS_SUBJECT, encodeMessage(notice), { reply: runSubject(this.run, "join") });
  }

  private receive(message: Msg): void {
    if (this.closed || this.options.connection.nats.isClosed()) return;
    try {
      const verb = lastWord(message.subject);
      if (verb === "image") {
        return void this.sendImage(message, decodeMessage(imageRequest, message.data).head);
      }
      message.respond(this.answer(verb, message.data));
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      message.respond(encodeMessage({ error: error.message }));
    }
  }

  /** Sends one part of an image file that a worker's line names. One read of the file serves all its parts. */
  private async sendImage(
    message: Msg,
    { line, attempt, url, offset }: z.infer<typeof imageRequest>,
  ): Promise<void> {
    const key = `${attempt} ${url}`;
    const found = await (this.images.get(key) ?? this.lines.imagesOf(line, attempt)?.(url));
    if (this.closed || this.options.connection.nats.isClosed()) return;
    if (found === undefined) return void message.respond(encodeMessage({ state: "fenced" }));
    if (typeof found === "string") {
      return void message.respond(encodeMessage({ state: "unreadable", reason: found }));
    }
    const part = found.subarray(offset, offset + this.options.connection.chunk);
    this.images.delete(key);
    if (offset + part.length < found.length) this.images.set(key, found);
    for (const oldest of this.images.keys()) if (this.images.size > MAX_IMAGES) this.images.delete(oldest);
    message.respond(encodeMessage({ state: "read", total: found.length }, part));
  }

  private answer(verb: string, data: Uint8Array): Uint8Array {
    switch (verb) {
      case "ping":
        return encodeMessage({});
      case "join":
        this.join(decodeMessage(joinMessage, data).head);
        return encodeMessage({});
      case "leave":
        this.forget(decodeMessage(leaveMessage, data).head.worker, false, "has left");
        return encodeMessage({});
      case "take": {
        const { line, worker, attempt, offset } = decodeMessage(takeRequest, data).head;
        if (!this.workers.has(worker)) return encodeMessage({ state: "stranger" });
        const request = this.lines.take(line, attempt, worker);
        if (typeof request === "string") return encodeMessage({ state: request });
        const files = this.lines.imagesOf(line, attempt) !== undefined;
        const head = { state: "granted", total: request.length, files };
        return encodeMessage(head, request.subarray(offset, offset + this.options.connection.chunk));
      }
      case "answer": {
        const { head, bytes } = decodeMessage(answerRequest, data);
        return encodeMessage(this.lines.answer(head, bytes));
      }
    }
    throw new WireError(`an unknown request "${verb}"`);
  }

  /** Records a worker's reply to a roll call: it joins, stays, or says why it refuses. */
  private join({ worker, parallel, refused }: z.infer<typeof joinMessage>): void {
    if (refused !== null) return this.noteRefusal(worker, refused);
    if (!this.workers.has(worker)) {
      if (this.workers.size >= MAX_WORKERS) return this.noteRefusal(worker, "too many workers");
      this.options.note(`Worker ${worker} takes part, ${parallel} lines at once`);
    }
    this.workers.set(worker, 0);
  }

  private noteRefusal(worker: string, why: string): void {
    if (this.refused.size >= MAX_NOTED_REFUSALS || this.refused.has(worker)) return;
    this.refused.add(worker);
    this.options.note(`Worker ${worker} is refused: ${why}`);
  }
}

/** Answer "busy": the runner then retries the line or stops. */
const NOT_BEGUN = { status: 503, body: {} };
