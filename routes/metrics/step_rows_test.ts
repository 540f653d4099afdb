import { assertEquals } from "@std/assert";
import { Registry } from "prom-client";
import { FakeEngine } from "../testing.ts";
import { registerStepRows } from "./step_rows.ts";

Deno.test("registerStepRows: exports a histogram with cumulative buckets", async () => {
  const registry = new Registry();
  const stats = { ...new FakeEngine().stats(), steps: 10, rows: 40, stepRows: [4, 1, 3, 2] };
  registerStepRows(registry, () => [[{ model: "a" }, stats]]);
  assertEquals((await registry.metrics()).split("\n").slice(1), [
    "# TYPE compy_step_rows histogram",
    'compy_step_rows_bucket{le="1",model="a"} 4',
    'compy_step_rows_bucket{le="2",model="a"} 5',
    'compy_step_rows_bucket{le="4",model="a"} 8',
    'compy_step_rows_bucket{le="+Inf",model="a"} 10',
    'compy_step_rows_sum{model="a"} 40',
    'compy_step_rows_count{model="a"} 10',
    "",
  ]);
});
