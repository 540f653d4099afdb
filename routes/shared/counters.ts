import { ENGINE_STATES, type EngineStats, type OfferedModel } from "../../engine/types.ts";

/** Answers by route and status since the start. */
export class Metrics {
  readonly #answers = new Map<string, number>();

  /** `route`: the pattern, never a stranger's path, so that the number of series stays bounded. */
  count(route: string, status: number): void {
    const labels = `{route="${route}",status="${status}"}`;
    this.#answers.set(labels, (this.#answers.get(labels) ?? 0) + 1);
  }

  /** In Prometheus' text format. Of several models, each has a label of its own. */
  text(models: readonly OfferedModel[], connections: number): string {
    const engines = models.flatMap(({ id, engine }) =>
      engine ? [{ model: labelOf(models, id), engine }] : []
    );
    const lines = SERIES.flatMap(([field, name, type, help]) => {
      const values = engines.map(({ model, engine }) => `${name}${labels(model)} ${engine.stats()[field]}`);
      return [...head(name, type, help), ...values];
    });
    const answers = [...this.#answers].map(([labels, count]) =>
      `compy_http_responses_total${labels} ${count}`
    );
    const states = engines.flatMap(({ model, engine: { state } }) =>
      ENGINE_STATES.map((name) => {
        return `compy_engine_state${labels(model, `state="${name}"`)} ${name === state ? 1 : 0}`;
      })
    );
    return [
      ...lines,
      ...head("compy_engine_state", "gauge", "1 for the state that the engine is in"),
      ...states,
      ...head("compy_connections", "gauge", "Connections that are open"),
      `compy_connections ${connections}`,
      ...head("compy_http_responses_total", "counter", "Answers by route and status"),
      ...answers,
      "",
    ].join("\n");
  }
}

function labelOf(models: readonly OfferedModel[], id: string): string {
  return models.length > 1 ? `model=${JSON.stringify(id)}` : "";
}

function labels(...all: string[]): string {
  const given = all.filter((label) => label !== "");
  return given.length > 0 ? `{${given.join(",")}}` : "";
}

const SERIES: [keyof EngineStats, string, string, string][] = [
  ["running", "compy_requests_running", "gauge", "Requests that are being computed"],
  ["waiting", "compy_requests_waiting", "gauge", "Requests in the queue"],
  ["kvBlocksUsed", "compy_kv_blocks_used", "gauge", "KV blocks that hold tokens of running requests"],
  ["kvBlocksTotal", "compy_kv_blocks", "gauge", "KV blocks there are"],
  [
    "preemptions",
    "compy_preemptions_total",
    "counter",
    "Running requests that gave way to others until later",
  ],
  ["promptTokens", "compy_prompt_tokens_total", "counter", "Prompt tokens of all requests"],
  ["cachedTokens", "compy_cached_prompt_tokens_total", "counter", "Prompt tokens found in the KV cache"],
  ["generatedTokens", "compy_generated_tokens_total", "counter", "Tokens generated"],
  [
    "forcedTokens",
    "compy_forced_tokens_total",
    "counter",
    "Generated tokens that a constraint left no choice about",
  ],
  ["steps", "compy_steps_total", "counter", "Steps of the model"],
  ["submits", "compy_submits_total", "counter", "Calls of the backend, of one step or several"],
];

function head(name: string, type: string, help: string): string[] {
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
}
