import { inputLimits } from "./check.ts";
import { type BatchOptions, type BatchResult, type Execute, runBatch } from "./run/runner.ts";
import type { Storage } from "./journal/storage.ts";

/** Limits of a file whose lines may name the server's endpoints. */
export const TEST_LIMITS = inputLimits(["/v1/chat/completions", "/v1/completions", "/v1/responses"]);

/** Returns the n-th line of an input. */
export function batchLine(n: number, body: Record<string, unknown> = {}): string {
  return JSON.stringify({
    custom_id: `id-${n}`,
    method: "POST",
    url: "/v1/completions",
    body: { n, prompt: "p", ...body },
  });
}

/** Runs the job of in.jsonl in the given storage. */
export function runOn(
  storage: Storage,
  execute: Execute,
  more: Partial<BatchOptions> = {},
): Promise<BatchResult> {
  return runBatch({
    input: "in.jsonl",
    output: "out.jsonl",
    errors: "err.jsonl",
    parallel: 4,
    limits: TEST_LIMITS,
    storage,
    connect: () => Promise.resolve({ execute, settings: { model: "m" } }),
    ...more,
  });
}
