import { fromFileUrl } from "@std/path";
import { DEFAULT_KV_TYPE, type LoadedEngine } from "../engine/load.ts";
import type { Engine, EngineState, KvType } from "../engine/types.ts";
import { BatchService } from "../jobs/service.ts";
import { whenReady } from "../jobs/when_ready.ts";
import { execute, type ExecuteRequest } from "../routes/execute.ts";
import {
  affordableConnections,
  checkReach,
  DEFAULT_CONNECTIONS,
  type HttpServer,
  MAX_CONNECTIONS,
  readApiKeys,
  serveHttp,
  type ServeOptions,
} from "../routes/serve.ts";
import { LINE_LIMITS, type OpenedEngine, openedEngine } from "./batch_world.ts";
import { Flags } from "./flags.ts";
import {
  BACKEND_FLAGS,
  backendOptions,
  describeBackend,
  loadReloading,
  loadWithProgress,
  MAX_PARALLEL,
  MAX_THREADS,
  modelPath,
  SIZE_FLAGS,
  sizeOptions,
} from "./model.ts";
import { explained } from "./system_errors.ts";
import { err, onInterrupt, out } from "./terminal.ts";

const DEFAULT_PORT = 8080;
const DEFAULT_PARALLEL = 4;
const DEFAULT_UPLOAD_MB = 4096;
const DEFAULT_STORAGE_MB = 16_384;
const MB = 2 ** 20;
/** The only folder that the task may write to. */
const DEFAULT_DATA = new URL("../.compy", import.meta.url);

const HELP = `Serve the OpenAI API over one model.

Usage: deno task serve [options]

  --model FILE       the GGUF model (default: the one that comes with compy)
  --host ADDRESS     where to listen (default 127.0.0.1, this machine only); with another address than
                     this machine's own a key is needed
  --port N           0 to 65535 (default ${DEFAULT_PORT}); 0 takes any free port
  --threads N        threads that compute (default: one a core)
  --backend NAME     cpu, webgpu, or auto: the GPU if it measures faster (default cpu)
  --arithmetic A     of the GPU's matrix products: f32, f16-activations or f16 (default f32)
  --kv-type T        of the KV cache: f16, or q8_0 in 53 % of the memory, on the CPU only (default f16)
  --ctx N            tokens that one sequence may hold, prompt and answer together
                     (default: the model's own, at most 4096)
  --parallel N       sequences that run side by side, 1 to ${MAX_PARALLEL} (default ${DEFAULT_PARALLEL}); the others wait
  --kv-mb N          memory for the KV cache, in units of 10^6 bytes (default: what --parallel sequences of --ctx
                     tokens need); sequences take it as they grow, and wait where it runs out
  --api-key KEY      required of every client; better set COMPY_API_KEY, which others cannot see in ps
  --data DIR         the folder of files and batches (default: .compy beside the program); "none" serves without them
  --max-upload-mb N  the largest file that may be uploaded (default ${DEFAULT_UPLOAD_MB})
  --max-storage-mb N what all files in the folder may take together; more uploads are refused
                     (default ${DEFAULT_STORAGE_MB})
  --max-connections N
                     connections open at once, 1 to ${MAX_CONNECTIONS} (default ${DEFAULT_CONNECTIONS}, fewer where the limit of open files is
                     lower); idle and unfinished ones give their places to others, and the rest wait
  --on-failure WHAT  reload: an engine that fails is loaded again, up to three times in ten minutes; exit: the server
                     stops with exit code 1, for a supervisor to restart it (default reload)
  --allow-host NAME  a further host name that clients may call this server by; may be given several times
  --help             this text

When it is ready it prints: listening on http://HOST:PORT
Ctrl-C or SIGTERM: takes no new requests, ends the running ones within ten seconds, then stops.
Batches that have not ended resume when a server starts with the same model and the same folder. The task may write to
.compy only; for another folder allow it: deno run -P=serve --allow-write=DIR main.ts serve --data DIR
The API is described at /doc; /health and /metrics are for operators.
While the engine is loaded again, /ready and new requests get a 503, and batches wait.
Exit code: 0 stopped when asked to, 1 failed, 2 wrong usage.

Example:
  deno task serve --model qwen3-4b-q4_0.gguf --port 8080
  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model":"qwen3-4b-q4_0","messages":[{"role":"user","content":"Hi"}]}'
`;

