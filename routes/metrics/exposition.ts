/** Values of a sample's labels, by name. */
export type Labels = Readonly<Record<string, string>>;

/** One line of the exposition: a value, its labels and, in a histogram, the suffix of the metric's name. */
export interface Sample {
  readonly value: number;
  readonly labels?: Labels;
  readonly suffix?: "_bucket" | "_sum" | "_count";
}

/** A metric, whose samples are read at each scrape. */
export interface Metric {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge" | "histogram";
  samples(): Iterable<Sample>;
}

export const CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** Returns the metrics in Prometheus' text format, version 0.0.4 (prometheus.io, "Exposition formats"). */
export function exposition(metrics: Iterable<Metric>): string {
  let text = "";
  for (const { name, help, type, samples } of metrics) {
    text += `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
    for (const { value, labels, suffix = "" } of samples()) {
      text += `${name}${suffix}${labels ? braced(labels) : ""} ${value}\n`;
    }
  }
  return text;
}

function braced(labels: Labels): string {
  const pairs = Object.entries(labels).map(([name, value]) =>
    `${name}="${value.replace(/[\\"\n]/g, quoted)}"`
  );
  return `{${pairs.join(",")}}`;
}

function quoted(character: string): string {
  return character === "\n" ? "\\n" : `\\${character}`;
}

/** One value for each combination of labels. */
export class Counts {
  readonly #samples = new Map<string, { labels: Labels; value: number }>();

  add(labels: Labels): void {
    const key = Object.values(labels).join("\n");
    const sample = this.#samples.get(key);
    if (sample) sample.value++;
    else this.#samples.set(key, { labels, value: 1 });
  }

  samples(): Iterable<Sample> {
    return this.#samples.values();
  }
}

/** Counts of observed values per bucket, for each model. */
export class Buckets {
  readonly #models = new Map<string, { counts: number[]; sum: number }>();

  /** `bounds` are the buckets' largest values, ascending. */
  constructor(private readonly bounds: readonly number[]) {}

  observe(model: string, value: number): void {
    let state = this.#models.get(model);
    if (!state) this.#models.set(model, state = { counts: Array(this.bounds.length + 1).fill(0), sum: 0 });
    const bucket = this.bounds.findIndex((bound) => value <= bound);
    state.counts[bucket < 0 ? this.bounds.length : bucket]++;
    state.sum += value;
  }

  *samples(): Iterable<Sample> {
    for (const [model, { counts, sum }] of this.#models) {
      yield* histogram({ model }, this.bounds, counts, sum);
    }
  }
}

/** Returns a histogram's samples: cumulative counts, as Prometheus expects. `counts` has one more entry than `bounds`. */
export function histogram(
  labels: Labels,
  bounds: readonly number[],
  counts: readonly number[],
  sum: number,
): Sample[] {
  let below = 0;
  const buckets = counts.map((count, i): Sample => {
    below += count;
    return {
      suffix: "_bucket",
      labels: { le: i < bounds.length ? `${bounds[i]}` : "+Inf", ...labels },
      value: below,
    };
  });
  return [...buckets, { suffix: "_sum", labels, value: sum }, { suffix: "_count", labels, value: below }];
}
