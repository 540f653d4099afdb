import { z } from "zod";

/*
 * What coordinators and workers say to each other. A coordinator is one run of `batch run --nats`, a worker is one
 * `batch worker`.
 *
 *   compy.batch.runs              coordinator to all: which runs there are, once a second (RunNotice)
 *   compy.batch.run.RUN.VERB      worker to coordinator, request and reply: join, lease, chunk, answer, beat
 *   compy.batch.work.RUN          the queue, in the JetStream stream STREAM: one item for each range of lines
 *
 * An item names a range and nothing else: requests and answers go straight between worker and coordinator and are never
 * stored by the queue. Messages come from a network, so each is parsed by its schema here before anything looks at it.
 */

/** Coordinators and workers of other versions refuse each other. */
export const WIRE_VERSION = 2;
export const STREAM = "compy-batch";
export const WORK_SUBJECTS = "compy.batch.work.*";
export const RUNS_SUBJECT = "compy.batch.runs";

/** Lines in one range, and the bytes from which a range takes no further line. */
export const MAX_RANGE_LINES = 8;
export const RANGE_BYTES = 256 * 1024;
/** Bytes of a range's requests: a line has at most 16 MiB, and escapes can make it longer when it is written again. */
export const MAX_RANGE_PAYLOAD = 128 * 1024 * 1024;
/** Bytes of one line's answer. */
export const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
export const MAX_LEASES = 1024;
/** Room for a message's head beside its bytes. */
const HEAD_BYTES = 4096;
const LEAST_PAYLOAD = 16 * 1024;
const MOST_CHUNK = 512 * 1024;
const MAX_HEAD_BYTES = 256 * 1024;

export type Verb = "join" | "lease" | "chunk" | "answer" | "beat";

export function workSubject(run: string): string {
  return `compy.batch.work.${run}`;
}

export function runSubject(run: string, verb: Verb | "*"): string {
  return `compy.batch.run.${run}.${verb}`;
}

export function consumerName(run: string): string {
  return `run-${run}`;
}

/** Bytes that one message carries beside its head. Throws where the server allows too little. */
export function chunkBytes(maxPayload: number): number {
  if (maxPayload < LEAST_PAYLOAD) {
    throw new Error(
      `The NATS server allows messages of ${maxPayload} bytes; ${LEAST_PAYLOAD} are needed (max_payload)`,
    );
  }
  return Math.min(maxPayload, MOST_CHUNK) - HEAD_BYTES;
}

const runId = z.string().regex(/^[0-9a-f]{16}$/);
const workerName = z.string().regex(/^[A-Za-z0-9_.-]{1,80}$/);
const fence = z.string().regex(/^[0-9a-f-]{36}$/);
const count = z.number().int().min(0).max(2 ** 40);
const lineNumber = z.number().int().min(0).max(MAX_RANGE_LINES - 1);
const reason = z.string().max(2000);

export const modelIdentity = z.object({
  /** The file's name without `.gguf`. */
  id: z.string().min(1).max(512),
  /** Of the file. */
  bytes: count,
  /** `fingerprint` of the file. */
  fingerprint: z.string().regex(/^[0-9a-f]{64}$/),
  /** Tokens that a line's prompt and answer may have together. */
  contextLength: count,
  /** Of the KV cache. */
  kvType: z.string().regex(/^[a-z0-9_]{1,16}$/),
});
export type ModelIdentity = z.infer<typeof modelIdentity>;

export const runNotice = z.object({
  version: z.number().int(),
  run: runId,
  leaseMs: z.number().int().min(100).max(3_600_000),
  /** No more work comes; what is in flight is not wanted any more. */
  ended: z.boolean(),
});
export type RunNotice = z.infer<typeof runNotice>;

export const workItem = z.object({ range: count, attempt: count });
export type WorkItem = z.infer<typeof workItem>;

export const joinRequest = z.object({
  version: z.number().int(),
  worker: workerName,
  parallel: z.number().int().min(1).max(65_536),
  model: modelIdentity,
});
export type JoinRequest = z.infer<typeof joinRequest>;
export const joinReply = z.object({ refused: reason.nullable() });

