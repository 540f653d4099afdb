import { concat } from "@std/bytes/concat.js";
import { z } from "zod";
import { identityDifference, type ModelIdentity } from "../model_identity.ts";

/*
 * What coordinators and workers say to each other. A coordinator is one run of `batch run --nats`, a worker is one
 * `batch worker`.
 *
 *   compy.batch.runs              coordinator to all, twice a second: the roll call of a run (RunNotice)
 *   compy.batch.run.RUN.VERB      worker to coordinator: join (its reply to each roll call) and leave, and the requests
 *                                 take and answer; ping, from other coordinators
 *   compy.batch.work.RUN.LINE     the queue, in the JetStream stream STREAM: an empty item for each line
 *
 * JetStream hands out the items, hands them out again when a worker falls silent, and keeps them until they are
 * acknowledged. An item is nothing but its subject: requests and answers go straight between worker and coordinator
 * and are never stored by the queue. Messages come from a network, so each is parsed by its schema here before anything
 * looks at it.
 */

/** Coordinators and workers of other versions refuse each other. */
export const WIRE_VERSION = 4;
export const STREAM = "compy-batch";
export const WORK_SUBJECTS = "compy.batch.work.>";
export const RUNS_SUBJECT = "compy.batch.runs";

/** Bytes of one line's request: a line has at most 16 MiB, and numbers can make it longer when it is written again. */
export const MAX_REQUEST_BYTES = 128 * 1024 * 1024;
/** Bytes of one line's answer. */
export const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
/** Room for a message's head beside its bytes. */
const HEAD_BYTES = 4096;
const LEAST_PAYLOAD = 16 * 1024;
const MOST_CHUNK = 512 * 1024;
const MAX_HEAD_BYTES = 256 * 1024;
const MAX_IDENTITY = 32;

export type Verb = "join" | "leave" | "take" | "answer" | "ping";

export function lineSubject(run: string, line: number | "*"): string {
  return `compy.batch.work.${run}.${line}`;
}

/** The last word of a subject: a line's number, a verb. */
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

/** Bytes that one message carries beside its head. Throws WireError where the server allows too little. */
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

/** ModelIdentity. */
const modelIdentity = z.record(z.string().max(64), z.union([z.string().max(512), z.number()]))
  .refine((identity) => Object.keys(identity).length <= MAX_IDENTITY, "too many entries");

/** What a message of any version has. */
export const versionedNotice = z.object({ version, run: runId });
export const runNotice = versionedNotice.extend({
  leaseMs: z.number().int().min(100).max(3_600_000),
  model: modelIdentity,
  /** No more work comes; what is in flight is not wanted any more. */
  ended: z.boolean(),
});
export type RunNotice = z.infer<typeof runNotice>;

/** The worker compares the versions and the models, and says here why it does not take part. */
export const joinMessage = z.object({
  worker: workerName,
  parallel: z.number().int().min(1).max(65_536),
  refused: reason.nullable(),
});
export const leaveMessage = z.object({ worker: workerName });

/** A worker makes a new `attempt` each time that it gets a line. */
export const takeRequest = z.object({ line: count, worker: workerName, attempt, offset: count });
/** Why a worker is to let go of a line. */
export const refusal = z.enum([
  /** It is answered, or nobody wants it any more: the item has no worth. */
  "gone",
  /** Not now: workers fell silent with it, and such lines are tried one after the other. */
  "later",
  /** The worker was silent for a lease, and the line went to others. */
  "fenced",
  /** The worker has not joined, or was refused. */
  "stranger",
]);
export type Refusal = z.infer<typeof refusal>;
/** With "granted" come the bytes of the line's request, LineRequest as JSON, from the offset on, of `total` in all. */
export const takeReply = z.union([
  z.object({ state: z.literal("granted"), total: count.max(MAX_REQUEST_BYTES) }),
  z.object({ state: refusal }),
]);

export const lineRequest = z.object({
  url: z.string().max(256),
  body: z.record(z.string(), z.unknown()),
});

/** The bytes beside it are those of a LineAnswer as JSON, from `offset` on, of `total` in all. */
export const answerRequest = z.object({
  line: count,
  attempt,
  offset: count,
  total: count.min(2).max(MAX_ANSWER_BYTES),
});
export type AnswerRequest = z.infer<typeof answerRequest>;
export const answerReply = z.union([
  z.object({ state: z.literal("taken") }),
  /** Bytes from `offset` on are wanted; the same offset again where there is no room just now. */
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
  /** There is no answer like HTTP's. */
  z.object({ failed: reason }),
]);
export type LineAnswer = z.infer<typeof lineAnswer>;

/** A message that is not what it should be. */
export class WireError extends Error {
  override name = "WireError";
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

export function encodeJson(value: unknown): Uint8Array {
  return encoder.encode(JSON.stringify(value));
}

/** A message: its head as JSON, a line feed, and bytes. */
export function encodeMessage(head: unknown, bytes: Uint8Array = new Uint8Array(0)): Uint8Array {
  return concat([encoder.encode(`${JSON.stringify(head)}\n`), bytes]);
}

/** Throws WireError. */
export function decodeMessage<T>(schema: z.ZodType<T>, message: Uint8Array): { head: T; bytes: Uint8Array } {
  const end = message.subarray(0, MAX_HEAD_BYTES).indexOf(10);
  if (end < 0) throw new WireError("a message without a head");
  return { head: parseJson(schema, message.subarray(0, end)), bytes: message.subarray(end + 1) };
}

/** Throws WireError. */
export function parseJson<T>(schema: z.ZodType<T>, bytes: Uint8Array): T {
  let value: unknown;
  try {
    value = JSON.parse(decoder.decode(bytes));
  } catch {
    throw new WireError("a message that is not JSON in UTF-8");
  }
  const { success, data, error } = schema.safeParse(value);
  if (success) return data;
  const [issue] = error.issues;
  throw new WireError(`a message whose ${issue.path.join(".") || "content"} is wrong: ${issue.message}`);
}

/** Why a run and a worker of different versions do not work together; undefined when they are the same. */
export function versionDifference(run: number, worker: number): string | undefined {
  if (run === worker) return undefined;
  return `the run speaks version ${run} of compy's batch messages, the worker version ${worker}; run the same compy ` +
    "on both";
}

/** What differs between the model of a run and that of a worker, in words; undefined when they are the same. */
export function modelDifference(run: ModelIdentity, worker: ModelIdentity): string | undefined {
  const words = (key: string, wanted: string, got: string) =>
    `the run wants ${key} ${wanted}, the worker has ${got}`;
  const difference = identityDifference(run, worker, words);
  return difference && `${difference}; give both the same model file and options`;
}
