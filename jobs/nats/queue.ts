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

/** Items and consumers that nobody has looked after for so long leave the server by themselves. */
const FORGOTTEN_AFTER_MS = 60 * 60 * 1000;
const ALIVE_TIMEOUT_MS = 1000;

/**
 * One run's part of the work queue in JetStream: an item for each line without an answer, with a subject of its own, so
 * that the server holds no line twice. It is not the record: the server keeps it in memory and may lose everything at any
 * time. `mend` puts in again what is missing.
 */
export class WorkQueue {
  /** Lines below `next` were put in, and those below `settled` before the last time that it was mended. */
  private next = 0;
  private settled = 0;
  private readonly nats: NatsConnection;
  private readonly manager: JetStreamManager;

  constructor({ nats, manager }: Connection, private readonly run: string, private readonly leaseMs: number) {
    this.nats = nats;
    this.manager = manager;
  }

  /** Makes the stream and the run's consumer where they are missing. */
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
      max_ack_pending: -1, // workers pull no more than they work on
      inactive_threshold: nanos(FORGOTTEN_AFTER_MS),
    });
  }

  /** Puts in a line, whose number is larger than those before. Its item stays until a worker acknowledges it. */
  add(line: number): void {
    this.next = line + 1;
    this.put(line);
  }

  /**
   * Puts in what is missing of the lines without an answer: all are sent again, and the server drops what it has. Throws
   * where it does not answer.
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

  /** Leaves nothing of the run behind, and no stream where no other run needs it. */
  async remove(): Promise<void> {
    await this.removeRun(this.run);
    await this.removeForgotten();
    const { state } = await this.manager.streams.info(STREAM);
    // Another run that begins just now makes it again.
    if (state.messages + state.consumer_count === 0) await this.manager.streams.delete(STREAM);
  }

  /** Removes what coordinators that were killed have left. One that is only away for now puts its items in again. */
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
      // One that is there but does not answer is busy or stopped for a while.
      return !(error instanceof errors.RequestError && error.isNoResponders());
    }
  }
}
