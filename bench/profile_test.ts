import { assertAlmostEquals, assertEquals } from "@std/assert";
import { buildPlan } from "../engine/architectures/registry.ts";
import { smallTransformer } from "../engine/plan/testing.ts";
import { profileRows } from "./profile.ts";
import { decodeSample } from "./samples.ts";

Deno.test("profile: has one row per kind of op over all layers, and one for time outside ops", () => {
  const plan = buildPlan(smallTransformer({ architecture: "llama", type: "Q8_0", output: true }));
  const ms = plan.ops.map(() => 8);
  const sample = decodeSample(3, 100, 4);
  const limits = { readGbps: 1, int8Gops: 1, f32Gflops: 1 };
  const rows = profileRows({ sample, ms, wallMs: 8 * ms.length + 2 }, plan, () => 1000, limits);
  const row = (op: string) => rows.find((row) => row.op === op)!;
  assertEquals([row("rms_norm").ms, row("rms_norm").count, row("rms_norm").floorMs], [10, 5, 0]);
  assertEquals([row("not in any op").ms, row("not in any op").sequences], [0.5, 3]);
  assertAlmostEquals(rows.reduce((sum, { ms }) => sum + ms, 0), (8 * ms.length + 2) / 4);
});
