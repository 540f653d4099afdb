import { assertEquals } from "@std/assert";
import { axisTop, History, linePath, parseMetrics, total } from "./metrics.js";

Deno.test("metrics: parses Prometheus' text format with and without labels", () => {
  const samples = parseMetrics([
    "# HELP compy_x {not a sample} 3",
    "compy_generated_tokens_total 12",
    'compy_kv_blocks{model="a \\"b\\" {c}"} 3',
    'compy_kv_blocks{model="d",} 4 1700000000',
    'h_bucket{le="+Inf"} +Inf',
    "",
    "nonsense",
  ].join("\n"));
  assertEquals(samples.map(({ name }) => name), [
    "compy_generated_tokens_total",
    "compy_kv_blocks",
    "compy_kv_blocks",
    "h_bucket",
  ]);
  assertEquals(samples[1].labels, { model: 'a "b" {c}' });
  assertEquals(total(samples, "compy_kv_blocks"), 7);
  assertEquals(total(samples, "compy_missing"), undefined);
});

const sample = (tokens: number, running = 0) =>
  parseMetrics(
    `compy_generated_tokens_total ${tokens}\ncompy_prompt_tokens_total ${tokens}\n` +
      `compy_cached_prompt_tokens_total ${tokens / 2}\ncompy_requests_running ${running}\n` +
      'compy_kv_blocks_used{model="a"} 1\ncompy_kv_blocks{model="a"} 4',
  );

Deno.test("metrics: turns counters into rates, without bursts after a restart or pause", () => {
  const history = new History(3);
  history.add(sample(100), 0);
  history.add(sample(150, 2), 2000);
  assertEquals(history.points[1], { generated: 25, read: 12.5, running: 2, waiting: 0, kv: 25 });
  history.add(sample(10), 3000);
  assertEquals(history.points[2].generated, 0);
  history.add(sample(10_000), 60_000);
  assertEquals(history.points.map(({ generated }) => generated), [25, 0, 0]);
});

Deno.test("page plots: axes end at round numbers, and lines end at the right edge", () => {
  assertEquals([0, 3, 17, 50, 51, 999].map((most) => axisTop(most, 1)), [1, 5, 20, 50, 100, 1000]);
  assertEquals(axisTop(3, 10), 10);
  const frame = { width: 100, height: 10, slots: 5, top: 4 };
  assertEquals(linePath([0, 4, 8], frame), "M50.0 10.0L75.0 0.0L100.0 0.0");
});
