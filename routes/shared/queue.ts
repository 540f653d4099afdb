import type { Engine } from "../../engine/types.ts";

interface Pace {
  /** When the oldest of `ends` began to be waited for. */
  since: number;
  /** When answers ended, the latest last. */
  ends: number[];
}

/** Answers whose ends are remembered. */
const REMEMBERED = 32;
/** Seconds. The official clients overlook waits of a minute and more. */
const LEAST = 1;
const MOST = 59;

const paces = new WeakMap<Engine, Pace>();

/** An answer begins; an engine that had nothing to do is measured anew. Times are milliseconds of performance.now(). */
export function noteStart(engine: Engine, now = performance.now()): void {
  const { running, waiting } = engine.stats();
  if (!paces.has(engine) || running + waiting === 0) paces.set(engine, { since: now, ends: [] });
}

/** An answer has ended, one way or another. */
export function noteEnd(engine: Engine, now = performance.now()): void {
  const pace = paces.get(engine);
  if (!pace) return;
  pace.ends.push(now);
  if (pace.ends.length > REMEMBERED) pace.since = pace.ends.shift()!;
}

/**
 * In how many seconds the requests that wait would have been taken from the queue, at the pace at which answers ended
 * lately: an estimate, from 1 to 59.
 */
export function secondsUntilRoom(engine: Engine, now = performance.now()): number {
  const { since, ends } = paces.get(engine) ?? { since: now, ends: [] };
  // As if one ended now, so that there is an estimate before the first has.
  const secondsEach = (now - since) / 1000 / (ends.length + 1);
  return Math.min(Math.max(Math.ceil(engine.stats().waiting * secondsEach), LEAST), MOST);
}
