import { concat } from "@std/bytes/concat.js";
import { delay } from "@std/async/delay.js";
import type { z } from "zod";
import type { Connection } from "./connection.ts";
import {
  answerReply,
  decodeMessage,
  encodeJson,
  encodeMessage,
  type LineAnswer,
  lineRequest,
  MAX_ANSWER_BYTES,
  parseJson,
  type Refusal,
  runSubject,
  takeReply,
  type Verb,
  WireError,
} from "./wire.ts";

const REQUEST_TIMEOUT_MS = 2000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2000;

/** The coordinator wants nothing of this attempt any more. */
export class Refused extends Error {
  override name = "Refused";
  constructor(readonly state: Refusal) {
    super(`the coordinator says "${state}"`);
  }
}

/**
 * A worker's try at one line: fetches its request from the coordinator and brings it the answer, each in as many messages
 * as the server's limit asks for. Throws Refused, and the signal's reason once that is over.
 */
export class Attempt {
  /** Tells the answer of this try from those of others. */
  private readonly attempt = crypto.randomUUID();

  constructor(
    private readonly connection: Connection,
    private readonly run: string,
    private readonly line: number,
    private readonly worker: string,
    private readonly signal: AbortSignal,
  ) {}

  async take(): Promise<z.infer<typeof lineRequest>> {
    const { line, worker, attempt } = this;
    const parts: Uint8Array[] = [];
    for (let have = 0;;) {
      const { head, bytes } = await this.ask("take", takeReply, { line, worker, attempt, offset: have });
      if (head.state !== "granted") throw new Refused(head.state);
      parts.push(bytes);
      have += bytes.length;
      if (have === head.total) return parseJson(lineRequest, concat(parts));
      if (have > head.total || bytes.length === 0) {
        throw new WireError("a request of another length than was said");
      }
    }
  }

  async deliver(answer: LineAnswer): Promise<void> {
    const { line, attempt } = this;
    const bytes = bounded(answer);
    for (let offset = 0, pause = FIRST_PAUSE_MS;;) {
      const head = { line, attempt, offset, total: bytes.length };
      const reply = await this.ask(
        "answer",
        answerReply,
        head,
        bytes.subarray(offset, offset + this.connection.chunk),
      );
      if (reply.head.state === "taken") return;
      if (reply.head.state !== "more") throw new Refused(reply.head.state);
      if (reply.head.offset <= offset) {
        await delay(pause, { signal: this.signal });
        pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
      }
      offset = reply.head.offset;
    }
  }

  /** Asks again and again while the coordinator is away. */
  private async ask<T>(verb: Verb, schema: z.ZodType<T>, head: unknown, bytes?: Uint8Array) {
    const { nats } = this.connection;
    const message = encodeMessage(head, bytes);
    for (let pause = FIRST_PAUSE_MS;; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      this.signal.throwIfAborted();
      let reply: Uint8Array | undefined;
      try {
        const options = { timeout: REQUEST_TIMEOUT_MS };
        reply = (await nats.request(runSubject(this.run, verb), message, options)).data;
      } catch (error) {
        if (nats.isClosed()) throw error;
      }
      if (reply !== undefined) return decodeMessage(schema, reply);
      await delay(pause, { signal: this.signal });
    }
  }
}

function bounded(answer: LineAnswer): Uint8Array {
  const bytes = encodeJson(answer);
  if (bytes.length <= MAX_ANSWER_BYTES) return bytes;
  return encodeJson({
    failed:
      `The answer must have at most ${MAX_ANSWER_BYTES} bytes (got ${bytes.length}); ask for less in one line`,
  });
}
