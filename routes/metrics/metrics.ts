import { Counter, Gauge, Histogram, Registry } from "prom-client";
import {
  type DiskStats,
  type Engine,
  ENGINE_STATES,
  type EngineStats,
  type OfferedModel,
} from "../../engine/mod.ts";
import type { ServiceFigures } from "../../jobs/service/service.ts";
import type { Account, AnswerWatch } from "../access/account.ts";
import { registerStepRows } from "./step_rows.ts";

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
  readonly #registry = new Registry();
  readonly #registers = [this.#registry];
  readonly #responses = new Counter({
    name: "compy_http_responses_total",
    help: "Answers by route and status",
    labelNames: ["route", "status"],
    registers: this.#registers,
  });
  readonly #queue = this.#histogram("compy_queue_seconds", "Time a request waits before it runs", WAITS);
  readonly #firstToken = this.#histogram(
    "compy_time_to_first_token_seconds",
    "Time from the request for an answer to its first token",
    WAITS,
  );
  readonly #gap = this.#histogram("compy_inter_token_seconds", "Time between two tokens of an answer", GAPS);
  readonly #cached = this.#histogram(
    "compy_cached_prompt_share",
    "Share of a prompt's tokens that was found in the KV cache",
    SHARES,
  );

  /** Counts a request. `route` is the pattern and not the client's path, so that the number of series is bounded. */
  count(route: string, status: number): void {
    this.#responses.inc({ route, status });
  }

  /** Counts one answer, for any caller. */
  watch(model: string): AnswerWatch {
    const labels = { model };
    let last = performance.now();
    let begun = false;
    return {
      event: (event) => {
        if (event.type === "token") {
          const now = performance.now();
          (begun ? this.#gap : this.#firstToken).observe(labels, (now - last) / 1000);
          begun = true;
          last = now;
        } else if (event.type === "finish") {
          const { promptTokens, cachedTokens } = event.usage;
          this.#queue.observe(labels, event.timings.queueMs / 1000);
          this.#cached.observe(labels, cachedTokens / promptTokens);
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
    const registers = this.#registers;
    const engines = () =>
      models().flatMap(({ id, engine }) => engine ? [{ labels: { model: id }, engine }] : []);
    for (const [field, name, help] of GAUGES) {
      const collect = function (this: Gauge) {
        this.reset();
        for (const { labels, engine } of engines()) this.set(labels, engine.stats()[field]);
      };
      new Gauge({ name, help, labelNames: ["model"], registers, collect });
    }
    for (const [field, name, help] of COUNTERS) {
      const collect = function (this: Counter) {
        this.reset();
        for (const { labels, engine } of engines()) this.inc(labels, engine.stats()[field]);
      };
      new Counter({ name, help, labelNames: ["model"], registers, collect });
    }
    this.#observeDisk(engines);
    registerStepRows(this.#registry, () => engines().map(({ labels, engine }) => [labels, engine.stats()]));
    new Gauge({
      name: "compy_engine_state",
      help: "1 for the state that the engine is in",
      labelNames: ["model", "state"],
      registers,
      collect() {
        this.reset();
        for (const { labels, engine } of engines()) {
          for (const state of ENGINE_STATES) this.set({ ...labels, state }, state === engine.state ? 1 : 0);
        }
      },
    });
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
    new Counter({
      name: "compy_batches_ended_total",
      help: "Ended batches, by final status",
      labelNames: ["status"],
      registers: this.#registers,
      collect() {
        this.reset();
        for (const [status, count] of Object.entries(batches().ended)) this.inc({ status }, count);
      },
    });
  }

  /** Adds the metrics of models with a prompt cache on disk. */
  #observeDisk(engines: () => readonly { labels: { model: string }; engine: Engine }[]): void {
    const disks = () => engines().flatMap(({ engine }) => engine.stats().disk ?? []).slice(0, 1);
    for (const [field, name, help] of DISK_COUNTERS) {
      const collect = function (this: Counter) {
        this.reset();
        for (const { labels, engine } of engines()) {
          const { disk } = engine.stats();
          if (disk) this.inc(labels, disk[field]);
        }
      };
      new Counter({ name, help, labelNames: ["model"], registers: this.#registers, collect });
    }
    for (const [field, name, help] of DISK_GAUGES) {
      const collect = function (this: Gauge) {
        this.reset();
        for (const disk of disks()) this.set(disk[field]);
      };
      new Gauge({ name, help, registers: this.#registers, collect });
    }
  }

  /** Returns the metrics in Prometheus' text format, whose media type is `contentType`. */
  text(): Promise<string> {
    return this.#registry.metrics();
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  #histogram(name: string, help: string, buckets: number[]): Histogram {
    return new Histogram({ name, help, buckets, labelNames: ["model"], registers: [this.#registry] });
  }

  #figure(name: string, help: string, read: () => number): void {
    const collect = function (this: Gauge) {
      this.set(read());
    };
    new Gauge({ name, help, registers: this.#registers, collect });
  }
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
