import { type Costs, cutPiece, type Piece, wholeOf } from "./costs.ts";
import type { Gpu } from "../device/gpu.ts";
import type { PassTime } from "../device/pass_clock.ts";
import { type Dispatch, isFor, type StepSize } from "./dispatch.ts";
import type { Recorder } from "./recorder.ts";
import type { StepTimes } from "./step_times.ts";

/**
 * Target milliseconds of one submit: far below the limit of 100, because a busy device takes up to three times longer.
 * Drivers reset a device after about two seconds, and the screen waits for each submit.
 */
export const SUBMIT_MS = 25;
/** Milliseconds of work to submit ahead: enough to keep the device busy, and little enough to stop soon. */
const AHEAD_MS = 60;
/** Maximum milliseconds of a prefill step, because other sequences wait for their next token meanwhile. */
const STEP_MS = 1000;
/** Minimum rows of a prefill step. STEP_MS never splits a kernel's row tile. */
const LEAST_ROWS = 16;
/** Milliseconds by which timers may fire late. */
const TIMER_MS = 2;

/** Cuts a step into submits of at most SUBMIT_MS. A single workgroup may take longer. */
export function cutStep(dispatches: readonly Dispatch[], size: StepSize, costs: Costs): Piece[][] {
  const submits: Piece[][] = [];
  let submit: Piece[] = [];
  let ms = 0;
  for (const dispatch of dispatches) {
    if (!isFor(dispatch, size)) continue;
    for (const piece of cutPiece(wholeOf(dispatch, size), size, costs, SUBMIT_MS)) {
      const cost = costs.of(piece.kernel, piece.work);
      if (submit.length > 0 && ms + cost > SUBMIT_MS) {
        submits.push(submit);
        [submit, ms] = [[], 0];
      }
      submit.push(piece);
      ms += cost;
    }
  }
  if (submit.length > 0) submits.push(submit);
  return submits;
}

/** Returns the number of rows with which a prefill step should take at most STEP_MS. */
export function fittingRows(
  dispatches: readonly Dispatch[],
  { maxRows, tileRows, context }: Readonly<Record<"maxRows" | "tileRows" | "context", number>>,
  costs: Costs,
): number {
  const msOf = (rows: number) => {
    const tiles = Math.ceil(rows / tileRows);
    const size = { step: rows, sequences: 1, logits: 0, singles: 0, tiles, context: Math.max(rows, context) };
    return costs.sum(dispatches.filter((d) => isFor(d, size)).map((d) => wholeOf(d, size)));
  };
  let rows = LEAST_ROWS;
  while (2 * rows <= maxRows && msOf(2 * rows) <= STEP_MS) rows *= 2;
  return rows;
}

/** Submitted work, with its start (when the device had no earlier work) and its end. */
interface Span {
  readonly pieces: Piece[];
  since: number;
  done?: number;
}

/** Submits work in pieces of bounded length, a bounded time ahead, and learns the duration of each piece. */
export class Submits {
  /** The submitted work whose end is awaited. `#latest` is the work submitted after it. */
  #asked: Span & { readonly end: Promise<void> } | undefined;
  #latest: Span = { pieces: [], since: 0 };
  /** The timed passes of the current step. */
  #times: StepTimes | undefined;

  constructor(
    private readonly gpu: Gpu,
    private readonly recorder: Recorder,
    readonly costs: Costs,
  ) {}

  /** Estimated milliseconds until the submitted work is done. */
  get remainingMs(): number {
    const spans = [this.#asked, this.#latest].filter((span) => span && span.pieces.length > 0) as Span[];
    if (spans.length === 0) return 0;
    const all = spans.reduce((ms, { pieces }) => ms + this.costs.sum(pieces), 0);
    return Math.max(0, spans[0].since + all - performance.now());
  }

  /**
   * Submits a step, then the commands of `after`. `times` selects the passes to time. Returns false if `stopped` became
   * true before the end. Throws DeviceLost.
   */
  async send(
    submits: readonly (readonly Piece[])[],
    stopped: () => boolean,
    after?: (encoder: GPUCommandEncoder) => void,
    times?: StepTimes,
  ): Promise<boolean> {
    this.#times ??= times;
    for (const [i, pieces] of submits.entries()) {
      while (!await this.#room(this.costs.sum(pieces)));
      if (stopped()) return false;
      this.#submit(pieces, i === submits.length - 1 ? after : undefined, times);
    }
    return true;
  }

  /** Notes that all submitted work is done, and learns from the times of timed passes. */
  settled(times?: readonly PassTime[]): void {
    if (this.#asked?.done !== undefined) this.#learnAsked(this.#asked.done);
    const { pieces, since } = this.#asked ?? this.#latest;
    const all = this.#asked ? [...pieces, ...this.#latest.pieces] : pieces;
    if (all.length > 0) this.#learn(all, performance.now() - since);
    if (times) this.#times?.learn(times);
    this.forget();
  }

  /** Forgets the submitted work without learning its time. */
  forget(): void {
    this.#asked = undefined;
    this.#latest = { pieces: [], since: 0 };
    this.#times = undefined;
  }

  /** Learns from pieces that took `ms` together, unless the device's clock has already timed kernels separately. */
  #learn(pieces: readonly Piece[], ms: number): void {
    if (this.#times && this.costs.timed) this.costs.ran(pieces);
    else this.costs.learn(pieces, ms);
  }

  /** Waits for a while. Returns whether `ms` more of work may be submitted. */
  async #room(ms: number): Promise<boolean> {
    const pause = this.remainingMs + ms - AHEAD_MS;
    if (pause <= 0 || (!this.#asked && this.#latest.pieces.length === 0)) return true;
    if (this.#asked) {
      await this.#asked.end;
      this.#learnAsked(this.#asked.done!);
      return false;
    }
    // On some drivers, waiting for the queue blocks the thread until the work is done, so the wait starts late.
    if (pause > TIMER_MS) {
      await new Promise((resolve) => setTimeout(resolve, Math.min(pause, AHEAD_MS) - TIMER_MS));
    }
    const span = this.#latest;
    const { device, loss } = this.gpu;
    const end = loss.or(device.queue.onSubmittedWorkDone()).then(() => {
      span.done = performance.now();
    });
    end.catch(() => {}); // the promise is awaited later
    this.#asked = Object.assign(span, { end });
    this.#latest = { pieces: [], since: 0 };
    return true;
  }

  /** Learns from the work whose end was awaited. */
  #learnAsked(done: number): void {
    const { pieces, since } = this.#asked!;
    this.#learn(pieces, done - since);
    this.#latest.since = Math.max(this.#latest.since, done);
    this.#asked = undefined;
  }

  #submit(pieces: readonly Piece[], after?: (encoder: GPUCommandEncoder) => void, times?: StepTimes): void {
    const { device } = this.gpu;
    const encoder = device.createCommandEncoder();
    for (const pass of times?.passes(pieces) ?? [{ pieces }]) {
      this.recorder.record(encoder, pass.pieces, pass.stamps);
    }
    after?.(encoder);
    const commands = encoder.finish();
    if (this.#latest.pieces.length === 0) this.#latest.since = performance.now();
    this.#latest.pieces.push(...pieces);
    device.queue.submit([commands]);
  }
}
