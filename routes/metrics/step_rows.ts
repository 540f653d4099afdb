import type { Metric, MetricValue, Registry } from "prom-client";
import type { EngineStats } from "../../engine/mod.ts";

const NAME = "compy_step_rows";

/**
 * Adds a histogram of rows per step. The engine keeps the counts, so a step has no extra cost; prom-client's own
 * histograms cannot be set from counts.
 */
export function registerStepRows(
  registry: Registry,
  read: () => [labels: Record<string, string>, stats: EngineStats][],
): void {
  const metric = {
    name: NAME,
    help: "Rows of a step: tokens of answers and prompts that are computed together",
    type: "histogram",
    aggregator: "sum",
    get() {
      const values = read().flatMap(([labels, stats]) => series(labels, stats));
      return Promise.resolve({
        name: this.name,
        help: this.help,
        type: this.type,
        values,
        aggregator: "sum",
      });
    },
  };
  registry.registerMetric(metric as unknown as Metric);
}

/** Returns the cumulative counts up to each bound, as Prometheus expects. */
function series(labels: Record<string, string>, { steps, rows, stepRows }: EngineStats) {
  const buckets: (MetricValue<string> & { metricName: string })[] = [];
  let below = 0;
  stepRows.slice(0, -1).forEach((count, i) => {
    below += count;
    buckets.push({ metricName: `${NAME}_bucket`, labels: { le: 2 ** i, ...labels }, value: below });
  });
  return [
    ...buckets,
    { metricName: `${NAME}_bucket`, labels: { le: "+Inf", ...labels }, value: steps },
    { metricName: `${NAME}_sum`, labels, value: rows },
    { metricName: `${NAME}_count`, labels, value: steps },
  ];
}
