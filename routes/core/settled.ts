import { delay } from "@std/async/delay.js";

/** Waits at most `ms` for the promise. Returns whether it was fulfilled in time; throws if it was rejected in time. */
export async function settledWithin(promise: Promise<unknown>, ms: number): Promise<boolean> {
  const timer = new AbortController();
  try {
    return await Promise.race([promise.then(() => true), delay(ms, timer).then(() => false)]);
  } finally {
    timer.abort();
  }
}
