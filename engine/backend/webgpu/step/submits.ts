import { type Costs, cutPiece, type Piece, wholeOf } from "./costs.ts";
import type { Gpu } from "../device/gpu.ts";
import type { PassTime } from "../device/pass_clock.ts";
import { type Dispatch, isFor, type StepSize } from "./dispatch.ts";
import type { Recorder } from "./recorder.ts";
import type { StepTimes } from "./step_times.ts";

/**
 * Milliseconds that one submit is to take, by what is expected: well under the 100 that it may, since a busy device takes up to three times that. A driver
 * resets a device whose work takes some two seconds, and a screen's own work waits for the end of ours.
 */
export const SUBMIT_MS = 25;
/** Milliseconds of work that are handed over ahead: enough for a device never to wait, and little enough to stop soon. */
const AHEAD_MS = 60;
/** Timers come some milliseconds late. */
const TIMER_MS = 2;

/** A step's work in pieces, a list for each submit. None is expected to take longer than it is to, unless by a single workgroup. */
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

/** Work that was handed over, from when on the device had nothing else to do, and when it was done. */
interface Span {
  readonly pieces: Piece[];
  since: number;
  done?: number;
}

/** Hands work over in submits of bounded length, not too far ahead, and learns what it takes. */
export class Submits {
  /** What the device was asked about, and what was handed over since. */
  #asked: Span & { readonly end: Promise<void> } | undefined;
  #latest: Span = { pieces: [], since: 0 };
  /** What of the step under way is timed by the device's clock. */
  #times: StepTimes | undefined;

  constructor(
    private readonly gpu: Gpu,
    private readonly recorder: Recorder,
    readonly costs: Costs,
  ) {}

  /** Milliseconds until what was handed over is done, as far as can be said. */
  get remainingMs(): number {
    const spans = [this.#asked, this.#latest].filter((span) => span && span.pieces.length > 0) as Span[];
    if (spans.length === 0) return 0;
    const all = spans.reduce((ms, { pieces }) => ms + this.costs.sum(pieces), 0);
    return Math.max(0, spans[0].since + all - performance.now());
  }

  /**
   * Hands over a step, `after` recorded behind it; `times` chooses what of it is timed. Gives false where `stopped` came true before its
   * end. Throws DeviceLost where the device is lost.
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

  /** Everything that was handed over is done; what was timed of it took so long. */
  settled(times?: readonly PassTime[]): void {
    if (this.#asked?.done !== undefined) this.#learnAsked(this.#asked.done);
    const { pieces, since } = this.#asked ?? this.#latest;
    const all = this.#asked ? [...pieces, ...this.#latest.pieces] : pieces;
    if (all.length > 0) this.#learn(all, performance.now() - since);
    if (times) this.#times?.learn(times);
    this.forget();
  }

  /** Forgets what is under way: how long it takes will not be known. */
  forget(): void {
    this.#asked = undefined;
    this.#latest = { pieces: [], since: 0 };
    this.#times = undefined;
  }

  /** The pieces took so long together: of no use where the device's clock tells what each kernel takes, and has told before. */
  #learn(pieces: readonly Piece[], ms: number): void {
    if (this.#times && this.costs.timed) this.costs.ran(pieces);
    else this.costs.learn(pieces, ms);
  }

  /** Waits, and gives true once so much more work can be handed over. */
  async #room(ms: number): Promise<boolean> {
    const pause = this.remainingMs + ms - AHEAD_MS;
    if (pause <= 0 || (!this.#asked && this.#latest.pieces.length === 0)) return true;
    if (this.#asked) {
      await this.#asked.end;
      this.#learnAsked(this.#asked.done!);
      return false;
    }
    // To ask blocks this thread on some drivers, until the work is done: so that is done late.
    if (pause > TIMER_MS) {
      await new Promise((resolve) => setTimeout(resolve, Math.min(pause, AHEAD_MS) - TIMER_MS));
    }
    const span = this.#latest;
    const { device, loss } = this.gpu;
    const end = loss.or(device.queue.onSubmittedWorkDone()).then(() => {
      span.done = performance.now();
    });
    end.catch(() => {}); // it is waited for later
    this.#asked = Object.assign(span, { end });
    this.#latest = { pieces: [], since: 0 };
    return true;
  }

  /** What was asked about was done then. */
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
