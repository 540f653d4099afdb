import type { NatsConnection } from "@nats-io/transport-node";
import type { Answer } from "../answers.ts";
import { sleep } from "../dispatch.ts";
import {
  answerReply,
  chunkBytes,
  chunkReply,
  decodeMessage,
  encodeMessage,
  type LineAnswer,
  MAX_ANSWER_BYTES,
  parseJson,
  rangePayload,
  runSubject,
  WireError,
} from "./wire.ts";

/** Answers one request as the local engine does. */
export type Answerer = (request: {
  url: string;
  body: Record<string, unknown>;
  priority: "batch";
  signal: AbortSignal;
}) => Promise<Answer>;

const REQUEST_TIMEOUT_MS = 2000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2000;

/**
 * One range in a worker's hands: its requests are fetched, answered, and each answer is brought to the coordinator as
 * soon as it is there. Ends early, by the lease's signal, when the coordinator says that the lease is over.
 */
export class Lease {
  /** The coordinator has said that the lease is over. */
  fenced = false;
  private readonly over = new AbortController();
  private readonly chunk: number;

  constructor(
    private readonly nats: NatsConnection,
    private readonly run: string,
    readonly fence: string,
    /** Bytes of the requests. */
    private readonly total: number,
    private readonly first: Uint8Array,
  ) {
    this.chunk = chunkBytes(nats.info!.max_payload);
  }

  get signal(): AbortSignal {
    return this.over.signal;
  }

  /** Nobody wants the range from this worker any more: another has it, or it is answered. */
  fenceOff(): void {
    this.fenced = true;
    this.end();
  }

  /** The worker or the run stops. */
  end(): void {
    this.over.abort();
  }

  /** Resolves with the lines of the range when all are answered. Rejects when the lease ends before. */
  async work(answerer: Answerer, onLines: (count: number) => void): Promise<void> {
    const { lines } = parseJson(rangePayload, await this.fetch());
    onLines(lines.length);
    await Promise.all(lines.map(async ({ line, url, body }) => {
      const answer = await this.answerOf(answerer, url, body);
      this.signal.throwIfAborted();
      await this.deliver(line, answer);
    }));
  }

  private async fetch(): Promise<Uint8Array> {
    const whole = new Uint8Array(this.total);
    let have = 0;
    const take = (bytes: Uint8Array) => {
      if (bytes.length === 0 || bytes.length > this.total - have) {
        throw new WireError("requests of another length than was said");
      }
      whole.set(bytes, have);
      have += bytes.length;
    };
    take(this.first);
    while (have < this.total) {
      const message = encodeMessage({ fence: this.fence, offset: have });
      const { head, bytes } = await this.ask("chunk", message, (reply) => decodeMessage(chunkReply, reply));
      if (head.state === "fenced") this.fenceOff();
      this.signal.throwIfAborted();
      take(bytes);
    }
    return whole;
  }

  private async answerOf(
    answerer: Answerer,
    url: string,
    body: Record<string, unknown>,
  ): Promise<Uint8Array> {
    let answer: LineAnswer;
    try {
      answer = await answerer({ url, body, priority: "batch", signal: this.signal });
    } catch (error) {
      answer = { failed: (error instanceof Error ? error.message : String(error)).slice(0, 1000) };
    }
    const bytes = new TextEncoder().encode(JSON.stringify(answer));
    if (bytes.length <= MAX_ANSWER_BYTES) return bytes;
    const failed =
      `The answer has ${bytes.length} bytes; ${MAX_ANSWER_BYTES} are allowed. Ask for less in one line`;
    return new TextEncoder().encode(JSON.stringify({ failed }));
  }

  private async deliver(line: number, answer: Uint8Array): Promise<void> {
    for (let offset = 0, pause = FIRST_PAUSE_MS;;) {
      const head = { fence: this.fence, line, offset, total: answer.length };
      const message = encodeMessage(head, answer.subarray(offset, offset + this.chunk));
      const reply = await this.ask("answer", message, (data) => decodeMessage(answerReply, data).head);
      if (reply.state === "taken") return;
      if (reply.state === "fenced") this.fenceOff();
      this.signal.throwIfAborted();
      if (reply.state === "more") {
        offset = reply.offset;
      } else {
        await sleep(pause, this.signal);
        pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
      }
    }
  }

  /** Asks the coordinator, again and again while it is away, until the lease is over. */
  private async ask<T>(
    verb: "chunk" | "answer",
    message: Uint8Array,
    read: (reply: Uint8Array) => T,
  ): Promise<T> {
    for (let pause = FIRST_PAUSE_MS;; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      this.signal.throwIfAborted();
      let reply: Uint8Array | undefined;
      try {
        reply =
          (await this.nats.request(runSubject(this.run, verb), message, { timeout: REQUEST_TIMEOUT_MS }))
            .data;
      } catch (error) {
        if (this.nats.isClosed()) throw error;
      }
      if (reply !== undefined) return read(reply);
      await sleep(pause, this.signal);
    }
  }
}
