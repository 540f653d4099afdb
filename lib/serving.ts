/** The HTTP API over loaded models, for createServer() and for the `serve` command. */
import {
  type HeldEngine,
  loadedModels,
  type Models,
  type OfferedModel,
  type UseOptions,
} from "../engine/mod.ts";
import { ResponseStore } from "../jobs/service/response_store.ts";
import { BatchService, type ServiceOptions } from "../jobs/service/service.ts";
import { type AppOptions, createApp, ringOf } from "../routes/app.ts";
import type { KeyRing } from "../routes/access/keys.ts";
import { type HttpServer, listenHttp } from "../routes/serve.ts";
import { Metrics } from "../routes/metrics/metrics.ts";
import { settledWithin } from "../routes/core/settled.ts";
import { because, CompyError, needDeno } from "./errors.ts";
import { linesInFlight } from "../jobs/setup.ts";
import { answerLines, identities, LINE_LIMITS, type LineOptions } from "./batch/lines.ts";
import { identityOf, loadedOf, type Model } from "./model.ts";
import { checkOptions, type OptionTable, positive } from "./options.ts";
import type { Address, ListenOptions, Server, ServerOptions } from "./server_types.ts";

export { type Models, type OfferedModel, oneModel } from "../engine/mod.ts";
export { DataFolder } from "../jobs/service/data_folder.ts";
export { RESPONSE_BYTES, ResponseStore } from "../jobs/service/response_store.ts";
export { BatchStore } from "../jobs/service/store.ts";
export { digestOf, KEY_SCOPES, KeyRing, type NamedKey } from "../routes/access/keys.ts";
export { PATH_PREFIX } from "../routes/access/paths.ts";
export {
  affordableConnections,
  checkReach,
  DEFAULT_CONNECTIONS,
  type HttpServer,
  MAX_CONNECTIONS,
  serveHttp,
  type ServeOptions,
} from "../routes/serve.ts";
export { check, show } from "../routes/core/check.ts";
export type { ModelPulls, PullRow } from "../routes/core/context.ts";
export { ApiError } from "../routes/core/errors.ts";
export { Metrics } from "../routes/metrics/metrics.ts";
export type { LogEntry } from "../routes/metrics/request_record.ts";

/** Maximum number of batches of different models that run in parallel. */
export const BATCH_LANES = 4;
/** Default milliseconds for which running requests may continue after a stop. */
const DRAIN_MS = 10_000;

const LISTEN_OPTIONS: OptionTable<ListenOptions> = {
  host: "text",
  port: "number",
  unix: "text",
  maxConnections: "number",
  drainMs: "number",
};

/** How a server runs its batches. */
export interface BatchHost extends
  Pick<
    ServiceOptions,
    "folder" | "settings" | "processor" | "ready" | "lanes" | "storageBytes" | "responseBytes"
  >,
  Pick<LineOptions, "strictParameters" | "warn" | "weightOf" | "fetchImage"> {
  readonly path: string;
  /** Number of batch lines in progress; by default enough for `sequences`. */
  readonly lines?: number;
  /** Number of sequences that each model runs at once. */
  readonly sequences: number;
  readonly metrics: Metrics;
  readonly report: (error: unknown) => void;
}

/** Opens the folder's batch service, which resumes unfinished batches. */
export async function openBatches(
  models: Models,
  {
    metrics,
    strictParameters,
    warn,
    weightOf,
    fetchImage,
    sequences,
    lines = linesInFlight(sequences).parallel,
    ...host
  }: BatchHost,
): Promise<BatchService> {
  try {
    return await BatchService.open({
      ...host,
      parallel: lines,
      lineLimits: LINE_LIMITS,
      execute: answerLines(models, {
        account: metrics.ofBatches,
        strictParameters,
        warn,
        weightOf,
        fetchImage,
      }),
    });
  } catch (error) {
    const what = `Cannot keep files and batches in "${host.path}"`;
    throw new CompyError("data_unusable", because(what, error), { cause: error });
  }
}

