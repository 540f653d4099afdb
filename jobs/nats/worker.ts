import { type Consumer, jetstream, type JsMsg } from "@nats-io/jetstream";
import { sleep } from "../dispatch.ts";
import { type Connection, connectionEnded } from "./connection.ts";
import { type Answerer, Lease } from "./lease.ts";
import {
  beatReply,
  beatRequest,
  consumerName,
  decodeMessage,
  encodeMessage,
  joinReply,
  leaseReply,
  type ModelIdentity,
  parseJson,
  type RunNotice,
  runNotice,
  RUNS_SUBJECT,
  runSubject,
  STREAM,
  type Verb,
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
  readonly answerer: Answerer;
  readonly note: (text: string) => void;
  /** Kept up to date. */
  readonly counts: WorkerCounts;
  /** Take no new lines, end what is in flight, return. */
  readonly drainSignal: AbortSignal;
  /** Return now; the lines in flight go to others. */
  readonly signal: AbortSignal;
}

/** What a worker has done. */
export interface WorkerCounts {
  ranges: number;
  lines: number;
  /** Leases that ended before their lines were answered. */
  lost: number;
}

const REQUEST_TIMEOUT_MS = 2000;
/** The least that NATS lets a pull wait. */
const PULL_MS = 1000;
const PAUSE_MS = 500;
const TICK_MS = 50;
/** A run that is silent for a lease, or at least for so long, has no coordinator any more. */
const SILENT_MS = 2000;
const MAX_RUNS = 1000;

interface Run {
  readonly id: string;
  readonly leaseMs: number;
  readonly leases: Set<Lease>;
  state: "new" | "joined" | "refused";
  consumer: Consumer | undefined;
  heardAt: number;
  beatAt: number;
}

/**
 * Answers lines of all runs that it hears of and that want its model, until a signal comes. Throws BatchError when the
 * connection ends for good.
 */
export async function runWorker(options: WorkerOptions): Promise<void> {
  await new Worker(options).work();
}

class Worker {
  private readonly runs = new Map<string, Run>();
  private readonly inFlight = new Set<Promise<void>>();
  private readonly stopping: AbortSignal;
  private busyLines = 0;
  private freed = Promise.withResolvers<void>();

  constructor(private readonly options: WorkerOptions) {
    this.stopping = AbortSignal.any([options.signal, options.drainSignal]);
  }

  async work(): Promise<void> {
    const { connection: { nats }, signal, note } = this.options;
    const notices = nats.subscribe(RUNS_SUBJECT, {
      callback: (error, message) => void (error ?? this.heed(message.data)),
    });
    const ticks = setInterval(() => this.tick(), TICK_MS);
    const endAll = () => {
      for (const { leases } of this.runs.values()) for (const lease of leases) lease.end();
    };
    signal.addEventListener("abort", endAll, { once: true });
    try {
      while (!this.stopping.aborted && !nats.isClosed()) await this.round();
      if (this.inFlight.size > 0) note(`Ending ${this.busyLines} lines`);
      await Promise.all(this.inFlight);
    } finally {
      clearInterval(ticks);
      signal.removeEventListener("abort", endAll);
      notices.unsubscribe();
    }
    if (!this.stopping.aborted) throw connectionEnded(this.options.connection, await nats.closed());
  }

  /** Takes one range, of the run whose turn it is; waits where there is nothing to take or no room for it. */
  private async round(): Promise<void> {
    let took = false;
    for (const run of [...this.runs.values()]) {
      await this.waitForRoom();
      if (this.stopping.aborted) return;
      try {
        if (run.state === "new") await this.join(run);
        if (run.state === "joined" && this.runs.has(run.id)) took = await this.pull(run) || took;
      } catch {
        // The server, the stream or the coordinator is away for now.
        run.consumer = undefined;
      }
    }
    if (!took) await sleep(PAUSE_MS / 10, this.stopping);
  }

  private async waitForRoom(): Promise<void> {
    const stopped = Promise.withResolvers<void>();
    const stop = () => stopped.resolve();
    this.stopping.addEventListener("abort", stop, { once: true });
    while (this.busyLines >= this.options.parallel && !this.stopping.aborted) {
      this.freed = Promise.withResolvers<void>();
      await Promise.race([this.freed.promise, stopped.promise]);
    }
    this.stopping.removeEventListener("abort", stop);
  }

