import { deadline } from "@std/async/deadline.js";
import { testPool } from "./testing.ts";

const { promise: collected, resolve } = Promise.withResolvers<void>();
const registry = new FinalizationRegistry(() => resolve()); // one that is garbage itself calls nobody

/** A vocabulary that nobody refers to. In a function of its own: one that is paused refers to all that it made. */
function leaveGarbage() {
  registry.register(new Map(Array.from({ length: 200_000 }, (_, i) => [`token ${i}`, i])), "a vocabulary");
}

Deno.test("what a model left is collected soon after it was unloaded, though nothing more is allocated", async () => {
  const { pool } = testPool();
  await pool.load("a");
  leaveGarbage();
  await pool.unload("a");
  await deadline(collected, 10_000);
  await pool.close();
});
