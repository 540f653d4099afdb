import {
  AckPolicy,
  jetstream,
  type JetStreamClient,
  type JetStreamManager,
  RetentionPolicy,
  StorageType,
} from "@nats-io/jetstream";
import { nanos } from "@nats-io/transport-node";
import type { Connection } from "./connection.ts";
import { consumerName, STREAM, WORK_SUBJECTS, workSubject } from "./wire.ts";

/** Items of runs whose coordinator went away without a word leave the queue after this time, and their consumers. */
const FORGOTTEN_AFTER_MS = 60 * 60 * 1000;
const PUBLISH_TIMEOUT_MS = 3000;

/**
 * One run's part of the work queue in JetStream. The queue is not the record: it may lose everything at any time, and it
 * lives in the server's memory.
 */
export class WorkQueue {
  private readonly client: JetStreamClient;
  private readonly manager: JetStreamManager;
  private readonly subject: string;

  constructor(
    { nats, manager }: Connection,
    private readonly run: string,
    private readonly leaseMs: number,
  ) {
    this.client = jetstream(nats, { timeout: PUBLISH_TIMEOUT_MS });
    this.manager = manager;
    this.subject = workSubject(run);
  }

  /** Makes the stream and the run's consumer where they are missing. */
  async ensure(): Promise<void> {
    await this.manager.streams.add({
      name: STREAM,
      subjects: [WORK_SUBJECTS],
      retention: RetentionPolicy.Workqueue,
      storage: StorageType.Memory,
      max_age: nanos(FORGOTTEN_AFTER_MS),
    });
    await this.manager.consumers.add(STREAM, {
      durable_name: consumerName(this.run),
      filter_subject: this.subject,
      ack_policy: AckPolicy.Explicit,
      ack_wait: nanos(this.leaseMs),
      max_ack_pending: -1, // workers pull no more than they work on
      inactive_threshold: nanos(FORGOTTEN_AFTER_MS),
    });
  }

  /** Resolves when the queue has an item for the line. The server drops what was put in under the same number of times. */
  async put(line: number, times: number): Promise<void> {
    const options = { timeout: PUBLISH_TIMEOUT_MS, msgID: `${this.run}.${line}.${times}` };
    await this.client.publish(this.subject, JSON.stringify({ line }), options);
  }

  /** Items of the run in the queue, with those that are handed out and not acknowledged. */
  async count(): Promise<number> {
    const { state } = await this.manager.streams.info(STREAM, { subjects_filter: this.subject });
    return state.subjects?.[this.subject] ?? 0;
  }

  /** Leaves nothing of the run behind, and no stream where no other run needs it. */
  async remove(): Promise<void> {
    await this.manager.consumers.delete(STREAM, consumerName(this.run));
    await this.manager.streams.purge(STREAM, { filter: this.subject });
    const { state } = await this.manager.streams.info(STREAM);
    // Another run that begins just now makes it again.
    if (state.messages + state.consumer_count === 0) await this.manager.streams.delete(STREAM);
  }
}