  private heed(data: Uint8Array): void {
    let notice: RunNotice;
    try {
      notice = decodeMessage(runNotice, data).head;
    } catch (error) {
      if (error instanceof WireError) return;
      throw error;
    }
    const known = this.runs.get(notice.run);
    if (notice.ended) return this.forget(known);
    if (known) {
      known.heardAt = performance.now();
    } else if (this.runs.size < MAX_RUNS) {
      const now = performance.now();
      const { run: id, leaseMs } = notice;
      const run: Run = {
        id,
        leaseMs,
        leases: new Set(),
        state: "new",
        consumer: undefined,
        heardAt: now,
        beatAt: now,
      };
      this.runs.set(id, run);
    }
  }

  private forget(run: Run | undefined): void {
    if (run === undefined) return;
    this.runs.delete(run.id);
    if (run.state === "joined") this.options.note(`Run ${run.id} has ended`);
    for (const lease of run.leases) lease.end();
  }

  private tick(): void {
    const now = performance.now();
    for (const run of this.runs.values()) {
      if (now - run.heardAt > Math.max(SILENT_MS, run.leaseMs)) this.forget(run);
      else if (run.state === "joined" && now - run.beatAt >= run.leaseMs / 3) void this.beat(run, now);
    }
  }

  private async join(run: Run): Promise<void> {
    const { name, parallel, model, note } = this.options;
    const message = encodeMessage({ version: WIRE_VERSION, worker: name, parallel, model });
    const { refused } = decodeMessage(joinReply, await this.ask(run, "join", message)).head;
    run.state = refused === null ? "joined" : "refused";
    note(refused === null ? `Working for run ${run.id}` : `Refused by run ${run.id}: ${refused}`);
  }

  private async pull(run: Run): Promise<boolean> {
    const { connection: { nats } } = this.options;
    run.consumer ??= await jetstream(nats).consumers.get(STREAM, consumerName(run.id));
    const item = await run.consumer.next({ expires: PULL_MS });
    if (item === null) return false;
    if (this.stopping.aborted) {
      item.nak();
      return false;
    }
    await this.take(run, item);
    return true;
  }

  private async take(run: Run, item: JsMsg): Promise<void> {
    const { connection: { nats }, name } = this.options;
    let reply: Uint8Array;
    try {
      const message = encodeMessage({ ...parseJson(workItem, item.data), worker: name });
      reply = await this.ask(run, "lease", message);
    } catch (error) {
      item.nak(PAUSE_MS);
      throw error;
    }
    const { head, bytes } = decodeMessage(leaseReply, reply);
    if (head.state === "gone") return item.ack();
    if (head.state === "stranger") {
      run.state = "new";
      return item.nak(PAUSE_MS);
    }
    const lease = new Lease(nats, run.id, head.fence, head.total, bytes);
    const work = this.hold(run, lease, item).finally(() => this.inFlight.delete(work));
    this.inFlight.add(work);
  }

  /** Works through a lease, with signs of life to the queue and the coordinator. */
  private async hold(run: Run, lease: Lease, item: JsMsg): Promise<void> {
    run.leases.add(lease);
    const beats = setInterval(() => item.working(), run.leaseMs / 3);
    // Until they are counted, as if it were one.
    let lines = 1;
    this.busyLines += lines;
    try {
      await lease.work(this.options.answerer, (count) => {
        this.busyLines += count - lines;
        lines = count;
      });
      item.ack();
      this.options.counts.ranges += 1;
      this.options.counts.lines += lines;
    } catch {
      this.options.counts.lost += 1;
      // To others at once; but a nak for an item that another worker has by now would take it from that one.
      if (!lease.fenced && !this.options.connection.nats.isClosed()) item.nak();
    } finally {
      clearInterval(beats);
      run.leases.delete(lease);
      this.busyLines -= lines;
      this.freed.resolve();
    }
  }

  private async beat(run: Run, now: number): Promise<void> {
    run.beatAt = now;
    const fences = [...run.leases].map(({ fence }) => fence);
    const message = encodeMessage(beatRequest.parse({ worker: this.options.name, fences }));
    try {
      const over = new Set(decodeMessage(beatReply, await this.ask(run, "beat", message)).head.fenced);
      for (const lease of run.leases) if (over.has(lease.fence)) lease.fenceOff();
    } catch {
      // The coordinator is away; a run that stays silent is forgotten.
    }
  }

  private async ask(run: Run, verb: Verb, message: Uint8Array): Promise<Uint8Array> {
    const { connection: { nats } } = this.options;
    return (await nats.request(runSubject(run.id, verb), message, { timeout: REQUEST_TIMEOUT_MS })).data;
  }
}
