/**
 * V8 starts a collection when this much is allocated outside its heap, even if its heap is nearly empty. By
 * trial, 200 MiB are too few.
 */
const NOTICED_BYTES = 2 ** 30;

/**
 * Makes V8 start a garbage collection in the background. An idle server might otherwise keep an unloaded
 * model's vocabulary forever. Allocating is the only way a program can trigger this. The bytes are never
 * touched, so they never become resident.
 */
export function startCollection(): void {
  try {
    new ArrayBuffer(NOTICED_BYTES).transfer(0);
  } catch {
    // The allocation failed, so V8 has just collected everything to make room.
  }
}
