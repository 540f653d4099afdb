import type { Engine } from "../../engine/mod.ts";

interface Pace {
  /** Time from which the interval to the first of `ends` is measured. */
  since: number;
  /** Times of the last ended answers, oldest first. */
  ends: number[];
}

/** Number of end times of answers to keep. */
const REMEMBERED = 32;
/** Bounds of the estimated wait in seconds. The official clients ignore waits of a minute or more. */
const LEAST = 1;
const MOST = 59;

const paces = new WeakMap<Engine, Pace>();

/**
 * Records the start of an answer. After an idle time, the rate measurement restarts. Times are in milliseconds of
 * performance.now().
 */
export function noteStart(engine: Engine, now = performance.now()): void {
  const { running, waiting } = engine.stats();
  if (!paces.has(engine) || running + waiting === 0) paces.set(engine, { since: now, ends: [] });
}

/** Notes the end of an answer, successful or not. */
export function noteEnd(engine: Engine, now = performance.now()): void {
  const pace = paces.get(engine);
  if (!pace) return;
  pace.ends.push(now);
  if (pace.ends.length > REMEMBERED) pace.since = pace.ends.shift()!;
}

/**
 * Returns the estimated seconds until all waiting requests have left the queue, at the recent rate of ended answers;
 * from 1 to 59.
 */
export function secondsUntilRoom(engine: Engine, now = performance.now()): number {
  const { since, ends } = paces.get(engine) ?? { since: now, ends: [] };
  // The estimate assumes that one answer ends now, so that it exists before the first answer ends.
  const secondsEach = (now - since) / 1000 / (ends.length + 1);
  return Math.min(Math.max(Math.ceil(engine.stats().waiting * secondsEach), LEAST), MOST);
}
