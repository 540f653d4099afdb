import { type DiskStats, ENGINE_STATES, type EngineStats, type OfferedModel } from "../../engine/mod.ts";
import type { ServiceFigures } from "../../jobs/service/service.ts";
import type { Account, AnswerWatch } from "../access/account.ts";
import {
  Buckets,
  CONTENT_TYPE,
  Counts,
  exposition,
  histogram,
  type Labels,
  type Metric,
  type Sample,
} from "./exposition.ts";

/** Sources that are read when the metrics are scraped. */
export interface Watched {
  readonly models: () => readonly OfferedModel[];
  /** Number of open connections. */
  readonly connections: () => number;
  /** Returns figures of the batch service; undefined on a server without files and batches. */
  readonly batches?: () => ServiceFigures;
}

/** Histogram buckets in seconds for waiting times and time to first token. */
const WAITS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
/** Histogram buckets in seconds for the time between two tokens. */
const GAPS = [0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 10];
const SHARES = [0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1];

/** The server's metrics in Prometheus' conventions: base units, `_total` for counters, one name per quantity. */
export class Metrics {
  readonly #metrics: Metric[] = [];
  readonly #responses = this.#add(
    "counter",
    "compy_http_responses_total",
    "Answers by route and status",
    new Counts(),
  );
  readonly #queue = this.#add(
    "histogram",
    "compy_queue_seconds",
    "Time a request waits before it runs",
    new Buckets(WAITS),
  );
  readonly #firstToken = this.#add(
    "histogram",
    "compy_time_to_first_token_seconds",
    "Time from the request for an answer to its first token",
    new Buckets(WAITS),
  );
  readonly #gap = this.#add(
    "histogram",
    "compy_inter_token_seconds",
    "Time between two tokens of an answer",
    new Buckets(GAPS),
  );
  readonly #cached = this.#add(
    "histogram",
    "compy_cached_prompt_share",
    "Share of a prompt's tokens that was found in the KV cache",
    new Buckets(SHARES),
  );

  /** Counts a request. `route` is the pattern and not the client's path, so that the number of series is bounded. */
  count(route: string, status: number): void {
    this.#responses.add({ route, status: `${status}` });
  }

  /** Counts one answer, for any caller. */
  watch(model: string): AnswerWatch {
    let last = performance.now();
    let begun = false;
    return {
      event: (event) => {
        if (event.type === "token") {
          const now = performance.now();
          (begun ? this.#gap : this.#firstToken).observe(model, (now - last) / 1000);
          begun = true;
          last = now;
        } else if (event.type === "finish") {
          const { promptTokens, cachedTokens } = event.usage;
          this.#queue.observe(model, event.timings.queueMs / 1000);
          this.#cached.observe(model, cachedTokens / promptTokens);
        }
      },
      refused() {},
    };
  }

  /** Account for batch lines, to which no limits apply. */
  get ofBatches(): Account {
    return { enter: () => () => {}, failed() {}, watch: (model) => this.watch(model), read: () => () => {} };
  }

  /** Adds the sources that are read at each scrape. Call it once. */
  observe({ models, connections, batches }: Watched): void {
    const running = () =>
      models().flatMap(({ id, engine }) => engine ? [{ labels: { model: id }, engine }] : []);
    const perModel = (read: (stats: EngineStats) => number | undefined) => () =>
      running().flatMap(({ labels, engine }): Sample[] => {
        const value = read(engine.stats());
        return value === undefined ? [] : [{ labels, value }];
      });
    for (const [field, name, help] of GAUGES) {
      this.#read("gauge", name, help, perModel((stats) => stats[field]));
    }
    for (const [field, name, help] of COUNTERS) {
      this.#read("counter", name, help, perModel((stats) => stats[field]));
    }
    for (const [field, name, help] of DISK_COUNTERS) {
      this.#read("counter", name, help, perModel(({ disk }) => disk?.[field]));
    }
    for (const [field, name, help] of DISK_GAUGES) {
      const folder = perModel(({ disk }) => disk?.[field]);
      this.#read("gauge", name, help, () => folder().slice(0, 1).map(({ value }) => ({ value })));
    }
    this.#read(
      "histogram",
      "compy_step_rows",
      "Rows of a step: tokens of answers and prompts that are computed together",
      () => running().flatMap(({ labels, engine }) => stepRows(labels, engine.stats())),
    );
    this.#read(
      "gauge",
      "compy_engine_state",
      "1 for the state that the engine is in",
      () =>
        running().flatMap(({ labels, engine }) =>
          ENGINE_STATES.map((state) => ({
            labels: { ...labels, state },
            value: state === engine.state ? 1 : 0,
          }))
        ),
    );
    if (batches) this.#observeBatches(batches);
    this.#figure("compy_connections", "Connections that are open", connections);
    this.#figure(
      "process_resident_memory_bytes",
      "Resident memory of the process",
      () => process.memoryUsage().rss,
    );
    this.#figure("process_start_time_seconds", "Start time of the process, in Unix time", () => STARTED);
  }

  #observeBatches(batches: () => ServiceFigures): void {
    this.#figure("compy_files_bytes", "Bytes of all stored files", () => batches().fileBytes);
    const limit = () => batches().fileLimitBytes;
    this.#figure("compy_files_limit_bytes", "Maximum bytes of all stored files", limit);
    this.#figure("compy_batches_unfinished", "Batches that have not ended", () => batches().unfinished);
    this.#read(
      "counter",
      "compy_batches_ended_total",
      "Ended batches, by final status",
      () => Object.entries(batches().ended).map(([status, value]) => ({ labels: { status }, value })),
    );
  }

  /** Returns the metrics in Prometheus' text format, whose media type is `contentType`. */
  text(): string {
    return exposition(this.#metrics);
  }

  readonly contentType = CONTENT_TYPE;

  /** Adds a metric with samples from `source`. Returns `source`. */
  #add<T extends Pick<Metric, "samples">>(type: Metric["type"], name: string, help: string, source: T): T {
    this.#metrics.push({ type, name, help, samples: () => source.samples() });
    return source;
  }

  #read(type: Metric["type"], name: string, help: string, samples: () => Iterable<Sample>): void {
    this.#metrics.push({ type, name, help, samples });
  }

  #figure(name: string, help: string, read: () => number): void {
    this.#read("gauge", name, help, () => [{ value: read() }]);
  }
}

