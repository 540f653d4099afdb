import { assert, assertEquals, assertRejects } from "@std/assert";
import {
  assertDone,
  assertFailedForGood,
  assertNothingTorn,
  batchError,
  brokenRuns,
  expected,
  newDisk,
  PARALLEL,
  run,
} from "./crash_job.ts";
import { seeded, SimCrash } from "./sim_storage.ts";
import { isFullTier } from "../../testing/tier.ts";

/*
 * Every fault hits a small job at every file system call; the job runs again until it is done. The output must equal that of an
 * undisturbed run. The campaign is `deno task storms --only disk-faults`.
 */

Deno.test("batch: an undisturbed job answers each line once, in input order", () => {
  const lines = [...expected.output.trim().split("\n"), ...expected.errors.trim().split("\n")].map((l) =>
    JSON.parse(l)
  );
  assertEquals(lines.length, 14);
  assertEquals(
    expected.output.trim().split("\n").map((line) => JSON.parse(line).custom_id),
    [0, 1, 2, 4, 8, 10, 11, 12, 13].map((n) => `line-${n}`),
  );
  assertEquals(
    expected.errors.trim().split("\n").map((line) => JSON.parse(line).custom_id),
    [null, "line-5", "line-6", "line-2", "line-9"],
  );
  assertEquals(new Set(lines.map(({ id }) => id)).size, 14);
});

for (const how of ["kill", "powerCut"] as const) {
  Deno.test(`batch: answers are not lost, duplicated or torn after ${how} at every call, then at a random one`, async () => {
    for (let call = 0; call < expected.calls; call++) {
      for (let seed = 0; seed < (isFullTier ? 6 : 2); seed++) {
        const random = seeded(1000 * call + seed);
        const storage = newDisk(seed + call, (n) => n === call ? "crash" : "none");
        let crashed = await run(storage);
        let reported = crashed.reported;
        for (let crashes = 0; crashed.error !== undefined; crashes++) {
          assert(crashes < 3, `does not come to an end: ${crashed.error}`);
          storage[how]();
          assertNothingTorn(storage);
          const next = crashes === 0 && seed % 2 === 1 ? Math.floor(random() * expected.calls) : -1;
          storage.setFault((n) => n === next ? "crash" : "none");
          const before = crashed;
          crashed = await run(storage);
          if (crashed.executed.length > 0 || crashed.startedWith > 0) {
            assert(
              crashed.startedWith >= reported,
              `${reported} were reported, ${crashed.startedWith} are left`,
            );
            const again = crashed.executed.filter((n) => before.executed.includes(n));
            // Lines 6 and 9 are held back until a good answer comes.
            assert(again.filter((n) => n !== 6 && n !== 9).length <= PARALLEL, `repeated ${again}`);
          }
          reported = crashed.reported;
        }
        assertDone(storage, crashed.result);
      }
    }
  });
}

for (
  const [fault, what, code] of [["ENOSPC", "a full disk", "disk_full"], [
    "EMFILE",
    "no descriptor",
    "no_descriptors",
  ]] as const
) {
  Deno.test(`batch: a job resumes when space is free again after ${what} at any call`, async () => {
    let stopped = 0;
    for (let call = 0; call < expected.calls; call++) {
      for (const lasting of [false, true]) {
        const storage = newDisk(call, (n) => n === call || (lasting && n > call) ? fault : "none");
        const { error, result } = await run(storage);
        assertNothingTorn(storage);
        storage.setFault(() => "none");
        if (error === undefined) {
          assertDone(storage, result);
          continue;
        }
        stopped += 1;
        const found = batchError(error);
        if (fault === "ENOSPC" && found.code === "sync_failed") {
          // A full disk cannot store the failure mark either.
          if (!lasting) await assertFailedForGood(storage);
          continue;
        }
        assertEquals([found.code, found.resumable], [code, true]);
        assertDone(storage, (await run(storage)).result);
      }
    }
    assert(stopped > 10, `only ${stopped}`);
  });
}

Deno.test("batch: an I/O error at any call stops the job, which can resume unless a sync failed", async () => {
  for (let call = 0; call < expected.calls; call++) {
    const storage = newDisk(call, (n) => n === call ? "EIO" : "none");
    const { error, result } = await run(storage);
    assertNothingTorn(storage);
    storage.setFault(() => "none");
    if (error === undefined) {
      assertDone(storage, result);
    } else if (storage.log[call].startsWith("sync")) {
      const { code, resumable } = batchError(error);
      assertEquals([code, resumable], ["sync_failed", false]);
      await assertFailedForGood(storage);
    } else {
      const { code, resumable } = batchError(error);
      assertEquals([code, resumable], ["io_error", true]);
      storage.powerCut();
      assertDone(storage, (await run(storage)).result);
    }
  }
});

Deno.test("batch: after a file system fails, every call fails until the job starts again", async () => {
  const storage = newDisk(1, (n) => n === 5 ? "crash" : "none");
  await run(storage);
  await assertRejects(() => storage.stat("in.jsonl"), SimCrash);
});

Deno.test("batch: answers are not lost, duplicated or torn after seeded sequences of faults", async () => {
  const came = { "done": 0, "failed for good": 0 };
  const seeds = isFullTier ? 500 : 100;
  for (let seed = 0; seed < seeds; seed++) came[await brokenRuns(seed)] += 1;
  assert(came["done"] > seeds / 5 && came["failed for good"] > seeds / 100, JSON.stringify(came));
});
