import { assert } from "@std/assert";
import { brokenRetry, RETRY_CALLS } from "./crash_retry.ts";
import { KillRetry } from "./kill_retry.ts";
import { seeded } from "./sim_storage.ts";
import { testSeed } from "../../testing/random.ts";
import { fullTier } from "../../testing/tier.ts";

/* Faults at every file system call of a retry. The campaign is `deno task storms --only retry-disk-faults`. */

Deno.test("batch retry: after a fault at any call, good answers are unchanged and each failed line runs once", async () => {
  const came = { "done": 0, "done after a failed sync": 0, "failed for good": 0 };
  for (let seed = 0; seed < 20 * RETRY_CALLS; seed += 13) {
    try {
      came[await brokenRetry(seed)] += 1;
    } catch (error) {
      throw new Error(`Seed ${seed} breaks the promise`, { cause: error });
    }
  }
  assert(came["done"] > 50 && came["done after a failed sync"] > 5, JSON.stringify(came));
});

fullTier.test("batch retry: good answers stay and no line is lost after kill -9 at points and random moments", async () => {
  const random = seeded(testSeed());
  const job = await KillRetry.make(80, "completed");
  const points = [
    "rename out.jsonl.retry-in 1 after",
    "sync out.jsonl.journal 2 after",
    "rename out.jsonl.retry 1 after",
    "rename err.jsonl 1 after",
    "rename out.jsonl 1 before",
  ];
  for (const point of points) assert(!await job.run({ delay: 0, point }), `nobody came to ${point}`);
  for (let i = 0; i < 3; i++) await job.run({ delay: 10, killAfter: 60 * random() });
  assert(await job.run({ delay: 0 }));
  await job.end();
});
