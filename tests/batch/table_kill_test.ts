import { assert, assertEquals } from "@std/assert";
import { KillJob, read, runChild } from "./kill_job.ts";
import { seeded } from "./sim_storage.ts";
import { testSeed } from "../../testing/random.ts";
import { fullTier } from "../../testing/tier.ts";

/* Kills processes that answer the rows of a Parquet file. The campaign is `deno task storms --only table-kills`. */

fullTier.test("batch of a table: output equals that of an undisturbed run after kill -9 at random moments and points", async () => {
  const random = seeded(testSeed());
  const job = await KillJob.make(200, "table");
  const points = [
    "write out.parquet.partial 1 before",
    "sync out.parquet.partial 1 after",
    "rename out.parquet 1 before",
    "rename out.parquet 1 after",
  ];
  while (job.kills < 5) assert(!await job.run({ delay: 15, killAfter: 80 * random() }));
  for (const point of points) assert(!await job.run({ delay: 0, point }), `nobody came to ${point}`);
  assert(await job.run({ delay: 0 }));
  await job.end();
});

fullTier.test("batch of a table: a killed retry changes only rows with errors", async () => {
  const run = async (points: readonly string[]) => {
    const job = await KillJob.make(80, "table");
    assert(await job.run({ delay: 0 }));
    const before = await read(`${job.folder}/out.parquet`);
    for (const point of points) {
      const { signal } = await runChild("table-retry", job.folder, { delay: 0, point });
      assertEquals(signal, "SIGKILL", point);
    }
    assertEquals((await runChild("table-retry", job.folder, { delay: 0 })).code, 0);
    const after = await read(`${job.folder}/out.parquet`);
    const errors = (await read(`${job.folder}/err.jsonl`))!.trimEnd().split("\n").map((text) =>
      JSON.parse(text).custom_id
    );
    await job.remove();
    return { before, after, errors };
  };
  const unkilled = await run([]);
  // Rows 0, 17, 34, 51 and 68 failed; the retry answers 17 and 51. Rows 3 and 53 are refused.
  assertEquals(unkilled.errors, ["row-1", "row-4", "row-35", "row-54", "row-69"]);
  assert(unkilled.after !== unkilled.before);
  const killed = await run([
    "rename out.parquet.retry-in 1 after",
    "rename out.parquet.retry 1 after",
    "rename err.jsonl 1 after",
    "rename out.parquet 1 before",
  ]);
  assertEquals(killed, unkilled);
});
