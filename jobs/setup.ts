import type { LineRequest } from "./run/dispatch.ts";
import { JobControl } from "./run/job_control.ts";
import { type BatchOptions, type BatchResult, type Connected, runBatch } from "./run/runner.ts";

/** Sequences of a model that is loaded for a job alone, at most. */
export const MOST_SEQUENCES = 64;
/**
 * Lines in flight at the start of a job that may try more. Measured on the demo model: a job is slower with 4 or 8
 * lines, and equally fast within noise with 16, 24 or 32 (docs/lab/2026-11.md).
 */
const FIRST_LINES = 24;

/**
 * Returns the lines in flight for a model that runs this many sequences. There are half as many again: the next ones
 * wait in the engine, so that no step has a gap, and answered ones wait for the disk. If the number is unknown, the job
 * starts with FIRST_LINES and tries more.
 */
export function linesInFlight(sequences?: number): Pick<BatchOptions, "parallel" | "most"> {
  const lines = Math.ceil(1.5 * (sequences ?? MOST_SEQUENCES));
  return sequences === undefined ? { parallel: FIRST_LINES, most: lines } : { parallel: lines };
}

/** The engine or workers that answer the lines of one job. */
export interface LineEngine extends Connected {
  close(): Promise<void>;
}

export interface JobOptions extends Omit<BatchOptions, "parallel" | "most" | "cancelSignal" | "connect"> {
  /** The engine is closed when the job has ended or stopped. */
  readonly connect: () => Promise<LineEngine>;
  /** Sequences that the model runs at once, if known. */
  readonly sequences?: number;
  /** Lines in flight, in place of the number that follows from `sequences`. */
  readonly lines?: number;
  /** Names that lines may give the model besides its own. */
  readonly aliases?: readonly string[];
  /** Called when another process cancels the job. */
  readonly onCancel?: () => void;
}

/**
 * Sets up and runs a job over files of this machine: `runBatch`, which other processes can follow and cancel.
 * Throws BatchError.
 */
export async function runJob(options: JobOptions): Promise<BatchResult> {
  const { output, connect, sequences, lines, aliases = [], revise = (body) => body } = options;
  const control = new JobControl(output, options.onCancel ?? (() => {}));
  let engine: LineEngine | undefined;
  let hasEnded = false;
  try {
    const result = await runBatch({
      ...options,
      ...(lines === undefined ? linesInFlight(sequences) : { parallel: lines }),
      cancelSignal: control.cancelSignal,
      revise: (body) => revise(withoutAlias(aliases, body)),
      connect: async () => {
        await control.check();
        return engine = await connect();
      },
      onEvent: (event) => {
        control.event(event);
        options.onEvent?.(event);
      },
    });
    hasEnded = result.state === "done" || result.state === "already_done";
    return result;
  } finally {
    await control.close(hasEnded);
    await engine?.close();
  }
}

/**
 * Removes the model's name from a body if it is one of the aliases. A body without a model name uses the model that
 * answers.
 */
export function withoutAlias(aliases: readonly string[], body: LineRequest["body"]): LineRequest["body"] {
  const { model, ...others } = body;
  return aliases.some((alias) => alias === model) ? others : body;
}
