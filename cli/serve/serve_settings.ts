import { fromFileUrl } from "@std/path";
import {
  ACCURACIES,
  ACTIVATION_PRECISIONS,
  ARITHMETICS,
  BACKENDS,
  KV_TYPES,
  POOLING_KINDS,
  SPECULATE,
} from "../../lib/model.ts";
import { FROM_SOURCE, shipped } from "../../package.ts";
import { DEFAULT_CONNECTIONS, MAX_CONNECTIONS, PATH_PREFIX } from "../../lib/serving.ts";
import { DEFAULT_CACHE_MB, MAX_CACHE_MB } from "./prompt_cache.ts";
import { MAX_CONTEXT, MAX_KV_MB, MAX_PARALLEL, MAX_THREADS } from "../shared/model.ts";
import { choice, count, onOff, path, paths, type Settings, text, texts } from "../shared/settings.ts";

/** The only folder that the task may write to; of an installed server the one where it was started. */
const DEFAULT_DATA = FROM_SOURCE ? fromFileUrl(shipped(".compy")) : ".compy";

/**
 * All settings of the server, each described once: its flag, its environment variable, its key in the config file and its line
 * in the help follow from its place here.
 */
export const SERVE_SETTINGS = {
  model: paths("FILE", {
    help:
      "the GGUF model (default: the one that comes with compy); given several times, each is loaded when a " +
      "request names it",
  }),
  models: path("DIR", {
    help:
      "a folder of GGUF files, each of which is loaded when a request names it; files in folders in it are " +
      "called FOLDER/NAME",
  }),
  alias: texts("NAME=MODEL", {
    help: "a further name of a model; of the only one NAME is enough; may be given several times",
  }),
  memoryMb: count({
    min: 1,
    max: 2 ** 24,
    help:
      "memory that all loaded models together may take, in units of 10^6 bytes (default: what is free at the " +
      "start); where another does not fit, the one that was used longest ago is unloaded",
  }),
  idleUnload: count({
    min: 1,
    max: 2 ** 24,
    help: "seconds after which a model that nobody uses is unloaded; its next request loads it again",
  }),
  host: text("ADDRESS", {
    default: "127.0.0.1",
    help:
      "where to listen (default 127.0.0.1, this machine only); with another address than this machine's own " +
      "a key is needed",
  }),
  port: count({
    min: 0,
    max: 65_535,
    default: 8080,
    help: "0 to 65535 (default 8080); 0 takes any free port",
  }),
  unix: path("PATH", {
    writes: true,
    help: "listen at a socket of this path, which this user alone may use, instead of host and port",
  }),
  threads: count({ min: 1, max: MAX_THREADS, help: "threads that compute (default: one a physical core)" }),
  backend: choice("NAME", BACKENDS, {
    help:
      "cpu, wasm (WebAssembly), webgpu, or auto: the GPU if it measures faster (default cpu, or wasm where there are no native kernels)",
  }),
  arithmetic: choice("A", ARITHMETICS, {
    help: "of the GPU's matrix products: f32 or f16 (default f32)",
  }),
  accuracy: choice("A", ACCURACIES, {
    help: "gated (default), or any: also in an arithmetic in which a model leaves its gates of accuracy",
  }),
  kvType: choice("T", KV_TYPES, {
    help:
      "of the KV cache: f16, 16 bits a value, which on the CPU are integers with a scale for each head, or q8_0 in 53 % of " +
      "the memory (default f16)",
  }),
  activations: choice("A", ACTIVATION_PRECISIONS, {
    help:
      "what activations are rounded to before products with quantised weights, on the CPU: fast (8 bits) or fine (15: nearer " +
      "to exact, prompts at about half the speed) (default fast)",
  }),
  speculate: choice("S", SPECULATE, {
    help:
      "drafts of the next tokens, checked several a step, for the same answers sooner: auto, off, lookup (from the " +
      "text's own repetitions), mtp or draft (default auto)",
  }),
  draft: path("FILE", {
    help: "a smaller model of the same vocabulary that drafts, of a server of one model",
  }),
  pooling: choice("P", POOLING_KINDS, {
    help:
      "how a text becomes one vector in /v1/embeddings: by the mean of its rows, the first (cls) or the last of them, " +
      "or by a head that ranks (rank) (default: what the file says, or else last, of encoders mean)",
  }),
  ctx: count({
    min: 1,
    max: MAX_CONTEXT,
    help:
      "tokens that one sequence may hold, prompt and answer together (default: the model's own, at most 4096)",
  }),
  parallel: count({
    min: 1,
    max: MAX_PARALLEL,
    default: 4,
    help: `sequences that run side by side, 1 to ${MAX_PARALLEL} (default 4); the others wait`,
  }),
  kvMb: count({
    min: 1,
    max: MAX_KV_MB,
    help:
      "memory for the KV cache, in units of 10^6 bytes (default: what --parallel sequences of --ctx tokens " +
      "need); sequences take it as they grow, and wait where it runs out",
  }),
  apiKey: text("KEY", {
    secret: true,
    help: "required of every client; better set COMPY_API_KEY, which others cannot see in ps",
  }),
  apiKeys: path("FILE", {
    help:
      "a JSON file of keys with names and limits, read again when it changes or on SIGHUP (docs/OPERATIONS.md)",
  }),
  data: path("DIR", {
    writes: true,
    default: DEFAULT_DATA,
    words: ["none"],
    help: `the folder of files and batches (default: .compy ${
      FROM_SOURCE ? "beside the program" : "here"
    }); "none" serves without them`,
  }),
  openHealth: onOff({ help: "/health wants no key" }),
  cors: texts("ORIGIN", {
    look: {
      pattern: /^[a-z][a-z0-9+.-]*:\/\/[a-z0-9.:[\]-]+$/,
      rule: "origins as browsers send them, such as https://app.example",
    },
    help: "an origin, such as https://app.example, whose pages may use the API; may be given several times",
  }),
  pathPrefix: text("PATH", {
    look: { pattern: PATH_PREFIX, rule: "a path such as /llm, without a slash at its end" },
    help: "begins every path, such as /llm, where a proxy hands on a part of a site",
  }),
  log: path("FILE", {
    writes: true,
    words: ["-"],
    help:
      "adds a line of JSON for each request: what it was and took, without its texts; - is standard output; " +
      "opened anew on SIGHUP",
  }),
  cacheDisk: path("DIR", {
    writes: true,
    help:
      "keep prompts there, so that a later process need not compute them (docs/PROMPT_CACHE.md); on the CPU only",
  }),
  cacheDiskMb: count({
    min: 1,
    max: MAX_CACHE_MB,
    default: DEFAULT_CACHE_MB,
    help:
      `what they may take, in units of 10^6 bytes (default ${DEFAULT_CACHE_MB}); what was used least recently goes`,
  }),
  cacheDiskEager: onOff({ help: "write prompts at once, and not only when they come a second time" }),
  maxUploadMb: count({
    min: 1,
    max: 2 ** 20,
    default: 4096,
    help: "the largest file that may be uploaded (default 4096)",
  }),
  maxStorageMb: count({
    min: 1,
    max: 2 ** 30,
    default: 16_384,
    help: "what all files in the folder may take together; more uploads are refused (default 16384)",
  }),
  maxConnections: count({
    min: 1,
    max: MAX_CONNECTIONS,
    help:
      `connections open at once, 1 to ${MAX_CONNECTIONS} (default ${DEFAULT_CONNECTIONS}, fewer where the limit of ` +
      "open files is lower); idle and unfinished ones give their places to others, and the rest wait",
  }),
  onFailure: choice("WHAT", ["reload", "exit"], {
    default: "reload",
    help:
      "reload: an engine that fails is loaded again, up to three times in ten minutes; exit: the server stops " +
      "with exit code 1, for a supervisor to restart it (default reload)",
  }),
  supervise: onOff({
    help: "runs the server as a child that is started again when it is killed or fails",
  }),
  allowHost: texts("NAME", {
    help: "a further host name that clients may call this server by; may be given several times",
  }),
};

export type ServeSettings = Settings<typeof SERVE_SETTINGS>;
