import { BatchError } from "../errors.ts";
import type { ProgressMeter } from "../progress.ts";
import { UnansweredLine } from "../run/dispatch.ts";
import type { BatchProgress } from "../run/runner.ts";
import type { DataFolder } from "./data_folder.ts";
import type { BatchCounts, BatchProblem, BatchRecord } from "../types.ts";

/** A batch that the queue is working on. */
export interface Live {
  /** Key of the models that answer this batch (`keyOf`). */
  readonly key: string;
  isAnswering: boolean;
  readonly abort: AbortController;
  ending: BatchRecord["ending"];
  readonly meter: ProgressMeter;
  /** Cached and reasoning tokens counted by earlier runs of this batch. */
  readonly cachedTokens: number;
  readonly reasoningTokens: number;
}

/** Returns the key of a batch's models. Batches with equal keys run one at a time. */
export function keyOf({ models = [] }: BatchRecord): string {
  return JSON.stringify(models);
}

export function newId(prefix: string): string {
  return `${prefix}${crypto.randomUUID().replaceAll("-", "")}`;
}

/** Codes of lines without an answer, by reason. */
export const UNANSWERED = { cancel: "batch_cancelled", expire: "batch_expired" } as const;

export function unanswered(ending: NonNullable<BatchRecord["ending"]>): UnansweredLine {
  const what = ending === "cancel" ? "was cancelled" : "expired";
  return new UnansweredLine(UNANSWERED[ending], `The batch ${what} before this line was answered`);
}

/** Returns an error's message without a BatchError's advice, which is meant for a command. */
export function reasonOf(error: unknown): { what: string; cause?: unknown } {
  if (error instanceof BatchError) return error;
  return { what: error instanceof Error ? error.message : String(error), cause: error };
}

export function problem(code: string, message: string): BatchProblem {
  return { code, message, line: null, param: null };
}

export function countsOf(progress: BatchProgress, { cachedTokens, reasoningTokens }: Live) {
  const { total, completed, failed, promptTokens, outputTokens } = progress;
  return {
    total,
    completed,
    failed,
    promptTokens,
    cachedTokens: Math.min(cachedTokens + progress.cachedTokens, promptTokens),
    outputTokens,
    reasoningTokens: Math.min(reasoningTokens + progress.reasoningTokens, outputTokens),
  };
}

/** Writes counts once per turn of the event loop, because a cancelled batch may end a thousand lines in one turn. */
export class CountWriter {
  #counts: BatchCounts | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly write: (counts: BatchCounts) => void) {}

  set(counts: BatchCounts): void {
    this.#counts = counts;
    this.#timer ??= setTimeout(() => {
      try {
        this.flush();
      } catch {
        // The next `flush` tries again. The code that runs the batch makes the last call, which throws.
      }
    });
  }

  /** Writes counts that are not written yet. Throws as `write` does. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#counts === undefined) return;
    this.write(this.#counts);
    this.#counts = undefined;
  }
}

/** Returns a message with its file paths replaced, because clients must not see them. */
export function publicWords(folder: DataFolder, { inputFileId }: BatchRecord, message: string): string {
  return message.replaceAll(folder.at(`files/${inputFileId}`), inputFileId).replaceAll(folder.at(""), "");
}
