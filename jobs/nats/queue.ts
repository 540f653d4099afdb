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
const PUBLISHED_AT_ONCE = 256;
/** The server's count may be older than what it is compared with. */
const SETTLED_MS = 1000;

interface Item {
  /** Since when the server has it; undefined while it has not said so. */
  queuedAt: number | undefined;
  /** How often it was lost. */
  lost: number;
}

/**
 * One run's part of the work queue in JetStream: an item for each line without an answer. It is not the record: the server
 * keeps it in memory and may lose everything at any time. `mend` puts in again what is missing.
 */
export class WorkQueue {
  private readonly items = new Map<number, Item>();
  private readonly client: JetStreamClient;
  private readonly manager: JetStreamManager;
  private readonly subject: string;

  constructor({ nats, manager }: Connection, private readonly run: string, private readonly leaseMs: number) {
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

  add(line: number): void {
    const item = { queuedAt: undefined, lost: 0 };
    this.items.set(line, item);
    void this.put(line, item);
  }

  /** The line has its answer. Its item stays until a worker acknowledges it. */
  delete(line: number): void {
    this.items.delete(line);
  }

  /** Puts in what is missing. Throws where the server does not answer. */
  async mend(): Promise<void> {
    await this.ensure();
    await this.findLost(performance.now() - SETTLED_MS);
    const missing = [...this.items].filter(([, { queuedAt }]) => queuedAt === undefined);
    for (let from = 0; from < missing.length; from += PUBLISHED_AT_ONCE) {
      const lines = missing.slice(from, from + PUBLISHED_AT_ONCE).filter(([line]) => this.items.has(line));
      await Promise.all(lines.map(([line, item]) => this.put(line, item)));
    }
  }

  /** Leaves nothing of the run behind, and no stream where no other run needs it. */
  async remove(): Promise<void> {
    this.items.clear();
    await this.manager.consumers.delete(STREAM, consumerName(this.run));
    await this.manager.streams.purge(STREAM, { filter: this.subject });
    const { state } = await this.manager.streams.info(STREAM);
    // Another run that begins just now makes it again.
    if (state.messages + state.consumer_count === 0) await this.manager.streams.delete(STREAM);
  }

  /**
   * Which items are lost is unknown, so all are put in again. A second item for a line that a worker has in hand
   * costs next to nothing: by the time that another has room for it, the line is mostly answered.
   */
  private async findLost(before: number): Promise<void> {
    const settled = () => [...this.items.values()].filter(({ queuedAt }) => queuedAt! < before);
    if (settled().length === 0 || await this.count() >= settled().length) return;
    for (const item of settled()) {
      item.queuedAt = undefined;
      item.lost += 1;
    }
  }

  /** Items of the run, with those that are handed out and not acknowledged. */
  private async count(): Promise<number> {
    const { state } = await this.manager.streams.info(STREAM, { subjects_filter: this.subject });
    return state.subjects?.[this.subject] ?? 0;
  }

  private async put(line: number, item: Item): Promise<void> {
    try {
      // The server drops what comes twice under one id: an item whose confirmation was late.
      const options = { timeout: PUBLISH_TIMEOUT_MS, msgID: `${this.run}.${line}.${item.lost}` };
      await this.client.publish(this.subject, JSON.stringify({ line }), options);
      item.queuedAt = performance.now();
    } catch {
      // `mend` tries again.
    }
  }
}
