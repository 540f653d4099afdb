import { assert, assertEquals } from "@std/assert";
import { runManyLines } from "./million.ts";
import { fullTier } from "../../testing/tier.ts";

fullTier.test("batch: 50,000 lines run in little memory, and the job reports its progress meanwhile", async () => {
  const { peakResident, waits } = await runManyLines(50_000);
  assert(peakResident < 160e6, `${(peakResident / 1e6).toFixed(0)} MB resident`);
  assertEquals(Object.keys(waits), ["check", "run", "finish"]);
});
