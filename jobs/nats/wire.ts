import { concat } from "@std/bytes/concat.js";
import { z } from "zod";
import { identityDifference, type ModelIdentity } from "../model_identity.ts";
import { parseRequest } from "../written_numbers.ts";

/*
 * The messages between coordinators and workers. A coordinator is one run of `batch run --nats`, a worker is one
 * `batch worker`.
 *
 *   compy.batch.runs              coordinator to all, twice a second: the roll call of a run (RunNotice)
 *   compy.batch.run.RUN.VERB      worker to coordinator: join (its reply to each roll call), leave, take, image and
 *                                 answer; ping, from other coordinators
 *   compy.batch.work.RUN.LINE     the queue, in the JetStream stream STREAM: one empty item per line
 *
 * JetStream delivers the items, redelivers them when a worker falls silent, and keeps them until they are acknowledged.
 * An item carries nothing but its subject: requests and answers go directly between worker and coordinator and are
 * never stored in the queue. Messages come from a network, so a schema here validates each one before any other code
 * uses it.
 */

/** Version of the messages. Coordinators and workers of different versions refuse each other. */
export const WIRE_VERSION = 5;
export const STREAM = "compy-batch";
export const WORK_SUBJECTS = "compy.batch.work.>";
export const RUNS_SUBJECT = "compy.batch.runs";

/** Maximum bytes of a line's request. A line has at most 16 MiB, but rewriting its numbers can make it longer. */
const MAX_REQUEST_BYTES = 128 * 1024 * 1024;
/** Maximum bytes of a line's answer. */
export const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
/** Bytes reserved for a message's head. */
const HEAD_BYTES = 4096;
const LEAST_PAYLOAD = 16 * 1024;
const MOST_CHUNK = 512 * 1024;
const MAX_HEAD_BYTES = 256 * 1024;
const MAX_IDENTITY = 32;

export type Verb = "join" | "leave" | "take" | "image" | "answer" | "ping";

export function lineSubject(run: string, line: number | "*"): string {
  return `compy.batch.work.${run}.${line}`;
}

/** Returns the last word of a subject: a line's number or a verb. */
export function lastWord(subject: string): string {
  return subject.slice(subject.lastIndexOf(".") + 1);
}

export function runSubject(run: string, verb: Verb | "*"): string {
  return `compy.batch.run.${run}.${verb}`;
}

export function consumerName(run: string): string {
  return `run-${run}`;
}

export function runOfConsumer(name: string): string | undefined {
  return /^run-([0-9a-f]{16})$/.exec(name)?.[1];
}

/**
 * Returns how many bytes one message can carry besides its head. Throws WireError when the server's limit is too small.
 */
export function chunkBytes(maxPayload: number): number {
  if (maxPayload < LEAST_PAYLOAD) {
    throw new WireError(
      `max_payload must be at least ${LEAST_PAYLOAD} bytes (got ${maxPayload}); raise it there`,
    );
  }
  return Math.min(maxPayload, MOST_CHUNK) - HEAD_BYTES;
}

const runId = z.string().regex(/^[0-9a-f]{16}$/);
const workerName = z.string().regex(/^[A-Za-z0-9_.-]{1,80}$/);
const attempt = z.string().regex(/^[0-9a-f-]{36}$/);
const count = z.number().int().min(0).max(2 ** 40);
const reason = z.string().max(2000);
const version = z.number().int();

/** Validates a ModelIdentity. */
const modelIdentity = z.record(z.string().max(64), z.union([z.string().max(512), z.number()]))
  .refine((identity) => Object.keys(identity).length <= MAX_IDENTITY, "too many entries");

/** Schema of the fields that a notice has in every version. */
export const versionedNotice = z.object({ version, run: runId });
export const runNotice = versionedNotice.extend({
  leaseMs: z.number().int().min(100).max(3_600_000),
  model: modelIdentity,
  /** Whether the run has ended: there is no more work, and lines in progress are no longer needed. */
  ended: z.boolean(),
});
export type RunNotice = z.infer<typeof runNotice>;

/**
 * Schema of a worker's reply to a notice, after comparing versions and models. `refused`: why it does not take part.
 */
export const joinMessage = z.object({
  worker: workerName,
  parallel: z.number().int().min(1).max(65_536),
  refused: reason.nullable(),
});
export const leaveMessage = z.object({ worker: workerName });

