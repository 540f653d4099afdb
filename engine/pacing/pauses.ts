/** Lets a synchronous caller wait for long work without holding the event loop. */

/** Work in slices: at each yield it may pause. */
export type Paced<T> = Generator<undefined, T>;

/** Short steps of a loop, up to about 1 us each, between two yields. */
export const STEPS_PER_OFFER = 1 << 10;

/** Milliseconds of work after which an action pauses. */
const SLICE_MS = 4;

/** Stops the action of `withPauses` until the work is done. Nothing else may catch it. */
class Pause extends Error {
  override name = "Pause";
  constructor(readonly work: Paced<unknown>) {
    super("The work goes on after a pause");
  }
}

/** State of an action in `withPauses`. */
interface Action {
  /** Returns or throws the outcome of each finished work, in order. */
  readonly outcomes: (() => unknown)[];
  /** How many of them this run of the action has used. */
  used: number;
  /** When this run must pause, in milliseconds of performance.now(). */
  readonly until: number;
}

let current: Action | undefined;

/**
 * Does the work to its end. Inside `withPauses` the event loop runs between its slices. Work that is done inside other
 * work does not pause: the outer work includes its slices by `yield*`.
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

/** Does the work until it is done or the time has come. Returns its result, or UNDONE. */
function drain<T>(work: Paced<T>, until: number): T | typeof UNDONE {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
    if (until !== Infinity && performance.now() >= until) return UNDONE;
  }
}

/** Does the work until the time has come. Returns a function that returns or throws its outcome; undefined if undone. */
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

/** Does work that must be short. Throws where it would pause. */
export function atOnce<T>(work: Paced<T>): T {
  const step = work.next();
  if (step.done) return step.value;
  throw new Error("it takes too long");
}

/** The actions that pause take turns: only one slice runs before others are served. */
let turn: Promise<void> = Promise.resolve();

/** Waits for a turn, which leaves others as much time as a slice takes. */
function pause(): Promise<void> {
  return turn = turn.then(async () => {
    const until = performance.now() + SLICE_MS;
    // A timer counts from when the event loop's turn began, so it may come at once after a long slice.
    do await new Promise((resolve) => setTimeout(resolve, SLICE_MS)); while (performance.now() < until);
  });
}

/**
 * Runs a synchronous action whose long work (`finish`) pauses. The action begins anew after each pause, without the work
 * that is done: so it must do the same each time, and must not change the results of works. `spent` gets the milliseconds
 * of an action that paused. After `signal` the action does not go on.
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
