/** Lets a synchronous caller wait for long work without holding the event loop. */

/** Work in slices: each yield is a pause. */
export type Paced<T> = Generator<undefined, T>;

/** Stops the action of `withPauses` until the work is done. Nothing else may catch it. */
class Pause extends Error {
  override name = "Pause";
  constructor(readonly work: Paced<unknown>) {
    super("The work goes on after a pause");
  }
}

/** State of the long work of an action in `withPauses`. */
interface Action {
  /** Returns or throws the outcome of each work that paused, in order. */
  readonly outcomes: (() => unknown)[];
  /** How many of the outcomes this run of the action has used. */
  used: number;
}

let current: Action | undefined;

/** Does the work to its end. Inside `withPauses` the event loop runs between its slices. */
export function finish<T>(work: Paced<T>): T {
  for (let step = work.next();; step = work.next()) {
    if (step.done) return step.value;
    if (!current) continue;
    const outcome = current.outcomes[current.used++];
    if (outcome) return outcome() as T;
    throw new Pause(work);
  }
}

/** Does work that must be short. Throws where it would pause. */
export function atOnce<T>(work: Paced<T>): T {
  const step = work.next();
  if (step.done) return step.value;
  throw new Error("it takes too long");
}

/**
 * Runs a synchronous action whose long work (`finish`) pauses. The action begins anew after each long work, which is not
 * repeated: so it must do the same each time. `spent` gets the milliseconds of all work.
 */
export async function withPauses<T>(action: () => T, spent?: (ms: number) => void): Promise<T> {
  const outcomes: Action["outcomes"] = [];
  let ms = 0;
  const timed = <R>(run: () => R): R => {
    const begun = performance.now();
    try {
      return run();
    } finally {
      ms += performance.now() - begun;
    }
  };
  try {
    for (;;) {
      try {
        current = { outcomes, used: 0 };
        return timed(action);
      } catch (error) {
        current = undefined;
        if (!(error instanceof Pause)) throw error;
        outcomes.push(await outcomeOf(() => timed(() => error.work.next())));
      } finally {
        current = undefined;
      }
    }
  } finally {
    spent?.(ms);
  }
}

/** Does the rest of the work, and returns a function that returns or throws its outcome. */
async function outcomeOf(next: () => IteratorResult<undefined, unknown>): Promise<() => unknown> {
  try {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve));
      const { done, value } = next();
      if (done) return () => value;
    }
  } catch (error) {
    return () => {
      throw error;
    };
  }
}
