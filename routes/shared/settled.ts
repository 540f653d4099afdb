import { delay } from "@std/async/delay.js";

/** Waits for the promise, at most `ms`, and tells whether it was in time; rejects only with what it rejects with then. */
export async function settledWithin(promise: Promise<unknown>, ms: number): Promise<boolean> {
  const timer = new AbortController();
  try {
    return await Promise.race([promise.then(() => true), delay(ms, timer).then(() => false)]);
  } finally {
    timer.abort();
  }
}