/** Returns the engine's counts of rows per step. The bounds of the buckets are powers of two. */
export function stepRows(
  labels: Labels,
  { rows, stepRows }: Pick<EngineStats, "rows" | "stepRows">,
): Sample[] {
  return histogram(labels, stepRows.slice(0, -1).map((_, i) => 2 ** i), stepRows, rows);
}

const STARTED = performance.timeOrigin / 1000;

type Figure = Exclude<keyof EngineStats, "stepRows" | "disk">;

const GAUGES: readonly [Figure, name: string, help: string][] = [
  ["running", "compy_requests_running", "Running requests"],
  ["waiting", "compy_requests_waiting", "Requests in the queue"],
  ["kvBlocksUsed", "compy_kv_blocks_used", "KV blocks that hold tokens of running requests"],
  ["kvBlocksTotal", "compy_kv_blocks", "All KV blocks"],
];

const COUNTERS: readonly [Figure, name: string, help: string][] = [
  ["preemptions", "compy_preemptions_total", "Preempted requests, which continue later"],
  ["promptTokens", "compy_prompt_tokens_total", "Prompt tokens of all requests"],
  ["cachedTokens", "compy_cached_prompt_tokens_total", "Prompt tokens found in the KV cache"],
  ["generatedTokens", "compy_generated_tokens_total", "Tokens generated"],
  ["forcedTokens", "compy_forced_tokens_total", "Generated tokens that were forced by a constraint"],
  ["draftedTokens", "compy_drafted_tokens_total", "Draft tokens"],
  ["acceptedTokens", "compy_accepted_draft_tokens_total", "Accepted draft tokens"],
  ["steps", "compy_steps_total", "Steps of the model"],
  ["submits", "compy_submits_total", "Backend calls, each for one or several steps"],
  ["deviceLosses", "compy_device_losses_total", "Times that the model's GPU was lost"],
  ["loosenedKeywords", "compy_loosened_keywords_total", "Keywords of tool schemas that are not enforced"],
];

const DISK_COUNTERS: readonly [keyof DiskStats, name: string, help: string][] = [
  [
    "hits",
    "compy_disk_cache_hits_total",
    "Requests with part of their prompt read from the prompt cache on disk",
  ],
  ["tokens", "compy_disk_cached_prompt_tokens_total", "Prompt tokens read from the prompt cache on disk"],
  ["readBytes", "compy_disk_cache_read_bytes_total", "Bytes of KV blocks and states read from the disk"],
  ["writes", "compy_disk_cache_writes_total", "KV blocks and states written to the disk"],
  [
    "writtenBytes",
    "compy_disk_cache_written_bytes_total",
    "Bytes of KV blocks and states written to the disk",
  ],
];

/** Gauges of the disk cache folder, which all models share. */
const DISK_GAUGES: readonly [keyof DiskStats, name: string, help: string][] = [
  ["bytes", "compy_disk_cache_bytes", "Bytes of the prompt cache on disk"],
  ["limit", "compy_disk_cache_limit_bytes", "Maximum bytes of the prompt cache on disk"],
];
