import { fromFileUrl } from "@std/path";
import { DEFAULT_ENDPOINT } from "../../hub/mod.ts";
import { FROM_SOURCE, shipped } from "../../package.ts";
import { DEFAULT_CONNECTIONS, MAX_CONNECTIONS, PATH_PREFIX, RESPONSE_BYTES } from "../../lib/serving.ts";
import {
  ADAPTERS,
  COMPUTE,
  CTX,
  DRAFTS,
  IMAGES,
  KV_MB,
  MAX_PARALLEL,
  NUMA,
  PROMPT_CACHE,
  STRICT_PARAMETERS,
  VECTORS,
} from "../shared/engine_settings.ts";
import { IMAGE_HOSTS } from "../shared/image_hosts.ts";
import type { Settings } from "../shared/read_settings.ts";
import { choice, count, onOff, path, paths, text, texts } from "../shared/settings.ts";

/**
 * Default folder of files and batches: the only folder that the task may write to. An installed server uses the current
 * folder.
 */
const DEFAULT_DATA = FROM_SOURCE ? fromFileUrl(shipped(".compy")) : ".compy";

/**
 * All settings of the server. Each entry gives a flag, an environment variable, a key of the config file and a line of
 * the help.
 */
export const SERVE_SETTINGS = {
  model: paths("FILE", {
    help:
      "the GGUF model (default: the one that comes with compy); may be given several times: each model is then " +
      "loaded when a request names it",
  }),
  models: path("DIR", {
    help:
      "a folder of GGUF files; each is loaded when a request names it; a file in a folder in it is named " +
      "FOLDER/NAME",
  }),
  allowPull: onOff({
    help:
      "POST /api/pull may download models from the hub into the folder of --models; the server then needs permission to " +
      "reach other machines (docs/OPERATIONS.md)",
  }),
  mirror: text("URL", {
    look: { pattern: /^https?:\/\/[\w.:[\]-]+(\/[^?#]*)?$/, rule: "an address such as https://hub.example" },
    help: `another hub than ${DEFAULT_ENDPOINT} for --allow-pull`,
  }),
  alias: texts("NAME=MODEL", {
    help:
      "another name of a model, such as gpt-4o=qwen3; NAME alone if there is one model; may be given several times",
  }),
  chatTemplate: {
    ...paths("[MODEL=]FILE", {
      help:
        "a Jinja chat template, in place of the one in the model's file; MODEL=FILE with several models; may be given " +
        "several times",
    }),
    path: { named: true },
  },
  memoryMb: count({
    min: 1,
    max: 2 ** 24,
    help:
      "maximum memory of all loaded models together in MB, 10^6 bytes (default: the memory that is free at " +
      "the start); if another model does not fit, the least recently used one is unloaded",
  }),
  idleUnload: count({
    min: 1,
    max: 2 ** 24,
    help: "unload a model after this many seconds without a request; its next request loads it again",
  }),
  host: text("ADDRESS", {
    default: "127.0.0.1",
    help:
      "the address to listen on (default: 127.0.0.1, this machine only); an address that other machines reach " +
      "needs --api-key or --api-keys",
  }),
  port: count({
    min: 0,
    max: 65_535,
    default: 8080,
    help: "the port to listen on, 0 to 65535 (default: 8080); 0 takes any free port",
  }),
  unix: path("PATH", {
    writes: true,
    help: "listen on a Unix socket at this path, for this user only, instead of host and port",
  }),
  ...COMPUTE,
  ...DRAFTS,
  ...ADAPTERS,
  ...NUMA,
  ...IMAGES,
  ...VECTORS,
  ctx: CTX,
  parallel: count({
    min: 1,
    max: MAX_PARALLEL,
    default: 4,
    help: `maximum number of sequences that run at once, 1 to ${MAX_PARALLEL} (default: 4); others wait`,
  }),
  kvMb: KV_MB,
  apiKey: text("KEY", {
    secret: true,
    help: "the key that every request needs; COMPY_API_KEY is safer, because ps does not show it",
  }),
  apiKeys: path("FILE", {
    help: "a JSON file of keys with names and limits; it is read again when it changes and on SIGHUP " +
      "(docs/OPERATIONS.md)",
  }),
  data: path("DIR", {
    writes: true,
    default: DEFAULT_DATA,
    words: ["none"],
    help: `the folder for files, batches and stored answers (default: .compy in the ${
      FROM_SOURCE ? "program's" : "current"
    } folder); "none" serves without them`,
  }),
  openHealth: onOff({ help: "/health needs no key" }),
  strictParameters: STRICT_PARAMETERS,
  cors: texts("ORIGIN", {
    look: {
      pattern: /^[a-z][a-z0-9+.-]*:\/\/[a-z0-9.:[\]-]+$/,
      rule: "origins as browsers send them, such as https://app.example",
    },
    help:
      "an origin, such as https://app.example, whose pages may use the API from a browser; may be given several times",
  }),
  pathPrefix: text("PATH", {
    look: { pattern: PATH_PREFIX, rule: "a path such as /llm, without a slash at its end" },
    help: "a prefix of every path, such as /llm, for a proxy that forwards a part of a site",
  }),
  log: path("FILE", {
    writes: true,
    words: ["-"],
    help:
      "append one JSON line per request: endpoint, status, tokens and times, without texts; - is standard output; " +
      "SIGHUP reopens the file",
  }),
  ...PROMPT_CACHE,
  maxUploadMb: count({
    min: 1,
    max: 2 ** 20,
    default: 4096,
    help: "maximum size of an uploaded file in MiB, 2^20 bytes (default: 4096)",
  }),
  maxStorageMb: count({
    min: 1,
    max: 2 ** 30,
    default: 16_384,
    help:
      "maximum size of all files in the folder together in MiB, 2^20 bytes (default: 16384); further uploads are refused",
  }),
  maxResponsesMb: count({
    min: 0,
    max: 2 ** 30,
    default: RESPONSE_BYTES.disk / 2 ** 20,
    help:
      "maximum size of all stored answers of /v1/responses together in MiB, 2^20 bytes (default: 512); the oldest " +
      "ones, and those of more than 30 days, are deleted; 0 stores none; without a data folder at most 64, in memory",
  }),
  maxConnections: count({
    min: 1,
    max: MAX_CONNECTIONS,
    help:
      `maximum number of open connections, 1 to ${MAX_CONNECTIONS} (default: ${DEFAULT_CONNECTIONS}, or fewer if the limit of ` +
      "open files is lower); above it, idle and unfinished connections are closed, and new ones wait",
  }),
  onFailure: choice("WHAT", ["reload", "exit"], {
    default: "reload",
    help:
      "when an engine fails: reload loads it again, up to three times in ten minutes; exit stops the server " +
      "with exit code 1, so that a supervisor can restart it (default: reload)",
  }),
  supervise: onOff({
    help: "run the server in a child process, and start it again when it is killed or fails",
  }),
  allowHost: texts("NAME", {
    help: "another host name that requests may use for this server; may be given several times",
  }),
  allowImageHosts: IMAGE_HOSTS,
};

export type ServeSettings = Settings<typeof SERVE_SETTINGS>;
