import type { Storage } from "../journal/storage.ts";
import { readResults } from "../results.ts";
import type { LineAnswer } from "../types.ts";
import { Pause } from "../run/pause.ts";
import { UNANSWERED } from "./live_batch.ts";

/** Yields the lines of output and error files. */
export async function* readAnswers(storage: Storage, paths: readonly string[]): AsyncGenerator<LineAnswer> {
  const pause = new Pause();
  const decoder = new TextDecoder();
  for (const path of paths) {
    for await (const { bytes } of readResults(storage, path)) {
      yield JSON.parse(decoder.decode(bytes));
      await pause.now();
    }
  }
}

/** Counts the lines that got no answer because their batch was cancelled or expired. */
export async function countUnanswered(storage: Storage, errors: string): Promise<number> {
  const codes: readonly (string | undefined)[] = Object.values(UNANSWERED);
  let count = 0;
  for await (const { error } of readAnswers(storage, [errors])) if (codes.includes(error?.code)) count++;
  return count;
}
