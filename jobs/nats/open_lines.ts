import { concat } from "@std/bytes/concat.js";
import type { Answer } from "../answers.ts";
import {
  type AnswerReply,
  type AnswerRequest,
  encodeJson,
  type LineAnswer,
  lineAnswer,
  MAX_ANSWER_BYTES,
  parseJson,
  type Refusal,
} from "./wire.ts";

/** An answer, and who gave it. */
export interface WorkerAnswer extends Answer {
  /** The worker's name. */
  readonly engine: string;
}

/** A line that waits for its answer. */
export interface OpenLine {
  readonly url: string;
  readonly body: Record<string, unknown>;
  readonly resolve: (answer: Answer | WorkerAnswer) => void;
  readonly reject: (error: unknown) => void;
}

/** One worker's try at a line, under a token of its own, with the part of its answer that has come. */
interface Attempt {
  readonly worker: string;
  readonly parts: Uint8Array[];
  total: number;
  have: number;
}

interface LineState extends OpenLine {
  readonly id: number;
  /** The request as JSON, once somebody has asked for it. */
  request: Uint8Array | undefined;
  readonly attempts: Map<string, Attempt>;
  /** Workers that fell silent while they had it. */
  silenced: number;
}

/** Bytes of half-received answers at once, of all workers. */
const MAX_PARTIAL_BYTES = 4 * MAX_ANSWER_BYTES;
/** A line with which so many workers fell silent may be what ends them. Such lines are tried one after the other. */
const SUSPECT_AFTER = 2;
/** With so many it is taken for that. */
const MAX_SILENCED = 6;

/**
 * The lines of a run that have no answer yet, and which workers try them. Knows nothing of the network and of time. The
 * first whole answer of an attempt that counts settles a line, once; what comes after it is dropped.
 */
export class OpenLines {
  private readonly lines = new Map<number, LineState>();
  private nextId = 0;
  private partialBytes = 0;
  /** Attempts at lines that had been tried before, and answers that came too late. */
  readonly stats = { repeated: 0, late: 0 };

  /** Takes a line in, and says by which number it goes. */
  add(line: OpenLine): number {
    const id = this.nextId++;
    this.lines.set(id, { ...line, id, request: undefined, attempts: new Map(), silenced: 0 });
    return id;
  }

  /** The lines, in the order in which they came. */
  ids(): number[] {
    return [...this.lines.keys()];
  }

  /** Nobody wants the line's answer any more. */
  remove(id: number): void {
    const line = this.lines.get(id);
    if (line === undefined) return;
    for (const attempt of line.attempts.values()) this.dropParts(attempt);
    this.lines.delete(id);
  }

  /** The line's request as JSON, for a worker that begins an attempt, or that continues to fetch it. */
  take(id: number, token: string, worker: string): Uint8Array | "gone" | "later" {
    const line = this.lines.get(id);
    if (line === undefined) return "gone";
    if (!line.attempts.has(token)) {
      if (isSuspect(line) && this.isSuspectTried()) return "later";
      if (line.attempts.size > 0) this.stats.repeated += 1;
      line.attempts.set(token, { worker, parts: [], total: 0, have: 0 });
    }
    return line.request ??= encodeJson({ url: line.url, body: line.body });
  }

  /** Takes bytes of an answer. Bytes that are no answer in the end are the line's failure. */
  answer({ line: id, attempt: token, offset, total }: AnswerRequest, bytes: Uint8Array): AnswerReply {
    const line = this.lines.get(id);
    const attempt = line?.attempts.get(token);
    if (line === undefined || attempt === undefined) return this.late(line === undefined ? "gone" : "fenced");
    if (attempt.total !== total) {
      this.dropParts(attempt);
      if (this.partialBytes + total > MAX_PARTIAL_BYTES) return { state: "more", offset: 0 };
      attempt.total = total;
      this.partialBytes += total;
    }
    if (offset === attempt.have && bytes.length <= total - attempt.have) {
      attempt.parts.push(bytes.slice());
      attempt.have += bytes.length;
    }
    if (attempt.have < total) return { state: "more", offset: attempt.have };
    const whole = concat(attempt.parts);
    this.remove(id);
    settle(line, attempt.worker, whole);
    return { state: "taken" };
  }

  /** A worker is gone, without a word where it is `silent`: what it still brings is dropped. */
  fenceOff(worker: string, silent: boolean): void {
    for (const line of this.lines.values()) {
      const { attempts } = line;
      const tried = attempts.size;
      for (const [token, attempt] of attempts) {
        if (attempt.worker !== worker) continue;
        this.dropParts(attempt);
        attempts.delete(token);
      }
      if (silent && attempts.size < tried) line.silenced += 1;
      if (line.silenced < MAX_SILENCED) continue;
      this.remove(line.id);
      line.resolve(SILENCER);
    }
  }

  /** Takes back the lines that nobody tries. */
  withdraw(): OpenLine[] {
    const taken = [...this.lines.values()].filter(({ attempts }) => attempts.size === 0);
    for (const { id } of taken) this.lines.delete(id);
    return taken;
  }

  /** Takes back all lines. */
  close(): OpenLine[] {
    const taken = [...this.lines.values()];
    for (const { id } of taken) this.remove(id);
    return taken;
  }

  private isSuspectTried(): boolean {
    return this.lines.values().some((line) => isSuspect(line) && line.attempts.size > 0);
  }

  private late(state: Refusal): AnswerReply {
    this.stats.late += 1;
    return { state };
  }

  private dropParts(attempt: Attempt): void {
    this.partialBytes -= attempt.total;
    attempt.total = attempt.have = 0;
    attempt.parts.length = 0;
  }
}

function isSuspect({ silenced }: LineState): boolean {
  return silenced >= SUSPECT_AFTER;
}

/** The answer of a line that seems to end the workers that try it. */
const SILENCER: Answer = {
  status: 500,
  body: {
    error: {
      message:
        `${MAX_SILENCED} workers ended, or were not heard of any more, while they answered this request`,
      type: "server_error",
      param: null,
      code: "workers_lost",
    },
  },
  final: true,
};

function settle(line: OpenLine, worker: string, bytes: Uint8Array): void {
  const fail = (message: string) => line.reject(Object.assign(new Error(message), { engine: worker }));
  let answer: LineAnswer;
  try {
    answer = parseJson(lineAnswer, bytes);
  } catch (error) {
    return fail(`Worker ${worker} answered with ${(error as Error).message}`);
  }
  if ("failed" in answer) fail(answer.failed);
  else line.resolve({ ...answer, engine: worker });
}
