/** V8 begins to collect where so much was allocated outside its heap, whatever it has inside; 200 MiB are too few by trial. */
const NOTICED_BYTES = 2 ** 30;

/**
 * Has V8 look for garbage now, beside what runs: a server that is idle after a model went may else keep the model's vocabulary
 * for good. Allocating is all that a program can do about it. Nothing touches these bytes, so they never become resident.
 */
export function startCollection(): void {
  try {
    new ArrayBuffer(NOTICED_BYTES).transfer(0);
  } catch {
    // Where there is no such room, V8 has just collected everything in search of it.
  }
}
