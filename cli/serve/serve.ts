import { checkAddress, listening, urlOf } from "./address.ts";
import { KERNELS } from "../../lib/libraries.ts";
import { ComingKernels, identityOf, type LoadedEngine, loadedOf } from "../../lib/model.ts";
import { servedIdentities } from "../../lib/pool.ts";
import {
  affordableConnections,
  BATCH_LANES,
  type BatchHost,
  checkReach,
  type HttpServer,
  KeyRing,
  Metrics,
  type Models,
  type OfferedModel,
  oneModel,
  openBatches,
  ResponseStore,
  serveHttp,
  type ServeOptions,
} from "../../lib/serving.ts";
import { describe } from "./describe.ts";
import { openDataFolder } from "./data_folder.ts";
import { errorLog } from "./error_log.ts";
import { UsageError } from "../shared/flags.ts";
import { followKeyFile, readKeyFile } from "./key_file.ts";
import { loadOptions, loadWithProgress, modelId, modelPath, parallelOptions } from "../shared/model.ts";
import { type BackgroundBuild, startBuild } from "../shared/native_build.ts";
import { checkPulls, Pulls } from "./pulls.ts";
import { fetcherOf } from "../shared/image_hosts.ts";
import { openRequestLog, type RequestLog } from "./request_log.ts";
import { aliasesOfOne, hasSeveral, openPool, templateOfOne, templatesOf } from "./served_models.ts";
import { SERVE_SETTINGS, type ServeSettings } from "./serve_settings.ts";
import {
  CONFIG_FLAGS,
  CONFIG_HELP,
  describeSettings,
  readSettings,
  settingsFlags,
} from "../shared/read_settings.ts";
import { HELP_LINE, helpOf } from "../shared/settings.ts";
import { isSupervised, stopWithParent, supervise } from "./supervise.ts";
import { err, isOnTerminal, logs, note, once, onInterrupt, out } from "../shared/terminal.ts";
import { inFlags } from "../shared/words.ts";

const MB = 2 ** 20;

const HELP = `Serve the OpenAI API with one model or several.

Usage: deno task serve [options]

${helpOf(SERVE_SETTINGS)}${CONFIG_HELP}${HELP_LINE}
Each option is also an environment variable (COMPY_PORT for --port; commas separate the entries of a list) and a key of the
config file ("port": 8080). An option overrides the variable, and the variable overrides the file.
When the server is ready, it prints: listening on http://HOST:PORT
Ctrl-C, SIGTERM or a closed terminal: the server takes no new requests, ends the running ones within ten seconds, and
stops. Without a terminal, SIGHUP reads the file of keys again and reopens the log.
Unfinished batches resume when a server starts with the same model and folder. The task may write to .compy only. To allow
another folder: deno run -P=serve --allow-write=DIR main.ts serve --data DIR
/doc describes the API; /health and /metrics are for operators.
In a checkout without current native libraries, the server starts in WebAssembly, builds them, and switches to them
(docs/OPERATIONS.md). With --backend cpu or auto it waits for them; with wasm and webgpu it builds no kernels.
While the engine is loaded again, /ready and new requests get a 503, and batches wait.
Exit code: 0 stopped on request, 1 failed, 2 wrong usage.

Example:
  deno task serve --model qwen3-4b-q4_0.gguf --port 8080
  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model":"qwen3-4b-q4_0","messages":[{"role":"user","content":"Hi"}]}'
`;

/** Runs `serve …` of the command line. Returns the exit code. */
export async function serveCommand(args: readonly string[]): Promise<number> {
  const flags = settingsFlags(SERVE_SETTINGS, args, CONFIG_FLAGS);
  if (flags.help) {
    out(HELP);
    return 0;
  }
  const settings = readSettings(SERVE_SETTINGS, flags, (name) => Deno.env.get(name));
  if (flags.switched("print-config")[0] === "true") {
    out(describeSettings(SERVE_SETTINGS, settings, flags.json));
    return 0;
  }
  if (settings.values.supervise) return await supervise(args, settings, warn);
  const build = startBuild(settings.values.backend);
  // Only the supervisor and the build start processes. From here on, this process handles strangers' requests.
  await Deno.permissions.revoke({ name: "run" });
  try {
    return await serve(settings, build);
  } finally {
    build?.stop();
  }
}

