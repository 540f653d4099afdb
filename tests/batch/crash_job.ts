import { assert, assertEquals } from "@std/assert";
import { BatchError } from "../../jobs/errors.ts";
import { type BatchOptions, type BatchResult, type Execute, runBatch } from "../../jobs/run/runner.ts";
import { type Fault, seeded, SimStorage } from "./sim_storage.ts";
import { TEST_LIMITS } from "../../jobs/testing.ts";

/* A small job on a simulated disk, for the crash tests and the long campaign. */
export const PARALLEL = 3;

const INPUT = Array.from({ length: 14 }, (_, n) => {
  if (n === 3) return "{ not json";
  const customId = n === 7 ? "line-2" : `line-${n}`;
  return JSON.stringify({
    custom_id: customId,
    method: "POST",
    url: "/v1/completions",
    body: { n, prompt: "p" },
  });
}).join("\n");

/** A fake engine that answers deterministically after a delay; lines 5, 6 and 9 fail in different ways. */
function fakeEngine(executed: number[]): Execute {
  return async ({ body }) => {
    const n = body.n as number;
    executed.push(n);
    for (let i = 0; i < (n * 7) % 11; i++) await Promise.resolve();
    if (n === 5) {
      return { status: 400, body: { error: { message: "no", type: "t", param: null, code: null } } };
    }
    if (n === 6) throw new Error("lost");
    if (n === 9) {
      return { status: 500, body: { error: { message: "broken", type: "t", param: null, code: null } } };
    }
    return {
      status: 200,
      body: { text: "x".repeat(n * 40), usage: { prompt_tokens: n, completion_tokens: 2 * n } },
    };
  };
}

export interface Observed {
  executed: number[];
  /** Number of answered lines at the start of the run, and in the last report. */
  startedWith: number;
  reported: number;
}

export async function run(
  storage: SimStorage,
): Promise<Observed & { result?: BatchResult; error?: unknown }> {
  const observed: Observed = { executed: [], startedWith: 0, reported: 0 };
  const options: BatchOptions = {
    input: "in.jsonl",
    output: "out.jsonl",
    errors: "err.jsonl",
    parallel: PARALLEL,
    limits: TEST_LIMITS,
    storage,
    connect: () => Promise.resolve({ execute: fakeEngine(observed.executed), settings: { model: "fake" } }),
    onEvent: (event) => {
      if (event.type !== "started" && event.type !== "progress") return;
      observed.reported = event.progress.completed + event.progress.failed;
      if (event.type === "started") observed.startedWith = observed.reported;
    },
  };
  try {
    const result = await runBatch(options);
    return { ...observed, result };
  } catch (error) {
    return { ...observed, error };
  }
}

export function newDisk(seed: number, fault?: (call: number, name: string) => Fault): SimStorage {
  const storage = new SimStorage(seeded(seed), fault);
  storage.put("in.jsonl", INPUT);
  return storage;
}

async function unbrokenRun(): Promise<{ output: string; errors: string; calls: number; log: string[] }> {
  const storage = newDisk(1);
  const { result } = await run(storage);
  assertEquals(result?.state, "done");
  return {
    output: storage.content("out.jsonl")!,
    errors: storage.content("err.jsonl")!,
    calls: storage.calls,
    log: storage.log,
  };
}

export const expected = await unbrokenRun();

/** Throws if a visible output file is incomplete. */
export function assertNothingTorn(storage: SimStorage): void {
  for (const [path, content] of [["out.jsonl", expected.output], ["err.jsonl", expected.errors]]) {
    const found = storage.content(path);
    assert(found === undefined || found === content, `${path} is torn: ${found}`);
  }
}

export function assertDone(storage: SimStorage, result: BatchResult | undefined): void {
  assert(result?.state === "done" || result?.state === "already_done");
  assertEquals(storage.content("out.jsonl"), expected.output);
  assertEquals(storage.content("err.jsonl"), expected.errors);
  assertEquals(result!.counts, { completed: 9, failed: 5, promptTokens: 61, outputTokens: 122 });
  assertEquals(storage.paths(), ["err.jsonl", "in.jsonl", "out.jsonl", "out.jsonl.journal"]);
}

export async function assertFailedForGood(storage: SimStorage): Promise<void> {
  const { error, executed } = await run(storage);
  const { code, resumable } = batchError(error);
  assertEquals([code, resumable], ["job_failed", false]);
  assertEquals(executed, []);
}

export function batchError(error: unknown): BatchError {
  if (error instanceof BatchError) return error;
  throw error;
}

const FAULTS = ["kill", "powerCut", "ENOSPC", "EIO", "EMFILE"] as const;
const MOST_FAULTS = 4;

/**
 * Breaks the job up to four times, at calls and with faults chosen by `seed`, and runs it until it is done. No answer may be lost,
 * duplicated or torn. Returns the outcome: a failed sync ends a job for good.
 */
export async function brokenRuns(seed: number): Promise<"done" | "failed for good"> {
  const random = seeded(seed);
  const choose = (count: number) => Math.floor(random() * count);
  const storage = newDisk(seed);
  let reported = 0;
  // The first seeds cover every call and every fault.
  let call = Math.floor(seed / FAULTS.length) % expected.calls;
  let fault: typeof FAULTS[number] = FAULTS[seed % FAULTS.length];
  for (let faults = 1 + choose(MOST_FAULTS); faults > 0; faults--) {
    const [at, how] = [call, fault];
    storage.setFault((n) => n !== at ? "none" : how === "kill" || how === "powerCut" ? "crash" : how);
    const { error, result, startedWith, executed, reported: now } = await run(storage);
    const alive = executed.length > 0 || startedWith > 0;
    assert(!alive || startedWith >= reported, `${reported} were reported, ${startedWith} are left`);
    if (alive) reported = now;
    if (storage.crashed) storage[how as "kill" | "powerCut"]();
    assertNothingTorn(storage);
    storage.setFault(() => "none");
    if (result !== undefined) assertDone(storage, result);
    else if (error instanceof BatchError && !error.resumable) {
      assertEquals(error.code, "sync_failed");
      storage.powerCut();
      return await endOfFailed(storage);
    }
    [call, fault] = [choose(expected.calls), FAULTS[choose(FAULTS.length)]];
  }
  assertDone(storage, (await run(storage)).result);
  return "done";
}

/**
 * After a failed sync the job has its failure mark, unless a power cut removed it before it was durable. Then the job resumes from
 * answers with a valid checksum.
 */
async function endOfFailed(storage: SimStorage): Promise<"done" | "failed for good"> {
  const { error, result } = await run(storage);
  assertNothingTorn(storage);
  if (error === undefined) {
    assertDone(storage, result);
    return "done";
  }
  assertEquals(batchError(error).code, "job_failed");
  return "failed for good";
}
