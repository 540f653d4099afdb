import { fromFileUrl } from "@std/path";
import { DEFAULT_KV_TYPE } from "../engine/load.ts";
import { BatchService } from "../jobs/service.ts";
import { execute } from "../routes/execute.ts";
import { checkReach, type HttpServer, readApiKeys, serveHttp, type ServeOptions } from "../routes/serve.ts";
import { type OpenedEngine, openedEngine } from "./batch_world.ts";
import { Flags } from "./flags.ts";
import {
  BACKEND_FLAGS,
  backendOptions,
  describeBackend,
  loadWithProgress,
  MAX_CONTEXT,
  MAX_PARALLEL,
  MAX_THREADS,
  modelPath,
} from "./model.ts";
import { err, onInterrupt, out } from "./terminal.ts";

const DEFAULT_PORT = 8080;
const DEFAULT_PARALLEL = 4;
const DEFAULT_UPLOAD_MB = 4096;
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
  --api-key KEY      wanted from every client; rather set COMPY_API_KEY, which others cannot see in ps
  --data DIR         the folder of files and batches (default: .compy beside the program); "none" serves without them
  --max-upload-mb N  the largest file that may be uploaded (default ${DEFAULT_UPLOAD_MB})
  --allow-host NAME  a further host name that clients may call this server by; may be given several times
  --help             this text

When it is ready it prints: listening on http://HOST:PORT
Ctrl-C or SIGTERM: takes no new requests, ends the running ones within ten seconds, then stops.
Batches that have not ended go on when a server starts with the same model and the same folder. The task may write to
.compy only; for another folder allow it: deno run -P=serve --allow-write=DIR main.ts serve --data DIR
The API is described at /doc; /health and /metrics are for operators.
Exit code: 0 stopped when asked to, 1 failed, 2 wrong usage.

Example:
  deno task serve --model qwen3-4b-q4_0.gguf --port 8080
  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model":"qwen3-4b-q4_0","messages":[{"role":"user","content":"Hi"}]}'
`;

/** `serve …` of the command line. Returns the exit code. */
export async function serveCommand(args: readonly string[]): Promise<number> {
  const computing = ["model", ...BACKEND_FLAGS, "threads", "ctx", "parallel"];
  const serving = ["host", "port", "api-key", "allow-host", "data", "max-upload-mb"];
  const values = [...computing, ...serving];
  const flags = new Flags(args, { values, repeated: ["allow-host"] });
  if (flags.help) {
    out(HELP);
    return 0;
  }
  const host = flags.text("host") ?? "127.0.0.1";
  const port = flags.count("port", 0, 65_535) ?? DEFAULT_PORT;
  const allowed = flags.texts("allow-host");
  const load = {
    threads: flags.count("threads", 1, MAX_THREADS),
    contextLength: flags.count("ctx", 1, MAX_CONTEXT),
    parallel: flags.count("parallel", 1, MAX_PARALLEL) ?? DEFAULT_PARALLEL,
    ...backendOptions(flags),
  };
  const data = flags.text("data") ?? fromFileUrl(DEFAULT_DATA);
  const uploadBytes = MB * (flags.count("max-upload-mb", 1, 2 ** 20) ?? DEFAULT_UPLOAD_MB);
  const onError = (error: unknown) => err(`${error instanceof Error ? error.stack : error}\n`);
  const apiKeys = readApiKeys(flags.text("api-key"), Deno.env.get("COMPY_API_KEY"));
  checkReach(host, apiKeys);
  const options: ServeOptions = {
    host,
    port,
    apiKeys,
    allowedHosts: allowed.length > 0 ? allowed : undefined,
    limits: { uploadBytes },
    onError,
  };
  const model = modelPath(flags.text("model"));
  // A taken port is worth knowing before a large model is loaded.
  listening(host, port, () => Deno.listen({ hostname: host, port }).close());

  const loaded = await loadWithProgress({ ...load, model });
  const { engine, backend, choice, loadMs, kvBytes } = loaded;
  const { id, architecture, contextLength } = engine.model;
  err(
    `${id}: ${architecture}, ${contextLength} tokens of context, loaded in ${
      (loadMs / 1000).toFixed(1)
    } s; ` +
      `${describeBackend(backend.info, choice)}; KV cache in ${load.kvType ?? DEFAULT_KV_TYPE}, ` +
      `${(kvBytes / 1e6).toFixed(1)} MB once full\n`,
  );
  const batches = data === "none"
    ? undefined
    : await openBatches(data, await openedEngine(loaded, load), load.parallel, onError);
  const server = listening(host, port, () => serveHttp(engine, { ...options, batches }));
  // The server has listeners of its own until it has stopped; after that a signal must not change the exit code.
  onInterrupt(() => {});
  out(`listening on ${urlOf(server)}\n`);
  await server.finished;
  await engine.close();
  return 0;
}

/** Goes on with the batches of the folder, on this engine. */
async function openBatches(
  path: string,
  { engine, identity, processor }: OpenedEngine,
  parallel: number,
  report: (error: unknown) => void,
): Promise<BatchService> {
  try {
    return await BatchService.open({
      path,
      parallel,
      report,
      settings: identity,
      processor,
      execute: (owner, request) => execute(engine, { ...request, cacheSalt: owner || undefined }),
    });
  } catch (error) {
    if (!(error instanceof Deno.errors.NotCapable)) throw error;
    throw new Error(
      `Cannot keep files and batches in "${path}": this task may write to .compy only. Allow it with ` +
        `deno run -P=serve --allow-write=${path} main.ts serve --data ${path}, or serve without them: --data none`,
    );
  }
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
    if (error instanceof Deno.errors.AddrNotAvailable || error instanceof Deno.errors.PermissionDenied) {
      throw new Error(`${where}: ${error.message}`);
    }
    throw error;
  }
}

function urlOf({ hostname, port }: HttpServer): string {
  return `http://${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
}
