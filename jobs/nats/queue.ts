import {
  AckPolicy,
  type ConsumerInfo,
  DiscardPolicy,
  type JetStreamManager,
  RetentionPolicy,
  StorageType,
} from "@nats-io/jetstream";
import { errors, nanos, type NatsConnection } from "@nats-io/transport-node";
import type { Connection } from "./connection.ts";
import { consumerName, lineSubject, runOfConsumer, runSubject, STREAM, WORK_SUBJECTS } from "./wire.ts";

/** Milliseconds without use after which items and consumers expire on the server. */
const FORGOTTEN_AFTER_MS = 60 * 60 * 1000;
const ALIVE_TIMEOUT_MS = 1000;

/**
 * One run's part of the JetStream work queue: one item per unanswered line. Each item has its own subject, so the
 * server holds no line twice. The queue is not the record: the server keeps it in memory and may lose it at any time.
 * `mend` adds missing items again.
 */
export class WorkQueue {
  /** Lines below `next` have been added; lines below `settled` were added before the last repair. */
  private next = 0;
  private settled = 0;
  private readonly nats: NatsConnection;
  private readonly manager: JetStreamManager;

  constructor({ nats, manager }: Connection, private readonly run: string, private readonly leaseMs: number) {
    this.nats = nats;
    this.manager = manager;
  }

  /** Creates the stream and the run's consumer if they are missing. Throws when the server does not answer. */
  async ensure(): Promise<ConsumerInfo> {
    await this.manager.streams.add({
      name: STREAM,
      subjects: [WORK_SUBJECTS],
      retention: RetentionPolicy.Workqueue,
      storage: StorageType.Memory,
      max_age: nanos(FORGOTTEN_AFTER_MS),
      max_msgs_per_subject: 1,
      discard: DiscardPolicy.New,
      discard_new_per_subject: true,
    });
    return await this.manager.consumers.add(STREAM, {
      durable_name: consumerName(this.run),
      filter_subject: lineSubject(this.run, "*"),
      ack_policy: AckPolicy.Explicit,
      ack_wait: nanos(this.leaseMs),
      max_ack_pending: -1, // no limit needed: workers pull only lines that they can process
      inactive_threshold: nanos(FORGOTTEN_AFTER_MS),
    });
  }

  /** Adds a line with a larger number than all before. Its queue item stays until a worker acknowledges it. */
  add(line: number): void {
    this.next = line + 1;
    this.put(line);
  }

  /**
   * Adds missing queue items: it sends the items of all unanswered lines, and the server drops duplicates. Throws when
   * the server does not answer.
   */
  async mend(lines: readonly number[]): Promise<void> {
    const settled = lines.filter((line) => line < this.settled);
    this.settled = this.next;
    const { num_pending, num_ack_pending } = await this.ensure();
    if (num_pending + num_ack_pending < settled.length) settled.forEach((line) => this.put(line));
  }

  private put(line: number): void {
    if (!this.nats.isClosed()) this.nats.publish(lineSubject(this.run, line));
  }

  /** Removes the run's items and consumer, and the stream if no other run needs it. */
  async remove(): Promise<void> {
    await this.removeRun(this.run);
    await this.removeForgotten();
    const { state } = await this.manager.streams.info(STREAM);
    // A run that begins at this moment will create the stream again.
    if (state.messages + state.consumer_count === 0) await this.manager.streams.delete(STREAM);
  }

  /** Removes leftovers of killed coordinators. A coordinator that is only disconnected adds its items again. */
  async removeForgotten(): Promise<void> {
    for await (const { name } of this.manager.consumers.list(STREAM)) {
      const run = runOfConsumer(name);
      if (run !== undefined && run !== this.run && !await this.isAlive(run)) await this.removeRun(run);
    }
  }

  private async removeRun(run: string): Promise<void> {
    await this.manager.consumers.delete(STREAM, consumerName(run));
    await this.manager.streams.purge(STREAM, { filter: lineSubject(run, "*") });
  }

  private async isAlive(run: string): Promise<boolean> {
    try {
      await this.nats.request(runSubject(run, "ping"), undefined, { timeout: ALIVE_TIMEOUT_MS });
      return true;
    } catch (error) {
      // A coordinator that is connected but does not answer is busy or paused.
      return !(error instanceof errors.RequestError && error.isNoResponders());
    }
  }
}