async function serve(settings: ServeSettings, build: BackgroundBuild | undefined): Promise<number> {
  const { data, maxStorageMb, maxResponsesMb } = settings.values;
  if (settings.values.allowPull && settings.values.models === undefined) {
    throw new UsageError("--allow-pull needs --models, the folder for the models");
  }
  const options = serveOptions(settings);
  const { onError } = options;
  const log = settings.values.log === undefined ? undefined : openRequestLog(settings.values.log, warn);
  const metrics = new Metrics();
  const fetchImage = await remoteImages(settings);
  await checkAddress(settings.values);
  affordableConnections(options.maxConnections); // throws before anything is opened
  const folder = data === "none" ? undefined : await openDataFolder(data);
  const followed = followFiles(settings, options.apiKeys, log);

  const coming = await kernelsToCome(settings, build);
  const served = hasSeveral(settings)
    ? await serveSeveral(settings, coming)
    : await serveOne(settings, coming);
  const { models, pulls } = served;
  const maxConnections = affordableConnections(options.maxConnections);
  const batches = folder && await openBatches(models, {
    ...served.batches,
    ready: coming && whenDecided(coming, build!),
    path: data,
    folder,
    sequences: settings.values.parallel,
    storageBytes: MB * maxStorageMb,
    responseBytes: MB * maxResponsesMb,
    metrics,
    report: onError,
    strictParameters: options.strictParameters,
    warn: options.warn,
    weightOf: (owner) => options.apiKeys.weightOf(owner),
    fetchImage,
  });
  const server = listening(
    settings.values,
    () =>
      serveHttp(models, {
        ...options,
        maxConnections,
        batches,
        responses: batches?.responses ?? ResponseStore.inMemory({ maxBytes: MB * maxResponsesMb }),
        pulls,
        fetchImage,
        metrics,
        log: logs("debug")
          ? (entry) => (log?.add(entry), note(JSON.stringify(entry), "debug"))
          : log && ((entry) => log.add(entry)),
      }),
  );
  // The server has its own signal handlers until it has stopped. Later signals must not change the exit code.
  onInterrupt(() => build?.stop());
  const unlisten = onHangUp(followed.reload, server);
  const failed = served.mayFail ? stopOnFailure(models, server) : () => false;
  stopWithParent(() => {
    build?.stop();
    server.shutdown();
  });
  out(`listening on ${urlOf(server, settings.values)}${settings.values.pathPrefix ?? ""}\n`);
  await server.finished;
  unlisten();
  followed.stop();
  await pulls?.close();
  await log?.close();
  await models.close();
  return failed() ? 1 : 0;
}

interface Served {
  readonly models: Models;
  /** The options of the batch service. */
  readonly batches: Pick<BatchHost, "settings" | "processor" | "lanes">;
  /** Whether the server stops if an engine fails permanently. */
  readonly mayFail: boolean;
  readonly pulls?: Pulls;
}

/**
 * Returns the native kernels that are being built, if models can start in WebAssembly. A requested backend, or one to
 * measure, waits for the build.
 */
async function kernelsToCome(
  { values: { backend } }: ServeSettings,
  build: BackgroundBuild | undefined,
): Promise<ComingKernels | undefined> {
  const kernels = build?.result(KERNELS);
  if (kernels === undefined) return undefined;
  if (backend !== undefined) {
    await kernels;
    return undefined;
  }
  note("Computing in WebAssembly until the native kernels are built");
  const arrived = kernels.then((isBuilt) => {
    if (!isBuilt && !build!.isStopped) warn("The server continues in WebAssembly, at about half the speed");
    return isBuilt;
  });
  return new ComingKernels(arrived, warn);
}

/**
 * Waits until the backend is known, because one backend must answer all lines of a batch. Never resolves if the server
 * stops first.
 */
async function whenDecided(coming: ComingKernels, build: BackgroundBuild): Promise<void> {
  await coming.settled();
  if (build.isStopped && !coming.isHere) await new Promise(() => {});
}

/** Loads one model before the server is ready and keeps it. */
async function serveOne(settings: ServeSettings, coming: ComingKernels | undefined): Promise<Served> {
  const load = engineOptions(settings);
  const model = modelPath(settings.values.model[0]);
  const tell = (loaded: LoadedEngine) => note(describe(loaded, load.kvType));
  const reloads = settings.values.onFailure === "reload" ? { note: warn } : undefined;
  const living = coming ? { ...reloads, moved: tell } : reloads;
  const chatTemplate = templateOfOne(settings, modelId(settings.values.model[0]));
  const opened = await loadWithProgress({ ...load, model, coming, chatTemplate }, living);
  const loaded = loadedOf(opened);
  tell(loaded);
  const models = oneModel(loaded.engine, aliasesOfOne(settings, loaded.engine.model.id));
  const batches = {
    // Batches start only when the backend is known.
    settings: coming ? () => identityOf(opened) : await identityOf(opened),
    processor: () => loaded.backend.info.isa,
  };
  return { models, batches, mayFail: true };
}

