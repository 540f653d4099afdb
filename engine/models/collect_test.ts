import { deadline } from "@std/async/deadline.js";
import { testPool } from "./testing.ts";

const { promise: collected, resolve } = Promise.withResolvers<void>();
const registry = new FinalizationRegistry(() => resolve()); // a registry that is garbage itself never calls back

/**
 * Creates an unreferenced vocabulary. A separate function, because a paused function keeps references to its
 * values.
 */
function leaveGarbage() {
  registry.register(new Map(Array.from({ length: 200_000 }, (_, i) => [`token ${i}`, i])), "a vocabulary");
}

Deno.test("garbage collection: an unloaded model's objects are collected soon, even without new allocations", async () => {
  const { pool } = testPool();
  await pool.load("a");
  leaveGarbage();
  await pool.unload("a");
  await deadline(collected, 10_000);
  await pool.close();
});
