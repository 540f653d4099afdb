/** Lets synchronous code do long work without blocking the event loop: the work pauses, and other requests run. */

/** Long work as a generator. At each `yield` it may pause. */
export type Paced<T> = Generator<undefined, T>;

/** Number of short loop steps, of up to about 1 us each, between two yields. */
export const STEPS_PER_OFFER = 1 << 10;

/** Milliseconds of work after which an action pauses. */
const SLICE_MS = 4;

/** Thrown to stop the action of `withPauses` until the work is done. Only `withPauses` may catch it. */
class Pause extends Error {
  override name = "Pause";
  constructor(readonly work: Paced<unknown>) {
    super("The work continues after a pause");
  }
}

/** State of an action in `withPauses`. */
interface Action {
  /** Functions for the finished works, in order: each returns the work's result or throws its error. */
  readonly outcomes: (() => unknown)[];
  /** Number of these functions that the current run of the action has called. */
  used: number;
  /** Time at which the current run must pause, in milliseconds of performance.now(). */
  readonly until: number;
}

let current: Action | undefined;

/**
 * Does the work to its end and returns its result. Inside `withPauses`, the event loop runs between slices of the
 * work. Nested work must not call this function; the outer work includes the nested work by `yield*`.
 */
export function finish<T>(work: Paced<T>): T {
  const action = current;
  if (!action) return drain(work, Infinity) as T;
  const at = action.used++;
  if (at === action.outcomes.length) {
    current = undefined;
    try {
      const outcome = outcomeOf(work, action.until);
      if (!outcome) throw new Pause(work);
      action.outcomes.push(outcome);
    } finally {
      current = action;
    }
  }
  return action.outcomes[at]() as T;
}

const UNDONE = Symbol();

/** Does the work until it is done or its time is over. Returns its result, or UNDONE. */
function drain<T>(work: Paced<T>, until: number): T | typeof UNDONE {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
    if (until !== Infinity && performance.now() >= until) return UNDONE;
  }
}

/**
 * Does the work until its time is over. Returns undefined if the work is not done; otherwise a function that returns
 * its result or throws its error.
 */
function outcomeOf(work: Paced<unknown>, until: number): (() => unknown) | undefined {
  try {
    const value = drain(work, until);
    return value === UNDONE ? undefined : () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

/** Does work that is short enough to need no pause. Throws if the work would pause. */
export function atOnce<T>(work: Paced<T>): T {
  const step = work.next();
  if (step.done) return step.value;
  throw new Error("it takes too long");
}

/** Paused actions take turns, so that only one slice runs before the event loop serves other requests. */
let turn: Promise<void> = Promise.resolve();

/** Waits for the action's turn. Between two turns, other requests get as much time as a slice takes. */
function pause(): Promise<void> {
  return turn = turn.then(async () => {
    const until = performance.now() + SLICE_MS;
    // A timer counts from the beginning of the event loop's turn, so it may fire at once after a long slice.
    do await new Promise((resolve) => setTimeout(resolve, SLICE_MS)); while (performance.now() < until);
  });
}

/**
 * Runs a synchronous action whose long work (`finish`) pauses. After each pause the action starts again from its
 * beginning, and finished works return their results at once. So the action must do the same each time, and must not
 * change these results. `spent` gets the milliseconds of an action that paused. After `signal` is aborted, the action
 * does not continue.
 */
export async function withPauses<T>(
  action: () => T,
  { spent, signal }: { spent?: (ms: number) => void; signal?: AbortSignal } = {},
): Promise<T> {
  const outcomes: Action["outcomes"] = [];
  let ms = 0;
  let hasPaused = false;
  const timed = <R>(run: (until: number) => R): R => {
    const begun = performance.now();
    try {
      return run(begun + SLICE_MS);
    } finally {
      ms += performance.now() - begun;
    }
  };
  try {
    for (;;) {
      try {
        return timed((until) => {
          current = { outcomes, used: 0, until };
          return action();
        });
      } catch (error) {
        if (!(error instanceof Pause)) throw error;
        current = undefined;
        hasPaused = true;
        let outcome: (() => unknown) | undefined;
        while (!outcome) {
          await pause();
          signal?.throwIfAborted();
          outcome = timed((until) => outcomeOf(error.work, until));
        }
        outcomes.push(outcome);
      } finally {
        current = undefined;
      }
    }
  } finally {
    if (hasPaused) spent?.(ms);
  }
}