/** `serve …` of the command line. Returns the exit code. */
export async function serveCommand(args: readonly string[]): Promise<number> {
  const computing = ["model", ...BACKEND_FLAGS, "threads", ...SIZE_FLAGS];
  const serving = ["host", "port", "api-key", "allow-host", "data", "on-failure"];
  const bounds = ["max-upload-mb", "max-storage-mb", "max-connections"];
  const values = [...computing, ...serving, ...bounds];
  const flags = new Flags(args, { values, repeated: ["allow-host"] });
  if (flags.help) {
    out(HELP);
    return 0;
  }
  const options = serveOptions(flags);
  const { host, port, onError } = options;
  const load = {
    threads: flags.count("threads", 1, MAX_THREADS),
    ...sizeOptions(flags, DEFAULT_PARALLEL),
    ...backendOptions(flags),
  };
  const data = flags.text("data") ?? fromFileUrl(DEFAULT_DATA);
  const storageBytes = MB * (flags.count("max-storage-mb", 1, 2 ** 30) ?? DEFAULT_STORAGE_MB);
  const onFailure = flags.choice("on-failure", ["reload", "exit"]) ?? "reload";
  const model = modelPath(flags.text("model"));
  if (data !== "none") checkDataFolder(data);
  // A taken port is worth knowing before a large model is loaded.
  listening(host, port, () => Deno.listen({ hostname: host, port }).close());

  const loaded = onFailure === "reload"
    ? await loadReloading({ ...load, model }, (message) => err(`${message}\n`))
    : await loadWithProgress({ ...load, model });
  const { engine } = loaded;
  err(`${describe(loaded, load.kvType)}\n`);
  const maxConnections = affordableConnections(options.maxConnections);
  const batches = data === "none"
    ? undefined
    : await openBatches(data, await openedEngine(loaded, load), load.parallel, storageBytes, onError);
  const server = listening(host, port, () => serveHttp(engine, { ...options, maxConnections, batches }));
  // The server has listeners of its own until it has stopped; after that a signal must not change the exit code.
  onInterrupt(() => {});
  const failed = stopOnFailure(engine, server);
  out(`listening on ${urlOf(server)}\n`);
  await server.finished;
  await engine.close();
  return failed() ? 1 : 0;
}

/** The options that have nothing to do with the model. Throws where others could reach the server without a key. */
function serveOptions(flags: Flags) {
  const host = flags.text("host") ?? "127.0.0.1";
  const allowed = flags.texts("allow-host");
  const apiKeys = readApiKeys(flags.text("api-key"), Deno.env.get("COMPY_API_KEY"));
  checkReach(host, apiKeys);
  return {
    host,
    port: flags.count("port", 0, 65_535) ?? DEFAULT_PORT,
    apiKeys,
    allowedHosts: allowed.length > 0 ? allowed : undefined,
    limits: { uploadBytes: MB * (flags.count("max-upload-mb", 1, 2 ** 20) ?? DEFAULT_UPLOAD_MB) },
    maxConnections: flags.count("max-connections", 1, MAX_CONNECTIONS),
    onError: reporter(),
  } satisfies ServeOptions;
}

/** Writes errors to standard error; one that ended many requests only once. */
function reporter(): (error: unknown) => void {
  const told = new WeakSet<Error>();
  return (error) => {
    if (!(error instanceof Error)) return err(`${error}\n`);
    if (told.has(error)) return;
    told.add(error);
    err(`${error.stack}\n`);
  };
}

