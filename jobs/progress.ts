import type { BatchProgress } from "./run/runner.ts";

/** The progress of a job. */
export interface ProgressView {
  readonly done: number;
  readonly failed: number;
  readonly total: number;
  /** Tokens per second of this run, averaged over about the last two minutes. */
  readonly promptRate: number;
  readonly outputRate: number;
  /** Share of this run's prompt tokens that the prefix cache had, from 0 to 1. */
  readonly cachedShare: number;
  /** Estimated remaining seconds; undefined while there is too little data. */
  readonly remaining: number | undefined;
}

const HALF_LIFE_S = 60;
const MIN_LINES = 5;
const MIN_SECONDS = 3;
/** Work of a prompt token, in generated tokens: prompt tokens are computed in parallel. */
const PROMPT_TOKEN_WORK = 0.25;

/**
 * Computes token rates and the remaining time from counts. Answers of an earlier run do not count, because they took no
 * time in this run. Rates are exponentially weighted averages that include idle time, so they fall when a job slows
 * down.
 */
export class ProgressMeter {
  private first: BatchProgress | undefined;
  private last: BatchProgress | undefined;
  private startedAt = 0;
  private fadedAt = 0;
  private fadedSeconds = 0;
  private fadedPrompt = 0;
  private fadedOutput = 0;
  private fadedBytes = 0;

  /** `now`: a clock in milliseconds. */
  constructor(private readonly now: () => number) {}

  update(progress: BatchProgress): void {
    if (this.first === undefined) {
      this.first = progress;
      this.startedAt = this.fadedAt = this.now();
    } else {
      this.fade();
      this.fadedPrompt += progress.promptTokens - this.last!.promptTokens;
      this.fadedOutput += progress.outputTokens - this.last!.outputTokens;
      this.fadedBytes += progress.doneBytes - this.last!.doneBytes;
    }
    this.last = progress;
  }

  /** Returns the present progress; undefined before the first update. */
  view(): ProgressView | undefined {
    const last = this.last;
    if (last === undefined) return undefined;
    this.fade();
    const seconds = Math.max(this.fadedSeconds, 1e-3);
    return {
      done: last.completed + last.failed,
      failed: last.failed,
      total: last.total,
      promptRate: this.fadedPrompt / seconds,
      outputRate: this.fadedOutput / seconds,
      cachedShare: last.cachedTokens / Math.max(1, last.promptTokens - this.first!.promptTokens),
      remaining: this.remaining(last, seconds),
    };
  }

  /**
   * Returns the remaining seconds: work divided by rate. Prompt tokens are estimated from the bytes of the remaining
   * lines, output tokens from their number. A prompt token counts less than an output token.
   */
  private remaining(last: BatchProgress, seconds: number): number | undefined {
    const first = this.first!;
    const lines = last.completed + last.failed - first.completed - first.failed;
    const linesLeft = last.total - last.completed - last.failed;
    const bytesLeft = last.totalBytes - last.doneBytes;
    if (linesLeft === 0) return 0;
    if (lines < MIN_LINES || this.now() - this.startedAt < 1000 * MIN_SECONDS) return undefined;
    const promptPerByte = (last.promptTokens - first.promptTokens) / (last.doneBytes - first.doneBytes);
    const outputPerLine = (last.outputTokens - first.outputTokens) / lines;
    const workRate = (this.fadedPrompt * PROMPT_TOKEN_WORK + this.fadedOutput) / seconds;
    if (workRate > 0) {
      return (bytesLeft * promptPerByte * PROMPT_TOKEN_WORK + linesLeft * outputPerLine) / workRate;
    }
    return this.fadedBytes > 0 ? bytesLeft / (this.fadedBytes / seconds) : undefined;
  }

  private fade(): void {
    const now = this.now();
    const keep = 0.5 ** ((now - this.fadedAt) / 1000 / HALF_LIFE_S);
    this.fadedAt = now;
    this.fadedSeconds = this.fadedSeconds * keep + (1 - keep) * HALF_LIFE_S / Math.LN2;
    this.fadedPrompt *= keep;
    this.fadedOutput *= keep;
    this.fadedBytes *= keep;
  }
}
