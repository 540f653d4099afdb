import type { Answer } from "../answers.ts";
import {
  type AnswerReply,
  type AnswerRequest,
  type LineAnswer,
  lineAnswer,
  MAX_ANSWER_BYTES,
  MAX_RANGE_LINES,
  parseJson,
  RANGE_BYTES,
  type WorkItem,
} from "./wire.ts";

/** A line that waits for its answer. */
export interface OpenLine {
  readonly url: string;
  readonly body: Record<string, unknown>;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

/** Lines that are handed out together. */
export interface Range {
  readonly id: number;
  /** Counts how often the range was put in the queue; items of earlier attempts are worth nothing. */
  readonly attempt: number;
  /** The time from which the queue has the item, undefined while it has not. */
  readonly queuedAt: number | undefined;
}

interface Lease {
  /** Whoever answers must know it; it changes with every worker that gets the range. */
  readonly fence: string;
  readonly worker: string;
  /** The open lines as JSON, RangePayload. */
  readonly payload: Uint8Array;
  readonly parts: Map<number, Parts>;
  heardAt: number;
}

/** An answer of which some bytes have come. */
interface Parts {
  readonly total: number;
  readonly bytes: Uint8Array[];
  have: number;
}

interface RangeState extends Range {
  attempt: number;
  queuedAt: number | undefined;
  lines: Map<number, OpenLine>;
  lease: Lease | undefined;
}

export interface LeaseGrant {
  readonly fence: string;
  readonly payload: Uint8Array;
}

/** Bytes of half-received answers at once, of all workers. */
const MAX_PARTIAL_BYTES = 4 * MAX_ANSWER_BYTES;

/**
 * What is in flight in one run: which ranges there are, who holds them under which fencing token, and which lines are
 * still without an answer. Knows nothing of the network, and the time only as it is told. Each line is settled exactly
 * once; a range whose lines are all settled is forgotten.
 */
export class Ranges {
  private readonly ranges = new Map<number, RangeState>();
  private readonly fences = new Map<string, RangeState>();
  private forming: { lines: Map<number, OpenLine>; bytes: number } = { lines: new Map(), bytes: 0 };
  private nextId = 0;
  private partialBytes = 0;
  /** Ranges handed out again, and answers that came too late to count. */
  readonly stats = { leases: 0, requeued: 0, fenced: 0 };

  /** Takes a line in; true when the range that it belongs to is full. */
  add(line: OpenLine): boolean {
    const { lines } = this.forming;
    lines.set(lines.size, line);
    this.forming.bytes += JSON.stringify(line.body).length;
    return lines.size === MAX_RANGE_LINES || this.forming.bytes >= RANGE_BYTES;
  }

  /** Makes a range of the lines that have been taken in since the last one. */
  form(): void {
    const { lines } = this.forming;
    if (lines.size === 0) return;
    const id = this.nextId++;
    this.ranges.set(id, { id, attempt: 0, queuedAt: undefined, lines, lease: undefined });
    this.forming = { lines: new Map(), bytes: 0 };
  }

  /** Those that the queue does not have and nobody works on. */
  unqueued(): Range[] {
    return [...this.ranges.values()].filter(({ queuedAt, lease }) => queuedAt === undefined && !lease);
  }

  /** The queue has the range's item of this attempt. */
  queued(item: WorkItem, now: number): void {
    const range = this.ranges.get(item.range);
    if (range?.attempt === item.attempt) range.queuedAt = now;
  }

  /** How many the queue must have since `before`, as nobody works on them. */
  waiting(before: number): number {
    return [...this.ranges.values()].filter((range) => isWaiting(range, before)).length;
  }

  /** The queue has lost items: those that nobody works on have to go into it again. */
  requeueWaiting(before: number): void {
    for (const range of this.ranges.values()) if (isWaiting(range, before)) this.requeue(range);
  }

  /** Hands a range to a worker; whoever had it before is fenced off. undefined when the item is worth nothing. */
  lease(item: WorkItem, worker: string, now: number): LeaseGrant | undefined {
    const range = this.ranges.get(item.range);
    if (range === undefined || range.attempt !== item.attempt) return undefined;
    if (range.lease) this.stats.requeued += 1;
    this.endLease(range);
    const lines = [...range.lines].map(([line, { url, body }]) => ({ line, url, body }));
    const payload = new TextEncoder().encode(JSON.stringify({ lines }));
    range.lease = { fence: crypto.randomUUID(), worker, payload, parts: new Map(), heardAt: now };
    this.fences.set(range.lease.fence, range);
    this.stats.leases += 1;
    return range.lease;
  }

