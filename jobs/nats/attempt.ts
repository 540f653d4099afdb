import { concat } from "@std/bytes/concat.js";
import { delay } from "@std/async/delay.js";
import { retry } from "@std/async/retry.js";
import type { z } from "zod";
import type { ReadImage } from "../run/dispatch.ts";
import type { Connection } from "./connection.ts";
import {
  answerReply,
  decodeMessage,
  encodeJson,
  encodeMessage,
  imageReply,
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
/**
 * Backoff between requests to an unreachable coordinator. NO_ROOM_PAUSE_MS applies if it has no memory for an answer.
 */
const PAUSES = { minTimeout: 100, maxTimeout: 2000, maxAttempts: Number.MAX_SAFE_INTEGER };
const NO_ROOM_PAUSE_MS = 500;

/** Thrown if the coordinator refuses this attempt; `state` is the reason. */
export class Refused extends Error {
  override name = "Refused";
  constructor(readonly state: Refusal) {
    super(`the coordinator says "${state}"`);
  }
}

/**
 * A worker's attempt at one line. It fetches the request from the coordinator and sends the answer, each in as many
 * messages as the server's size limit needs. Throws Refused, and the signal's reason after an abort.
 */
export class Attempt {
  /** Distinguishes this attempt's answer from those of other attempts. */
  private readonly attempt = crypto.randomUUID();

  constructor(
    private readonly connection: Connection,
    private readonly run: string,
    private readonly line: number,
    private readonly worker: string,
    private readonly signal: AbortSignal,
  ) {}

  /** Returns the line's request. If the line may name image files, `readImageFile` reads them. */
  async take(): Promise<z.infer<typeof lineRequest> & { readonly readImageFile?: ReadImage }> {
    const { line, worker, attempt } = this;
    let files = false;
    const bytes = await fetchParts(async (offset) => {
      const { head, bytes } = await this.ask("take", takeReply, { line, worker, attempt, offset });
      if (head.state !== "granted") throw new Refused(head.state);
      files = head.files;
      return { total: head.total, bytes };
    });
    const request = parseJson(lineRequest, bytes);
    return files ? { ...request, readImageFile: (url) => this.readImageFile(url) } : request;
  }

  private async readImageFile(url: string): Promise<Uint8Array<ArrayBuffer> | string> {
    const { line, attempt } = this;
    let unreadable: string | undefined;
    const found = await fetchParts(async (offset) => {
      const { head, bytes } = await this.ask("image", imageReply, { line, attempt, url, offset });
      if (head.state === "unreadable") unreadable = head.reason;
      else if (head.state !== "read") throw new Refused(head.state);
      return { total: "total" in head ? head.total : 0, bytes };
    });
    return unreadable ?? found;
  }

  async deliver(answer: LineAnswer): Promise<void> {
    const { line, attempt } = this;
    const bytes = bounded(answer);
    for (let offset = 0;;) {
      const part = bytes.subarray(offset, offset + this.connection.chunk);
      const { head } = await this.ask(
        "answer",
        answerReply,
        { line, attempt, offset, total: bytes.length },
        part,
      );
      if (head.state === "taken") return;
      if (head.state !== "more") throw new Refused(head.state);
      if (head.offset <= offset) await delay(NO_ROOM_PAUSE_MS, { signal: this.signal });
      offset = head.offset;
    }
  }

  /** Sends a request, and retries while the coordinator is unreachable. Returns the decoded reply. */
  private async ask<T>(verb: Verb, schema: z.ZodType<T>, head: unknown, bytes?: Uint8Array) {
    const { nats } = this.connection;
    const message = encodeMessage(head, bytes);
    const request = () => nats.request(runSubject(this.run, verb), message, { timeout: REQUEST_TIMEOUT_MS });
    const isRetriable = () => !nats.isClosed();
    const reply = await retry(request, { ...PAUSES, isRetriable, signal: this.signal });
    return decodeMessage(schema, reply.data);
  }
}

/** Returns all bytes of a message that arrives in parts. `fetchPart` returns the bytes from an offset on. */
async function fetchParts(
  fetchPart: (offset: number) => Promise<{ total: number; bytes: Uint8Array }>,
): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = [];
  for (let have = 0;;) {
    const { total, bytes } = await fetchPart(have);
    parts.push(bytes);
    have += bytes.length;
    if (have === total) return concat(parts);
    if (have > total || bytes.length === 0) {
      throw new WireError("data whose length differs from the announced one");
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
