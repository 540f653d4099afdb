import {
  type BatchEvent,
  type BatchProgress,
  type BatchResult,
  type JobFiles,
  type LineRefusal,
  ProgressMeter,
} from "../../lib/batch/jobs.ts";
import { duration, renderBar, renderLine } from "./progress.ts";
import { escaped, jsonLine } from "../shared/escape.ts";

/** Output channels of a command. */
export interface Screen {
  /** Writes to standard output. */
  out(text: string): void;
  /** Writes a message to standard error, escaped. */
  err(text: string): void;
  /** Draws a line on standard error's terminal, which the next text replaces. */
  draw(line: string): void;
  /** Returns the width of standard error's terminal; undefined if it is not a terminal. */
  columns(): number | undefined;
  /** Returns the time in milliseconds. */
  now(): number;
}

/** Reports the progress of a job to a person or a program. */
export interface Reporter {
  event(event: BatchEvent): void;
  /** Reports the progress at this moment. */
  tick(): void;
  /** Milliseconds between calls of `tick`. */
  readonly every: number;
  note(text: string): void;
  end(result: BatchResult): void;
  fail(message: string, resumable: boolean): void;
}

/** Reports the first bad lines one by one, then the number of the remaining ones. */
export class RefusalList {
  private static readonly MOST = 20;
  count = 0;

  constructor(private readonly input: string, private readonly tell: (text: string) => void) {}

  add({ message }: LineRefusal): void {
    if (++this.count <= RefusalList.MOST) this.tell(escaped(`${this.input}: ${message}`));
  }

  /** Reports the number of remaining bad lines. Call it when all lines are checked. */
  end(): void {
    const more = this.count - RefusalList.MOST;
    if (more > 0) this.tell(`… and ${more} more lines`);
  }
}

/** Reports progress as text on standard error: a bar on a terminal, otherwise lines. */
export class TextReporter implements Reporter {
  readonly every: number;
  private readonly meter: ProgressMeter;
  private readonly startedAt: number;
  private readonly terminal: boolean;
  private readonly refusals: RefusalList;
  private bar = "";

  constructor(private readonly screen: Screen, private readonly files: JobFiles) {
    this.terminal = screen.columns() !== undefined;
    this.every = this.terminal ? 200 : 10_000;
    this.meter = new ProgressMeter(() => screen.now());
    this.startedAt = screen.now();
    this.refusals = new RefusalList(files.input, (text) => this.note(text));
  }

  event(event: BatchEvent): void {
    switch (event.type) {
      case "refused":
        this.refusals.add(event.refusal);
        break;
      case "other_processor":
        this.note(otherProcessor(event));
        break;
      case "started":
        this.started(event);
        break;
      case "progress":
        this.meter.update(event.progress);
        break;
      case "finishing":
        this.tick();
        this.breakLine();
        this.note(`Writing ${this.files.output}`);
    }
  }

  private started({ progress, lines, cutBytes }: Extract<BatchEvent, { type: "started" }>): void {
    this.meter.update(progress);
    this.refusals.end();
    const { count } = this.refusals;
    const rest = count < lines ? "; the others run" : ", so no line is answered";
    if (count > 0) this.note(`${count} of ${lines} lines are invalid${rest}`);
    const done = progress.completed + progress.failed;
    if (done > 0) this.note(`Resuming: ${done} of ${progress.total} lines are answered already`);
    if (cutBytes > 0) {
      this.note(`The journal ended in an incomplete answer (${cutBytes} bytes); its line runs again`);
    }
    this.tick();
  }

  tick(): void {
    const view = this.meter.view();
    if (view === undefined) return;
    if (!this.terminal) return this.note(renderLine(view));
    this.bar = renderBar(view, this.screen.columns() ?? 80);
    this.screen.draw(this.bar);
  }

  note(text: string): void {
    this.screen.err(`${text}\n`);
    this.bar = "";
  }

  end({ state, counts }: BatchResult): void {
    const { output, errors } = this.files;
    if (state === "stopped") {
      this.tick();
      this.breakLine();
      return this.note("Stopped. The answers so far are kept; the same command resumes the job");
    }
    this.breakLine();
    if (state === "already_done") this.note("This job is done already; nothing was run");
    const failed = counts.failed > 0 ? `${counts.failed} errors in ${errors}` : "no errors";
    const tokens = `${counts.promptTokens} prompt and ${counts.outputTokens} output tokens`;
    const took = state !== "already_done" ? `, ${duration((this.screen.now() - this.startedAt) / 1000)}` : "";
    this.note(`${counts.completed} answers in ${output}, ${failed} (${tokens}${took})`);
    if (state === "limited") this.note("The same command without --limit answers the other lines");
    if (counts.completed === 0) this.note("No line was answered");
  }

  fail(message: string): void {
    this.breakLine();
    this.note(`Error: ${message}`);
  }

  /** Ends the line of the last bar, so that it stays on the screen. */
  private breakLine(): void {
    if (this.bar !== "") this.note(this.bar);
  }
}

/** Reports progress as JSON, one object per line, on standard output. */
export class JsonReporter implements Reporter {
  readonly every = 1000;
  private readonly meter: ProgressMeter;
  private last: BatchProgress | undefined;

  constructor(private readonly screen: Screen, private readonly files: JobFiles) {
    this.meter = new ProgressMeter(() => screen.now());
  }

  event(event: BatchEvent): void {
    if (event.type === "refused") {
      this.write(refusedEvent(event.refusal));
    } else if (event.type === "other_processor") {
      this.note(otherProcessor(event));
    } else if (event.type === "finishing") {
      this.tick();
      this.write({ event: "finishing" });
    } else {
      this.meter.update(event.progress);
      this.last = event.progress;
      if (event.type === "progress") return;
      this.write({ event: "started", ...counts(event.progress), cut_bytes: event.cutBytes });
    }
  }

  tick(): void {
    const view = this.meter.view();
    if (view === undefined) return;
    this.write({
      event: "progress",
      ...counts(this.last!),
      prompt_tokens_per_second: view.promptRate,
      output_tokens_per_second: view.outputRate,
      eta_seconds: view.remaining ?? null,
    });
  }

  note(text: string): void {
    this.write({ event: "note", message: text });
  }

  end({ state, counts }: BatchResult): void {
    this.write({
      event: state,
      completed: counts.completed,
      failed: counts.failed,
      prompt_tokens: counts.promptTokens,
      output_tokens: counts.outputTokens,
      output: this.files.output,
      errors: counts.failed > 0 ? this.files.errors : null,
    });
  }

  fail(message: string, resumable: boolean): void {
    this.write({ event: "failed", message, resumable });
  }

  private write(value: unknown): void {
    this.screen.out(jsonLine(value));
  }
}

/** Returns the `--json` event for a bad line. */
export function refusedEvent({ customId, ...refusal }: LineRefusal) {
  return { event: "refused", custom_id: customId, ...refusal };
}

function otherProcessor({ before, now }: { before: string; now: string }): string {
  return `The answers so far were computed on ${before}, the others will be on ${now}: it rounds differently, so ` +
    "texts may differ from those of one machine";
}

function counts(progress: BatchProgress) {
  return {
    total: progress.total,
    done: progress.completed + progress.failed,
    failed: progress.failed,
    prompt_tokens: progress.promptTokens,
    output_tokens: progress.outputTokens,
    cached_tokens: progress.cachedTokens,
    reasoning_tokens: progress.reasoningTokens,
  };
}
