import { assert, assertEquals } from "@std/assert";
import { BatchError } from "../../jobs/errors.ts";
import type { AnswerOrder } from "../../jobs/journal/journal_format.ts";
import { Retry } from "../../jobs/run/retry.ts";
import type { Revision } from "../../jobs/run/revision.ts";
import { type Execute, runBatch } from "../../jobs/run/runner.ts";
import { type Fault, seeded, SimStorage } from "./sim_storage.ts";
import { TEST_LIMITS } from "../../jobs/testing.ts";

/* A retry of a small job's failed lines on a simulated disk, for the crash tests. */

/** Limits with few lines: allocating for ten million lines takes time in each run. */
const LIMITS = { ...TEST_LIMITS, maxLines: 100 };
const FILES = { input: "in.jsonl", output: "out.jsonl", errors: "err.jsonl" };
const PATHS = ["err.jsonl", "in.jsonl", "out.jsonl", "out.jsonl.journal"];
const LINES = 14;
const FAILED = [1, 5, 6, 9, 12];
/** Line numbers that fail again in the retry. */
const FAILED_AGAIN = [6, 12];
const PARALLEL = 3;

/** Changed questions of retries, for jobs with errors that remain. */
const REVISION: Revision = {
  asked: { "--max-tokens": "9" },
  revise: (body) => ({ ...body, max_tokens: 9 }),
};

/** A finished job. */
interface Base {
  readonly order: AnswerOrder;
  /** Whether the check refuses some lines and some fail again; otherwise no error remains. */
  readonly errorsStay: boolean;
  readonly files: ReadonlyMap<string, Uint8Array>;
  readonly output: string;
  readonly errors: string;
}

function inputLine(n: number, withRefused: boolean): string {
  if (withRefused && n === 3) return "{ not json";
  // Lines 7 and 10 are refused: line 10 repeats the custom_id of a failing line, line 7 that of an answered line.
  const customId = withRefused && n === 7 ? "line-2" : withRefused && n === 10 ? "line-5" : `line-${n}`;
  return JSON.stringify({ custom_id: customId, method: "POST", url: "/v1/completions", body: { n } });
}

/** A fake engine that answers all lines except the given ones, after a delay that differs per line. */
function engine(failing: readonly number[], executed: number[], text: string): Execute {
  return async ({ body }) => {
    const n = body.n as number;
    executed.push(n);
    for (let i = 0; i < (n * 7) % 11; i++) await Promise.resolve();
    if (failing.includes(n)) return { status: 400, body: { error: { message: `${text} ${n}` } } };
    return { status: 200, body: { text: `${text} ${n} `.repeat(n), usage: { completion_tokens: n } } };
  };
}

async function makeBase(order: AnswerOrder, errorsStay: boolean): Promise<Base> {
  const storage = new SimStorage(seeded(1));
  const lines = Array.from({ length: LINES }, (_, n) => inputLine(n, errorsStay));
  storage.put("in.jsonl", lines.join("\n"));
  const execute = engine(FAILED, [], "first");
  const connect = () => Promise.resolve({ execute, settings: { model: "fake" } });
  await runBatch({ ...FILES, order, parallel: PARALLEL, limits: LIMITS, storage, connect });
  const files = new Map(storage.paths().map((path) => [path, storage.bytes(path)!]));
  const [output, errors] = [storage.content("out.jsonl")!, storage.content("err.jsonl")!];
  return { order, errorsStay, files, output, errors };
}

const BASES = [
  await makeBase("input", true),
  await makeBase("completed", true),
  await makeBase("completed", false),
  await makeBase("input", false),
];

export interface Retried {
  readonly executed: number[];
  /** Answered lines at the start of the retry, and in the last report. */
  readonly startedWith: number;
  readonly reported: number;
  readonly error?: unknown;
}

async function retry(storage: SimStorage, base: Base): Promise<Retried> {
  const executed: number[] = [];
  const seen = { startedWith: 0, reported: 0 };
  try {
    const run = await Retry.open(storage, FILES, LIMITS);
    try {
      if (!run.merged && await run.prepare(base.errorsStay ? REVISION : undefined)) {
        const answer = engine(base.errorsStay ? FAILED_AGAIN : [], executed, "again");
        const execute: Execute = (request) => {
          assertEquals(request.body.max_tokens, base.errorsStay ? 9 : undefined);
          return answer(request);
        };
        await runBatch({
          ...run.files,
          order: run.order,
          parallel: PARALLEL,
          limits: LIMITS,
          storage,
          connect: () => Promise.resolve({ execute, settings: { model: "fake" } }),
          onEvent: (event) => {
            if (event.type !== "started" && event.type !== "progress") return;
            seen.reported = event.progress.completed + event.progress.failed;
            if (event.type === "started") seen.startedWith = seen.reported;
          },
        });
        await run.merge();
      }
    } finally {
      run.close();
    }
    return { ...seen, executed };
  } catch (error) {
    return { ...seen, executed, error };
  }
}

function linesOf(text: string): string[] {
  return text.split("\n").filter((line) => line !== "");
}

function idsOf(lines: readonly string[]): string[] {
  return lines.map((line) => JSON.parse(line).custom_id);
}

/** Throws unless the outputs are entirely old or entirely new, and have all good answers. */
function assertWhole(storage: SimStorage, base: Base): void {
  const [output, errors] = [storage.content("out.jsonl"), storage.content("err.jsonl")];
  if (output === undefined) throw new Error("the output is gone");
  if (output !== base.output) assertNewOutput(output, base);
  if (errors === base.errors) return;
  assert(output === base.output || errors !== base.errors);
  if (errors === undefined) return assert(!base.errorsStay, "the errors are gone");
  assertNewErrors(errors, base);
}

