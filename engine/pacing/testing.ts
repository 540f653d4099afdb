import { withPauses } from "./pauses.ts";

/**
 * Runs an action with a clock that jumps at each reading, so that the action pauses wherever its work allows it, and at
 * its end. Returns the result and the number of pauses, which is the same on every machine.
 */
export async function onFastClock<T>(run: () => Promise<T>): Promise<{ result: T; pauses: number }> {
  const { setTimeout: wait } = globalThis;
  const { now } = performance;
  let pauses = 0;
  let time = 0;
  performance.now = () => time += 1000;
  globalThis.setTimeout = ((next: () => void, ms: number) => {
    pauses++;
    time += ms;
    queueMicrotask(next);
  }) as typeof setTimeout;
  try {
    return { result: await run(), pauses };
  } finally {
    performance.now = now;
    globalThis.setTimeout = wait;
  }
}

/** Returns the result of an action and the number of its pauses on that clock. */
export function pausesOf<T>(action: () => T): Promise<{ result: T; pauses: number }> {
  return onFastClock(() => withPauses(action));
}
