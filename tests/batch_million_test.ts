import { assert } from "@std/assert";
import { runManyLines } from "./batch_million.ts";

Deno.test("batch: 50,000 lines run in little memory, and nobody who asks waits long", async () => {
  const { peakResident, waits } = await runManyLines(50_000);
  assert(peakResident < 160e6, `${(peakResident / 1e6).toFixed(0)} MB resident`);
  for (const [phase, found] of Object.entries(waits)) {
    // Not the longest: that would blame the job for what else the machine does.
    const wait = found[found.length >> 1];
    assert(wait < 50, `${phase}: ${wait.toFixed(0)} ms`);
  }
});
