import { concat } from "@std/bytes/concat.js";
import type { Answer } from "../answers.ts";
import type { ReadImage } from "../run/dispatch.ts";
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

/** An answer and the worker that gave it. */
export interface WorkerAnswer extends Answer {
  /** Name of the worker that answered. */
  readonly engine: string;
}

/** A line that has no answer yet. */
export interface OpenLine {
  readonly url: string;
  readonly body: Record<string, unknown>;
  readonly readImageFile?: ReadImage;
  readonly resolve: (answer: Answer | WorkerAnswer) => void;
  readonly reject: (error: unknown) => void;
}

/** One worker's attempt at a line, with the part of its answer received so far. Each attempt has its own token. */
interface Attempt {
  readonly worker: string;
  readonly parts: Uint8Array[];
  total: number;
  have: number;
}

interface LineState extends OpenLine {
  readonly id: number;
  /** The request as JSON; undefined until a worker asks for it. */
  request: Uint8Array | undefined;
  readonly attempts: Map<string, Attempt>;
  /** Number of workers that fell silent while they held the line. */
  silenced: number;
}

/** Maximum bytes of partly received answers of all workers together. */
const MAX_PARTIAL_BYTES = 4 * MAX_ANSWER_BYTES;
/** Number of silent workers from which a line may be crashing its workers. Such lines are tried one at a time. */
const SUSPECT_AFTER = 2;
/** Number of silent workers from which a line becomes an error. */
const MAX_SILENCED = 6;

/**
 * The unanswered lines of a run, and the workers that try them. The class does not use the network or a clock. The
 * first complete answer of a valid attempt settles a line, once; later answers are dropped.
 */
export class OpenLines {
  private readonly lines = new Map<number, LineState>();
  private nextId = 0;
  private partialBytes = 0;
  /** Counts of attempts at lines that already had one, and of answers that came too late. */
  readonly stats = { repeated: 0, late: 0 };

  /** Adds a line and returns its number. */
  add(line: OpenLine): number {
    const id = this.nextId++;
    this.lines.set(id, { ...line, id, request: undefined, attempts: new Map(), silenced: 0 });
    return id;
  }

  /** Returns the numbers of the open lines, in the order in which they were added. */
  ids(): number[] {
    return [...this.lines.keys()];
  }

  /** Removes a line whose answer is no longer needed. */
  remove(id: number): void {
    const line = this.lines.get(id);
    if (line === undefined) return;
    for (const attempt of line.attempts.values()) this.dropParts(attempt);
    this.lines.delete(id);
  }

  /** Returns a function that reads the line's image files; undefined if it may name no files, or the attempt is over. */
  imagesOf(id: number, token: string): ReadImage | undefined {
    const line = this.lines.get(id);
    return line?.attempts.has(token) ? line.readImageFile : undefined;
  }

  /** Returns the line's request as JSON, for a new attempt or one that continues to fetch it. */
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

  /** Adds bytes to an attempt's answer. A complete answer that is invalid fails the line. */
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

  /** Drops a worker's attempts, and all later bytes from it. `silent`: the worker left without a message. */
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

  /** Removes and returns the lines that no worker is trying. */
  withdraw(): OpenLine[] {
    const taken = [...this.lines.values()].filter(({ attempts }) => attempts.size === 0);
    for (const { id } of taken) this.lines.delete(id);
    return taken;
  }

  /** Removes and returns all lines. */
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

/** Error answer for a line that seems to crash its workers. */
const SILENCER: Answer = {
  status: 500,
  body: {
    error: {
      message: `${MAX_SILENCED} workers ended or stopped sending messages while they answered this request`,
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