  /** The requests of a lease from an offset on; undefined when it is over. */
  payload(fence: string, offset: number, now: number): Uint8Array | undefined {
    const lease = this.hear(fence, now);
    return lease?.payload.subarray(offset);
  }

  /** Takes bytes of an answer; one that is none in the end is its line's failure. */
  answer({ fence, line, offset, total }: AnswerRequest, bytes: Uint8Array, now: number): AnswerReply {
    const lease = this.hear(fence, now);
    const range = this.fences.get(fence);
    if (lease === undefined || range === undefined) {
      this.stats.fenced += 1;
      return { state: "fenced" };
    }
    const open = range.lines.get(line);
    // Its reply was lost on the way, and the worker asks again.
    if (open === undefined) return { state: "taken" };
    const parts = this.partsOf(lease, line, total);
    if (parts === undefined) return { state: "later" };
    if (offset === parts.have && bytes.length <= parts.total - parts.have) {
      parts.bytes.push(bytes.slice());
      parts.have += bytes.length;
    }
    if (parts.have < parts.total) return { state: "more", offset: parts.have };
    this.dropParts(lease, line);
    this.remove(range, line);
    settle(open, concat(parts.bytes, parts.total), lease.worker);
    return { state: "taken" };
  }

  /** Notes that a worker is alive; the fences that are over come back. */
  beat(fences: readonly string[], now: number): string[] {
    return fences.filter((fence) => this.hear(fence, now) === undefined);
  }

  /** Ends leases that have been silent since `before`; their ranges have to go into the queue again. */
  expire(before: number): void {
    for (const range of this.ranges.values()) {
      if (range.lease && range.lease.heardAt < before) this.requeue(range);
    }
  }

  /** Takes back the lines that nobody works on. */
  withdraw(): OpenLine[] {
    const taken = [...this.forming.lines.values()];
    this.forming = { lines: new Map(), bytes: 0 };
    for (const range of this.ranges.values()) {
      if (range.lease) continue;
      taken.push(...range.lines.values());
      this.ranges.delete(range.id);
    }
    return taken;
  }

  /** Ends everything; every open line comes back. */
  close(): OpenLine[] {
    for (const range of this.ranges.values()) this.endLease(range);
    return this.withdraw();
  }

  private hear(fence: string, now: number): Lease | undefined {
    const lease = this.fences.get(fence)?.lease;
    if (lease) lease.heardAt = now;
    return lease;
  }

  private requeue(range: RangeState): void {
    this.endLease(range);
    range.attempt += 1;
    range.queuedAt = undefined;
    this.stats.requeued += 1;
  }

  private endLease(range: RangeState): void {
    const { lease } = range;
    if (lease === undefined) return;
    for (const line of [...lease.parts.keys()]) this.dropParts(lease, line);
    this.fences.delete(lease.fence);
    range.lease = undefined;
  }

  private remove(range: RangeState, line: number): void {
    range.lines.delete(line);
    if (range.lines.size > 0) return;
    this.endLease(range);
    this.ranges.delete(range.id);
  }

  private partsOf(lease: Lease, line: number, total: number): Parts | undefined {
    const found = lease.parts.get(line);
    if (found?.total === total) return found;
    this.dropParts(lease, line);
    if (this.partialBytes + total > MAX_PARTIAL_BYTES) return undefined;
    const parts: Parts = { total, bytes: [], have: 0 };
    this.partialBytes += total;
    lease.parts.set(line, parts);
    return parts;
  }

  private dropParts(lease: Lease, line: number): void {
    this.partialBytes -= lease.parts.get(line)?.total ?? 0;
    lease.parts.delete(line);
  }
}

function isWaiting({ lease, queuedAt }: RangeState, before: number): boolean {
  return lease === undefined && queuedAt !== undefined && queuedAt < before;
}

function settle(line: OpenLine, bytes: Uint8Array, worker: string): void {
  let answer: LineAnswer;
  try {
    answer = parseJson(lineAnswer, bytes);
  } catch (error) {
    return line.reject(new Error(`Worker ${worker} answered with ${(error as Error).message}`));
  }
  if ("failed" in answer) line.reject(new Error(answer.failed));
  else line.resolve(answer);
}

function concat(parts: readonly Uint8Array[], total: number): Uint8Array {
  const whole = new Uint8Array(total);
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}
