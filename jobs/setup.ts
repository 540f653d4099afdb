import type { LineRequest } from "./run/dispatch.ts";
import { JobControl } from "./run/job_control.ts";
import { type BatchOptions, type BatchResult, type Connected, runBatch } from "./run/runner.ts";

/** Maximum sequences of a model that is loaded only for a job. */
export const MOST_SEQUENCES = 64;
/**
 * Lines in progress at the start of a job that may try more. Measured on the demo model: a job is slower with 4 or 8
 * lines, and equally fast within noise with 16, 24 or 32 (docs/lab/2026-11.md).
 */
const FIRST_LINES = 24;

/**
 * Returns the number of lines in progress for a model that runs `sequences` sequences: 1.5 times the sequences. Further
 * lines wait in the engine, so that no step has a gap, and answered lines wait for the disk. If the number is unknown,
 * the job starts with FIRST_LINES and tries more.
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
  /** Returns the engine, which is closed when the job has ended or stopped. */
  readonly connect: () => Promise<LineEngine>;
  /** Number of sequences that the model runs at once, if known. */
  readonly sequences?: number;
  /** Number of lines in progress, instead of the one that follows from `sequences`. */
  readonly lines?: number;
  /** Names besides the model's own that lines may give as `model`. */
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
