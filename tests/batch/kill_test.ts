import { assert } from "@std/assert";
import { KillJob, pointsOf } from "./kill_job.ts";
import { seeded } from "./sim_storage.ts";
import { testSeed } from "../../testing/random.ts";
import { fullTier } from "../../testing/tier.ts";

/* Kills processes that run a batch job, and compares with an undisturbed run. The campaign is `deno task storms`. */

Deno.test("batch: output equals that of an undisturbed run after kill -9 at random moments", async () => {
  const random = seeded(testSeed());
  const job = await KillJob.make(200);
  while (!await job.run({ delay: 15, killAfter: job.kills < 12 ? 80 * random() : undefined }));
  assert(job.kills >= 3, `only ${job.kills} kills`);
  await job.end();
});

fullTier.test("batch: output equals that of an undisturbed run after kill -9 at chosen disk calls", async () => {
  const points = await pointsOf(12);
  const outcome = [
    "journal 1 after",
    "journal 2 before",
    "partial 1 after",
    "jsonl 1 before",
    "jsonl 1 after",
  ];
  const chosen = points.filter((point) => outcome.some((end) => point.endsWith(end)));
  assert(chosen.length >= 10, `only ${chosen}`);
  for (const point of chosen) {
    const job = await KillJob.make(12);
    assert(!await job.run({ delay: 0, point }), `nobody came to ${point}`);
    assert(await job.run({ delay: 0 }));
    await job.end();
  }
});
