import { withPauses } from "./pauses.ts";

/**
 * Runs an action on a clock that jumps at each look, so that it pauses wherever its work offers to. Returns its result
 * and the number of pauses, which depends on no machine.
 */
export async function pausesOf<T>(action: () => T): Promise<{ result: T; pauses: number }> {
  const { setTimeout: wait } = globalThis;
  const { now } = performance;
  let pauses = 0;
  let time = 0;
  performance.now = () => time += 1000;
  globalThis.setTimeout = ((run: () => void) => {
    pauses++;
    queueMicrotask(run);
  }) as typeof setTimeout;
  try {
    return { result: await withPauses(action), pauses };
  } finally {
    performance.now = now;
    globalThis.setTimeout = wait;
  }
}