/** Creates a server as createServer does, from options and models that are already checked. */
export async function openServer(models: readonly Model[], options: ServerOptions): Promise<Server> {
  const { data, batchLines, maxStorageBytes: storageBytes, maxResponseBytes, ...others } = options;
  const apiKeys = keyRing(options.apiKeys);
  // Without a valid key a request gets nothing, so with keys any host name is allowed.
  const allowedHosts = options.allowedHosts ?? (apiKeys.isEmpty ? [] : "any");
  const served = loadedModels(models.map((model) => loadedOf(model).engine));
  const metrics = new Metrics();
  const report = (error: unknown) => options.onError?.(error);
  const byId = new Map(models.map((model) => [model.info.id, model]));
  const batches = data === undefined ? undefined : await openBatches(served, {
    path: data,
    lines: positive("batchLines", batchLines),
    sequences: loadedOf(models[0]).engine.slots().length,
    storageBytes,
    responseBytes: maxResponseBytes,
    metrics,
    strictParameters: options.strictParameters,
    report,
    settings: identities(served, ({ id }) => identityOf(byId.get(id)!)),
    processor: () => loadedOf(models[0]).backend.info.isa,
    lanes: BATCH_LANES,
  });
  const responses = batches?.responses ?? ResponseStore.inMemory({ maxBytes: maxResponseBytes, report });
  return new ModelServer(served, { ...others, apiKeys, allowedHosts, batches, responses, metrics });
}

function keyRing(keys: readonly string[] | undefined): KeyRing {
  try {
    return ringOf(keys);
  } catch (error) {
    throw new CompyError("invalid_request", (error as Error).message, { cause: error });
  }
}

class ModelServer implements Server {
  readonly #app: ReturnType<typeof createApp>;
  readonly #lifecycle = { draining: false };
  readonly #models: SharedModels;
  #http: HttpServer | undefined;
  #closing: Promise<void> | undefined;

  constructor(models: Models, private readonly options: AppOptions) {
    this.#models = new SharedModels(models);
    const connections = () => this.#http?.connections ?? 0;
    this.#app = createApp(this.#models, { ...options, lifecycle: this.#lifecycle, connections });
  }

  readonly fetch = async (request: Request): Promise<Response> => await this.#app.fetch(request);

  listen(options: ListenOptions = {}): Address {
    checkOptions(options, LISTEN_OPTIONS);
    needDeno("listen()", "in Node give the server's `fetch` to a server such as @hono/node-server");
    if (this.#http || this.#closing) {
      throw new CompyError("cannot_listen", "Cannot listen: the server listens already, or is closed");
    }
    try {
      const made = { ...this.options, app: this.#app, models: this.#models, lifecycle: this.#lifecycle };
      this.#http = listenHttp(made, { ...options, signals: false });
    } catch (error) {
      const { host = "127.0.0.1", port = 0, unix } = options;
      const what = `Cannot listen on ${unix === undefined ? `${host}:${port}` : `"${unix}"`}`;
      throw new CompyError("cannot_listen", because(what, error), { cause: error });
    }
    const { hostname, port } = this.#http;
    const host = hostname.includes(":") ? `[${hostname}]` : hostname;
    return { url: hostname === "" ? "" : `http://${host}:${port}`, port };
  }

  close(): Promise<void> {
    return this.#closing ??= this.#close();
  }

  async #close(): Promise<void> {
    this.#lifecycle.draining = true;
    if (this.#http) return await this.#http.shutdown();
    await Promise.all([this.#models.drain(DRAIN_MS), this.options.batches?.close()]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Models that other code uses too. Draining only waits for this server's own requests. */
class SharedModels implements Models {
  #held = 0;
  #idle = Promise.withResolvers<void>();

  constructor(private readonly models: Models) {}

  list() {
    return this.models.list();
  }

  find(name: string) {
    return this.models.find(name);
  }

  async use(name: string | undefined, options?: UseOptions): Promise<HeldEngine> {
    const { engine, release } = await this.models.use(name, options);
    this.#held++;
    let isHeld = true;
    return {
      engine,
      release: () => {
        if (!isHeld) return;
        isHeld = false;
        release();
        if (--this.#held === 0) this.#idle.resolve();
      },
    };
  }

  load(name: string, options?: UseOptions) {
    return this.models.load(name, options);
  }

  unload(name: string) {
    return this.models.unload(name);
  }

  onState(listener: (model: OfferedModel) => void) {
    return this.models.onState(listener);
  }

  async drain(graceMs: number): Promise<void> {
    this.#idle = Promise.withResolvers();
    if (this.#held > 0) await settledWithin(this.#idle.promise, graceMs);
  }

  /** Does nothing, because the caller owns the models. */
  close(): Promise<void> {
    return Promise.resolve();
  }
}
