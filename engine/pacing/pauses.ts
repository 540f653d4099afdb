/** Lets synchronous code do long work without blocking the event loop: the work pauses, and other requests run. */

import { turns } from "./turns.ts";

/** Long work as a generator. At each `yield` it may pause. */
export type Paced<T> = Generator<undefined, T>;

/** Number of short loop steps, of up to about 1 us each, between two yields. */
export const STEPS_PER_OFFER = 1 << 10;

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

/** Number of entries of a list that are mapped between two yields. */
const ENTRIES_PER_OFFER = 64;

/** Maps a list like `Array.prototype.map`, in slices. */
export function mapInSlices<T, R>(list: readonly T[], map: (entry: T) => R): R[] {
  return finish(mapping(list, map));
}

function* mapping<T, R>(list: readonly T[], map: (entry: T) => R): Paced<R[]> {
  const mapped: R[] = [];
  for (const entry of list) {
    if (mapped.length % ENTRIES_PER_OFFER === ENTRIES_PER_OFFER - 1) yield;
    mapped.push(map(entry));
  }
  return mapped;
}

/** Does work that is short enough to need no pause. Throws if the work would pause. */
export function atOnce<T>(work: Paced<T>): T {
  const step = work.next();
  if (step.done) return step.value;
  throw new Error("it takes too long");
}

/** The sender of a request, whose work takes turns with other senders' work. */
export interface Sender {
  /** Senders with equal names share their turns. */
  readonly name: string;
  /** Counts the milliseconds of an action that paused. */
  spent?(ms: number): void;
  /** Aborted when the client has disconnected. The work then stops. */
  readonly signal?: AbortSignal;
}

const hooks = globalThis.process?.getBuiltinModule("node:async_hooks"); // not imported: browsers load this file too
/** Knows the sender of all asynchronous work. Undefined in a browser, where all work has one sender. */
const senders = hooks && new hooks.AsyncLocalStorage<Sender>();

function present(): Sender {
  return senders?.getStore() ?? { name: "" };
}

/** Handles a request. All work in `withPauses` meanwhile is the sender's. */
export function workFor<T>(of: Sender, handle: () => Promise<T>): Promise<T> {
  return senders ? senders.run(of, handle) : handle();
}

/** Does work whose result several requests use, for the present sender. It continues when the client has disconnected. */
export function sharedWork<T>(handle: () => Promise<T>): Promise<T> {
  return workFor({ ...present(), signal: undefined }, handle);
}

/**
 * Runs a synchronous action whose long work (`finish`) pauses. After each pause the action starts again from its
 * beginning, and finished works return their results at once. So the action must do the same each time, and must not
 * change these results. After a pause the action does not continue if the sender's signal is aborted.
 */
export async function withPauses<T>(action: () => T): Promise<T> {
  const { name, spent, signal } = present();
  const outcomes: Action["outcomes"] = [];
  let work: Paced<unknown> | undefined;
  let ms = 0;
  const slice = (until: number): { value: T } | undefined => {
    const begun = performance.now();
    try {
      if (work) {
        signal?.throwIfAborted();
        const outcome = outcomeOf(work, until);
        if (!outcome) return undefined;
        outcomes.push(outcome);
      }
      current = { outcomes, used: 0, until };
      return { value: action() };
    } catch (error) {
      if (!(error instanceof Pause)) throw error;
      work = error.work;
      return undefined;
    } finally {
      current = undefined;
      ms += performance.now() - begun;
    }
  };
  try {
    for (;;) {
      const done = await turns.run(name, slice);
      if (done) return done.value;
    }
  } finally {
    if (work) spent?.(ms);
  }
}