export const leaseRequest = workItem.extend({ worker: workerName });
/** With "granted" come the first bytes of the range's requests, RangePayload as JSON. */
export const leaseReply = z.discriminatedUnion("state", [
  z.object({ state: z.literal("granted"), fence, total: count.max(MAX_RANGE_PAYLOAD) }),
  /** Answered already, or handed out under a later attempt: the item has no worth. */
  z.object({ state: z.literal("gone") }),
  /** The worker has not joined, or was refused. */
  z.object({ state: z.literal("stranger") }),
]);

export const chunkRequest = z.object({ fence, offset: count });
/** With "chunk" come the bytes from the offset on. */
export const chunkReply = z.object({ state: z.enum(["chunk", "fenced"]) });

export const rangePayload = z.object({
  lines: z.array(z.object({
    line: lineNumber,
    url: z.string().max(256),
    body: z.record(z.string(), z.unknown()),
  })).max(MAX_RANGE_LINES),
});

/** The bytes beside it are those of a LineAnswer as JSON, from `offset` on, of `total` in all. */
export const answerRequest = z.object({
  fence,
  line: lineNumber,
  offset: count,
  total: count.min(2).max(MAX_ANSWER_BYTES),
});
export type AnswerRequest = z.infer<typeof answerRequest>;
export const answerReply = z.discriminatedUnion("state", [
  z.object({ state: z.literal("taken") }),
  /** Bytes from `offset` on are wanted. */
  z.object({ state: z.literal("more"), offset: count }),
  /** No room now for an answer of this size. */
  z.object({ state: z.literal("later") }),
  /** The lease is over: another worker has the range, or it is answered. */
  z.object({ state: z.literal("fenced") }),
]);
export type AnswerReply = z.infer<typeof answerReply>;

export const lineAnswer = z.union([
  z.object({ status: z.number().int().min(100).max(599), body: z.record(z.string(), z.unknown()) }),
  /** There is no answer like HTTP's. */
  z.object({ failed: reason }),
]);
export type LineAnswer = z.infer<typeof lineAnswer>;

export const beatRequest = z.object({ worker: workerName, fences: z.array(fence).max(MAX_LEASES) });
export const beatReply = z.object({ fenced: z.array(fence).max(MAX_LEASES) });

/** A message that is not what it should be. */
export class WireError extends Error {
  override name = "WireError";
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** A message: its head as JSON, a line feed, and bytes. */
export function encodeMessage(head: unknown, bytes: Uint8Array = new Uint8Array(0)): Uint8Array {
  const text = encoder.encode(`${JSON.stringify(head)}\n`);
  const message = new Uint8Array(text.length + bytes.length);
  message.set(text);
  message.set(bytes, text.length);
  return message;
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
    throw new WireError("a message that is no JSON in UTF-8");
  }
  const { success, data, error } = schema.safeParse(value);
  if (success) return data;
  const [issue] = error.issues;
  throw new WireError(`a message whose ${issue.path.join(".") || "content"} is wrong: ${issue.message}`);
}

/** What differs between the model of a run and that of a worker, in words; undefined when they are one. */
export function modelDifference(run: ModelIdentity, worker: ModelIdentity): string | undefined {
  const named = (model: ModelIdentity) => `"${model.id}"`;
  if (run.id !== worker.id) return `the run wants the model ${named(run)}, the worker has ${named(worker)}`;
  if (run.bytes !== worker.bytes) {
    return `both call their model ${
      named(run)
    }, but the run's file has ${run.bytes} bytes and the worker's ` +
      `${worker.bytes}`;
  }
  if (run.fingerprint !== worker.fingerprint) {
    const [one, other] = [run, worker].map(({ fingerprint }) => fingerprint.slice(0, 12));
    return `both files of the model ${named(run)} have ${run.bytes} bytes, but their content differs ` +
      `(fingerprint ${one}… of the run, ${other}… of the worker)`;
  }
  if (run.contextLength !== worker.contextLength) {
    return `the run's lines may have ${run.contextLength} tokens, the worker has room for ` +
      `${worker.contextLength}; give both the same --ctx`;
  }
  if (run.kvType !== worker.kvType) {
    return `the run wants a KV cache in ${run.kvType}, the worker's is in ${worker.kvType}; give both the same --kv-type`;
  }
  return undefined;
}