/** Schema of a worker's request for a line. Each time it receives a line, it creates a new `attempt`. */
export const takeRequest = z.object({ line: count, worker: workerName, attempt, offset: count });
/** Reasons why a worker must drop a line. */
export const refusal = z.enum([
  /** The line is answered or no longer needed; the worker acknowledges its queue item. */
  "gone",
  /** The line must be tried later: workers fell silent with it, and such lines are tried one at a time. */
  "later",
  /** The worker was silent for a whole lease, and the line went to others. */
  "fenced",
  /** The worker has not joined, or was refused. */
  "stranger",
]);
export type Refusal = z.infer<typeof refusal>;
/**
 * Schema of the reply to a request for a line. "granted" comes with bytes of the line's request (LineRequest as JSON),
 * starting at the offset. `total`: length of the whole request in bytes. `files`: whether the line may name image files.
 */
export const takeReply = z.union([
  z.object({ state: z.literal("granted"), total: count.max(MAX_REQUEST_BYTES), files: z.boolean() }),
  z.object({ state: refusal }),
]);

/** Schema of a worker's request for an image file that its line names. */
export const imageRequest = z.object({ line: count, attempt, url: z.string(), offset: count });
/** Schema of the reply: "read" comes with the file's bytes from the offset on, "unreadable" with the reason. */
export const imageReply = z.union([
  z.object({ state: z.literal("read"), total: count.max(MAX_REQUEST_BYTES) }),
  z.object({ state: z.literal("unreadable"), reason }),
  z.object({ state: refusal }),
]);

export const lineRequest = z.object({
  url: z.string().max(256),
  body: z.record(z.string(), z.unknown()),
});

/**
 * Schema of an answer's message. Bytes of the answer (LineAnswer as JSON) follow, from `offset`; `total` is its full
 * length.
 */
export const answerRequest = z.object({
  line: count,
  attempt,
  offset: count,
  total: count.min(2).max(MAX_ANSWER_BYTES),
});
export type AnswerRequest = z.infer<typeof answerRequest>;
export const answerReply = z.union([
  z.object({ state: z.literal("taken") }),
  /** Reply that asks for the bytes from `offset`. An unchanged offset means that there is no memory at the moment. */
  z.object({ state: z.literal("more"), offset: count }),
  z.object({ state: refusal }),
]);
export type AnswerReply = z.infer<typeof answerReply>;

export const lineAnswer = z.union([
  z.object({
    status: z.number().int().min(100).max(599),
    body: z.record(z.string(), z.unknown()),
    final: z.boolean().optional(),
  }),
  /** The line got no HTTP-like answer. */
  z.object({ failed: reason }),
]);
export type LineAnswer = z.infer<typeof lineAnswer>;

/** An invalid message. */
export class WireError extends Error {
  override name = "WireError";
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

export function encodeJson(value: unknown): Uint8Array {
  return encoder.encode(JSON.stringify(value));
}

/** Returns a message: its head as JSON, a line feed, then the bytes. */
export function encodeMessage(head: unknown, bytes: Uint8Array = new Uint8Array(0)): Uint8Array {
  return concat([encoder.encode(`${JSON.stringify(head)}\n`), bytes]);
}

/** Returns the head and bytes of a message. Throws WireError when it is invalid. */
export function decodeMessage<T>(schema: z.ZodType<T>, message: Uint8Array): { head: T; bytes: Uint8Array } {
  const end = message.subarray(0, MAX_HEAD_BYTES).indexOf(10);
  if (end < 0) throw new WireError("a message without a head");
  return { head: parseJson(schema, message.subarray(0, end)), bytes: message.subarray(end + 1) };
}

/** Returns the parsed and validated JSON. Throws WireError when it is invalid. */
export function parseJson<T>(schema: z.ZodType<T>, bytes: Uint8Array): T {
  let value: unknown;
  try {
    value = parseRequest(decoder.decode(bytes));
  } catch {
    throw new WireError("a message that is not JSON in UTF-8");
  }
  const { success, data, error } = schema.safeParse(value);
  if (success) return data;
  const [issue] = error.issues;
  throw new WireError(`a message whose ${issue.path.join(".") || "content"} is wrong: ${issue.message}`);
}

/** Returns why a run and a worker cannot work together; undefined if their versions are equal. */
export function versionDifference(run: number, worker: number): string | undefined {
  if (run === worker) return undefined;
  return `the run speaks version ${run} of compy's batch messages, the worker version ${worker}; run the same compy ` +
    "on both";
}

/** Returns how the models of a run and a worker differ, or undefined when they are equal. */
export function modelDifference(run: ModelIdentity, worker: ModelIdentity): string | undefined {
  const words = (key: string, wanted: string, got: string) =>
    `the run wants ${key} ${wanted}, the worker has ${got}`;
  const difference = identityDifference(run, worker, words);
  return difference && `${difference}; give both the same model file and options`;
}