/** One line on what was loaded. */
function describe(loaded: LoadedEngine, kvType: KvType = DEFAULT_KV_TYPE): string {
  const { id, architecture, contextLength } = loaded.engine.model;
  const { weights, activations, states, kv } = loaded.memory;
  const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;
  return [
    `${id}: ${architecture}, ${contextLength} tokens of context, loaded in ${
      (loaded.loadMs / 1000).toFixed(1)
    } s`,
    describeBackend(loaded.backend.info, loaded.choice),
    `weights ${megabytes(weights)}, KV cache in ${kvType} ${
      megabytes(kv)
    } once full (${loaded.kvTokens} tokens), ` +
    (states > 0 ? `recurrent states ${megabytes(states)}, ` : "") + `activations ${megabytes(activations)}`,
  ].join("; ");
}

/** Stops the server once its engine has failed for good; the returned function says whether that happened. */
function stopOnFailure(engine: Engine, server: HttpServer): () => boolean {
  let failed = false;
  const look = (state: EngineState) => {
    if (state !== "failed") return;
    failed = true;
    err(`Error: ${engine.failure!.message}; the server stops\n`);
    server.shutdown();
  };
  engine.onState(look);
  look(engine.state);
  return () => failed;
}

/** Resumes the batches of the folder, on this engine. */
async function openBatches(
  path: string,
  { engine, identity, processor }: OpenedEngine,
  parallel: number,
  storageBytes: number,
  report: (error: unknown) => void,
): Promise<BatchService> {
  const answer = whenReady(
    engine,
    (request: ExecuteRequest & { signal: AbortSignal }) => execute(engine, request),
  );
  return await BatchService.open({
    path,
    parallel,
    storageBytes,
    report,
    lineLimits: LINE_LIMITS,
    settings: identity,
    processor,
    execute: (owner, request) => answer({ ...request, cacheSalt: owner || undefined }),
  }).catch((error) => {
    throw noDataFolder(path, error);
  });
}

/** Makes the folder, and throws where nothing can be written there. */
function checkDataFolder(path: string): void {
  try {
    Deno.mkdirSync(path, { recursive: true, mode: 0o700 });
    Deno.removeSync(Deno.makeTempFileSync({ dir: path, prefix: "writable-" }));
  } catch (error) {
    throw noDataFolder(path, error);
  }
}

/** Says what to do where files and batches cannot be kept. */
function noDataFolder(path: string, error: unknown): unknown {
  const what = `Cannot keep files and batches in "${path}"`;
  const otherwise = "choose another folder with --data, or serve without them: --data none";
  if (!(error instanceof Deno.errors.NotCapable)) return explained(what, error, otherwise);
  return new Error(
    `${what}: this task may write to .compy only. Allow it with deno run -P=serve --allow-write=${path} ` +
      `main.ts serve --data ${path}, or serve without them: --data none`,
  );
}

/** Says what to do where an address cannot be had. */
function listening<T>(host: string, port: number, action: () => T): T {
  try {
    return action();
  } catch (error) {
    const where = `Cannot listen on ${host}:${port}`;
    if (error instanceof Deno.errors.AddrInUse) {
      throw new Error(`${where}: the port is in use; choose another with --port (0 takes any free one)`);
    }
    if (error instanceof Deno.errors.NotCapable) {
      throw new Error(
        `${where}: this task may listen on 127.0.0.1, localhost, 0.0.0.0, [::1] and [::] only; choose one of them ` +
          "with --host, or add the address to the permissions in deno.json",
      );
    }
    if (error instanceof Deno.errors.AddrNotAvailable) {
      throw new Error(`${where}: this machine has no such address; choose another with --host`);
    }
    if (error instanceof Deno.errors.PermissionDenied) {
      throw new Error(`${where}: this user may not; choose a port from 1024 with --port`);
    }
    throw error;
  }
}

function urlOf({ hostname, port }: HttpServer): string {
  return `http://${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
}