/** Serves several models, each loaded on its first request. */
async function serveSeveral(settings: ServeSettings, coming: ComingKernels | undefined): Promise<Served> {
  const load = { ...engineOptions(settings), coming };
  const reloads = settings.values.onFailure === "reload";
  const chatTemplates = templatesOf(settings);
  const pulls = await openPulls(settings, () => models.rescan());
  const models = await openPool(settings, {
    load,
    chatTemplates,
    alsoNamed: pulls && ((id) => pulls.namesOf(id)),
    reloads,
    note,
    describe: (loaded) => note(describe(loaded, load.kvType)),
  });
  const { length } = models.list();
  note(
    length === 0
      ? `There is no model in "${settings.values.models}" yet; GGUF files that are put into it are offered`
      : `${length} model${length === 1 ? "" : "s"}, each loaded when a request names it`,
  );
  const batches = { settings: servedIdentities(models, load, chatTemplates), lanes: BATCH_LANES };
  return { models, batches, mayFail: !reloads, pulls };
}

/** Opens the downloads for requests; undefined if they are not allowed. Throws if the process may not download. */
async function openPulls({ values }: ServeSettings, onPulled: () => void): Promise<Pulls | undefined> {
  const { allowPull, models: folder, mirror: endpoint } = values;
  if (!allowPull) return undefined;
  await checkPulls(folder!, endpoint);
  return await Pulls.open(folder!, { endpoint }, onPulled);
}

/** Reloads files that change while the server runs. Calling `reload` reloads them at once. */
function followFiles({ values: { apiKeys } }: ServeSettings, ring: KeyRing, log: RequestLog | undefined) {
  const keys = apiKeys === undefined ? undefined : followKeyFile(apiKeys, ring, note);
  return {
    reload() {
      keys?.reload();
      log?.reopen();
    },
    stop: () => keys?.stop(),
  };
}

/**
 * Stops the server when its terminal hangs up. Without a terminal, and under a supervisor, which turns a hang-up into
 * SIGTERM, SIGHUP calls `reload`. Returns a function that restores the signal's default effect.
 */
function onHangUp(reload: () => void, server: HttpServer): () => void {
  const handler = isOnTerminal && !isSupervised() ? () => server.shutdown() : reload;
  Deno.addSignalListener("SIGHUP", handler);
  return () => Deno.removeSignalListener("SIGHUP", handler);
}

/** Returns the engine's options from the server's settings. */
function engineOptions(settings: ServeSettings) {
  const { chatTemplate: _, ...values } = settings.values;
  return { ...loadOptions(values), ...parallelOptions(settings), warn: once(warn) };
}

/** Returns the server's options that do not concern the model. Throws if others could reach it without a key. */
function serveOptions({ values }: ServeSettings) {
  const { host, port, unix, apiKey, apiKeys: keyFile, allowHost, maxUploadMb, maxConnections } = values;
  const { cors, openHealth, pathPrefix, strictParameters } = values;
  const named = keyFile === undefined ? [] : readKeyFile(keyFile, warn);
  const apiKeys = new KeyRing(apiKey === undefined ? [] : [apiKey], named);
  if (unix === undefined) checkReach(host, apiKeys);
  return {
    host,
    port,
    unix,
    apiKeys,
    corsOrigins: cors,
    openHealth,
    pathPrefix,
    strictParameters,
    allowedHosts: allowHost.length > 0 ? allowHost : undefined,
    limits: { uploadBytes: MB * maxUploadMb },
    maxConnections,
    onError: errorLog(),
    warn: once(warn),
  } satisfies ServeOptions;
}

/** Returns a function that fetches images from the allowed hosts. Throws an Error if it may not connect to them. */
function remoteImages({ values: { allowImageHosts, host } }: ServeSettings) {
  return fetcherOf(
    allowImageHosts,
    (hosts) => `deno run -P=serve --allow-net=${host},${hosts} main.ts serve …`,
  );
}

/** Prints a warning for the operator. */
function warn(message: string): void {
  note(message, "warning");
}

/** Stops the server when its engine has failed permanently. The returned function says whether that happened. */
function stopOnFailure(models: Models, server: HttpServer): () => boolean {
  let failed = false;
  const look = ({ engine }: OfferedModel) => {
    if (engine?.state !== "failed" || failed) return;
    failed = true;
    err(`Error: ${inFlags(engine.failure)}; the server stops\n`);
    server.shutdown();
  };
  models.onState(look);
  models.list().forEach(look);
  return () => failed;
}