function assertNewOutput(text: string, base: Base): void {
  const [before, now] = [linesOf(base.output), linesOf(text)];
  const better = now.filter((line) => !before.includes(line));
  assertEquals(
    now.filter((line) => before.includes(line)),
    before,
    "a good answer was changed, moved or lost",
  );
  const expected = FAILED.filter((n) => !base.errorsStay || !FAILED_AGAIN.includes(n)).map((n) =>
    `line-${n}`
  );
  assertEquals(idsOf(better).toSorted(), expected.toSorted());
  assert(better.every((line) => line.includes("again")));
  if (base.order === "completed") return assertEquals(now.slice(0, before.length), before);
  const numbers = idsOf(now).map((id) => Number(id.slice(5)));
  assertEquals(numbers, numbers.toSorted((a, b) => a - b));
}

function assertNewErrors(text: string, base: Base): void {
  assert(base.errorsStay, "errors are left");
  const lines = linesOf(text);
  const refused = linesOf(base.errors).filter((line) => line.includes('"line":'));
  assertEquals(lines.filter((line) => refused.includes(line)).length, 3);
  const again = lines.filter((line) => !refused.includes(line));
  assertEquals(idsOf(again).toSorted(), FAILED_AGAIN.map((n) => `line-${n}`).toSorted());
  if (base.order === "input") assertEquals(idsOf(lines), [null, "line-6", "line-2", "line-5", "line-12"]);
}

function assertMerged(storage: SimStorage, base: Base): void {
  assertNewOutput(storage.content("out.jsonl")!, base);
  if (base.errorsStay) assertNewErrors(storage.content("err.jsonl")!, base);
  assertEquals(storage.paths(), PATHS.filter((path) => base.errorsStay || path !== "err.jsonl"));
}

function newDisk(base: Base, seed: number): SimStorage {
  const storage = new SimStorage(seeded(seed));
  for (const [path, bytes] of base.files) storage.put(path, bytes);
  return storage;
}

async function countCalls(base: Base): Promise<number> {
  const storage = newDisk(base, 1);
  const { error, executed } = await retry(storage, base);
  assertEquals(error, undefined);
  assertEquals(executed.toSorted((a, b) => a - b), FAILED);
  assertMerged(storage, base);
  return storage.calls;
}

const CALLS = await Promise.all(BASES.map(countCalls));
/** Number of calls in the longest retry. */
export const RETRY_CALLS = Math.max(...CALLS);

const FAULTS = ["kill", "powerCut", "ENOSPC", "EIO", "EMFILE"] as const;
const MOST_FAULTS = 4;

export type RetryEnd = "done" | "done after a failed sync" | "failed for good";

/**
 * Breaks a retry up to four times, at calls and with faults chosen by `seed`, and runs it until it is done. Good answers must stay
 * byte for byte, only failed lines are asked, and none is lost or duplicated. Returns the outcome: a failed sync during the replacement of
 * outputs may end it for good.
 */
export async function brokenRetry(seed: number): Promise<RetryEnd> {
  const random = seeded(seed);
  const choose = (count: number) => Math.floor(random() * count);
  // The first seeds cover every job, fault and call.
  const which = seed % BASES.length;
  const base = BASES[which];
  const calls = CALLS[which];
  let fault: typeof FAULTS[number] = FAULTS[Math.floor(seed / BASES.length) % FAULTS.length];
  let call = Math.floor(seed / BASES.length / FAULTS.length) % calls;
  const storage = newDisk(base, seed);
  let reported = 0;
  for (let faults = 1 + choose(MOST_FAULTS); faults > 0; faults--) {
    const [at, how] = [call, fault];
    const faultAt = (n: number): Fault =>
      n !== at ? "none" : how === "kill" || how === "powerCut" ? "crash" : how;
    storage.setFault(faultAt);
    const { error, executed, startedWith, reported: now } = await retry(storage, base);
    assert(executed.every((n) => FAILED.includes(n)), `asked ${executed}`);
    if (storage.crashed) storage[how as "kill" | "powerCut"]();
    else if (error !== undefined && !(error instanceof BatchError)) throw error;
    storage.setFault(() => "none");
    assertWhole(storage, base);
    const isNew = storage.content("out.jsonl") !== base.output;
    assert(
      isNew || executed.length + startedWith === 0 || startedWith >= reported,
      `${reported} were reported`,
    );
    reported = isNew ? 0 : Math.max(reported, now);
    if (error === undefined) assertMerged(storage, base);
    else if (error instanceof BatchError && !error.resumable) {
      assertEquals(error.code, "sync_failed", error.message);
      const again = error.message.includes("run the same retry-errors command again");
      // Programs see the data of a failed sync until the power fails, at once or in a later run.
      const cutAt = choose(2 * calls);
      storage.setFault((n) => n === cutAt ? "crash" : "none");
      if (cutAt < calls) await retry(storage, base);
      storage.powerCut();
      storage.setFault(() => "none");
      assertWhole(storage, base);
      const end = await endOfFailed(storage, base);
      if (again) assertEquals(end, "done after a failed sync", error.message);
      return end;
    }
    [call, fault] = [choose(calls), FAULTS[choose(FAULTS.length)]];
  }
  const { error } = await retry(storage, base);
  if (error !== undefined) throw error;
  assertMerged(storage, base);
  return "done";
}

async function endOfFailed(storage: SimStorage, base: Base): Promise<RetryEnd> {
  const { error, executed } = await retry(storage, base);
  assert(executed.every((n) => FAILED.includes(n)), `asked ${executed}`);
  assertWhole(storage, base);
  if (error === undefined) {
    assertMerged(storage, base);
    return "done after a failed sync";
  }
  assert(error instanceof BatchError && error.code === "job_failed", String(error));
  return "failed for good";
}
